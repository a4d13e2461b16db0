"""A receipt for people, as a table, and for machines, as JSON."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from hermitcrab.receipts.origin import Build, CheckpointHash, Machine
from hermitcrab.receipts.record import Difference, Outcome, Side, Verdict

_STYLES = {
    Verdict.EQUAL: "green",
    Verdict.DIFFERENT: "bold red",
    Verdict.NOT_SHOWN: "bold yellow",
    Verdict.NOT_AVAILABLE: "dim",
}


@dataclass(frozen=True, slots=True)
class Receipt:
    """All that a run of parity found, and what it ran on; `checkpoint` is None for a server elsewhere."""

    made_unix_s: int
    seconds: float
    build: Build
    machine: Machine
    checkpoint: CheckpointHash | None
    threads: int | None
    options: Mapping[str, object]
    outcomes: tuple[Outcome, ...]

    @property
    def has_passed(self) -> bool:
        """True if nothing differed and all that ran was shown."""
        return not any(outcome.is_failure for outcome in self.outcomes)


def outcome_table(outcomes: Sequence[Outcome]) -> Table:
    """One line a check."""
    table = Table("receipt", "check", "verdict", "replies", "rows", "seconds", "what it saw", pad_edge=False)
    for outcome in outcomes:
        table.add_row(
            outcome.receipt,
            Text(outcome.name),
            Text(outcome.verdict, style=_STYLES[outcome.verdict]),
            str(len(outcome.replies) or ""),
            str(outcome.rows_compared or ""),
            f"{outcome.seconds:.1f}" if outcome.seconds else "",
            Text(outcome.note),
        )
    return table


def difference_lines(outcomes: Sequence[Outcome]) -> list[str]:
    """The first difference of every check that has one, both sides in full."""
    lines = []
    for outcome in outcomes:
        for found in outcome.differences[:1]:
            more = len(outcome.differences) - 1
            lines.append(f"{outcome.name}: {_where(found)}" + (f" (and {more} more replies)" if more else ""))
            lines += [
                f"  {name}: {_side(side)}" for name, side in (("alone", found.alone), ("here", found.other))
            ]
    return lines


def receipt_json(receipt: Receipt) -> str:
    """The receipt as indented JSON; logits as text that keeps every bit, NaN and infinities too."""
    body: dict[str, Any] = {
        **asdict(receipt),
        "has_passed": receipt.has_passed,
        "outcomes": [_outcome_body(outcome) for outcome in receipt.outcomes],
    }
    return json.dumps(body, indent=1, allow_nan=False) + "\n"


def write_receipt(receipt: Receipt, path: Path) -> None:
    """Write the JSON form."""
    path.write_text(receipt_json(receipt), encoding="utf-8")


def _outcome_body(outcome: Outcome) -> dict[str, Any]:
    return {
        **asdict(outcome),
        "seconds": round(outcome.seconds, 3),
        "differences": [
            {
                **asdict(found),
                "alone": _side_body(found.alone),
                "other": _side_body(found.other),
            }
            for found in outcome.differences
        ],
    }


def _side_body(side: Side) -> dict[str, Any]:
    return {"token": side.token, "logits": [[token, repr(logit)] for token, logit in side.best]}


def _where(found: Difference) -> str:
    return f"{found.case!r} differs at reply token {found.index}: {found.what}"


def _side(side: Side) -> str:
    token = "no token" if side.token is None else f"token {side.token}"
    logits = ", ".join(f"{id}: {logit!r}" for id, logit in side.best)
    return f"{token}; logits {logits}" if logits else token
