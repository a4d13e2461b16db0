"""`hermitcrab simulate`: a list of sessions tried on a load, beside equal ones and an ideal paged pool."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from hermitcrab.cli.console import make_console
from hermitcrab.core.slot_list import parse_slot_contexts
from hermitcrab.errors import SettingError
from hermitcrab.memory.budget import GIB, spell
from hermitcrab.simulate.compare import SESSION_LIMIT, Comparison, Plan
from hermitcrab.simulate.costs import H200_COSTS, Costs, read_costs
from hermitcrab.simulate.lanes import GRAINS
from hermitcrab.simulate.load import LOADS, Arrival, draw_load, read_load
from hermitcrab.simulate.outcome import Outcome
from hermitcrab.simulate.plot import plot
from hermitcrab.simulate.suggest import Suggestion

# the table's width where no terminal has one
_PAGE_COLUMNS = 116

_FILE = click.Path(path_type=Path)


@dataclasses.dataclass(frozen=True, slots=True)
class Asked:
    """A load in words and as requests, what to compare on it, with which costs."""

    load: str
    arrivals: tuple[Arrival, ...]
    plan: Plan
    costs: Costs


def _read(given: dict[str, Any]) -> Asked:
    """Raises SettingError for options that do not go together, TrailError for files that cannot be read."""
    drawn = {name: given[name] for name in ("load", "per_minute", "requests", "seed")}
    if given["trace"] is not None:
        if any(value is not None for value in drawn.values()):
            raise SettingError(
                "--trace has the requests: --load, --per-minute, --requests, --seed exclude it."
            )
        arrivals, words = read_load(given["trace"]), f"trace {given['trace'].name}"
    else:
        name, per_minute = drawn["load"] or "mixed", drawn["per_minute"] or 6.0
        count, seed = drawn["requests"] or 400, drawn["seed"] or 0
        arrivals = draw_load(name, count=count, per_minute=per_minute, seed=seed)
        words = f"{name}, {per_minute:g} requests a minute, seed {seed}"
    listed = parse_slot_contexts(
        given["slot_contexts"], sessions_allowed=SESSION_LIMIT - 1, context_tokens=given["context"]
    )
    memory_gib = given["memory_gib"]
    plan = Plan(
        context_tokens=given["context"],
        listed=listed,
        grow_tokens=given["slot_grow"],
        decode_share=given["decode_share"],
        memory_bytes=None if memory_gib is None else int(memory_gib * GIB),
        grain=int(given["grain"]),
    )
    costs = H200_COSTS if given["costs"] is None else read_costs(given["costs"])
    return Asked(words, arrivals, plan, costs)


def simulate(**given: Any) -> None:
    """Compare, print the table, write the files. Raises HermitcrabError for what cannot be compared."""
    asked = _read(given)
    comparison = Comparison(asked.arrivals, asked.plan, asked.costs)
    outcomes = comparison.three()
    suggestion = None
    if given["suggest"]:
        with make_console().status(f"trying up to {given['tries']} lists"):
            suggestion = comparison.suggest(tries=given["tries"], seed=0)
        outcomes.insert(2, suggestion.outcome)
    _show(asked, outcomes, suggestion)
    if given["json"] is not None:
        document = json.dumps(_document(asked, outcomes, suggestion), indent=1)
        _write("--json", given["json"], document + "\n")
    if given["plot"] is not None:
        _write("--plot", given["plot"], plot(outcomes, title=asked.load))


def _show(asked: Asked, outcomes: Sequence[Outcome], suggestion: Suggestion | None) -> None:
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _PAGE_COLUMNS
    served_s = max((item.arrival_s + item.total_s for item in outcomes[1].served), default=0.0)
    console.print(f"{asked.load}: {len(asked.arrivals)} requests in {served_s / 3600:.2f} simulated hours")
    console.print(f"costs: {asked.costs.source}", style="dim")
    console.print(outcome_table(outcomes))
    for outcome in outcomes:
        console.print(f"{outcome.name}: {outcome.sessions}, {outcome.memory_bytes / GIB:.2f} GiB")
    if suggestion is not None:
        console.print(
            f"the best of {suggestion.tried} lists tried: --slot-contexts {spell(suggestion.listed)}"
            if suggestion.listed
            else f"the best of {suggestion.tried} lists tried is none: the whole window alone"
        )


def outcome_table(outcomes: Sequence[Outcome]) -> Table:
    """One way to use the memory a column."""
    table = Table(pad_edge=False)
    table.add_column("")
    for outcome in outcomes:
        table.add_column(outcome.name, justify="right")
    for name, spreads in (
        ("waiting", [outcome.waiting for outcome in outcomes]),
        ("first token", [outcome.first_token for outcome in outcomes]),
        ("whole reply", [outcome.total for outcome in outcomes]),
    ):
        table.add_row(f"{name}, s: mean", *[f"{spread.mean_s:.2f}" for spread in spreads])
        table.add_row("  half within", *[f"{spread.p50_s:.2f}" for spread in spreads])
        table.add_row("  95 % within", *[f"{spread.p95_s:.2f}" for spread in spreads])
        table.add_row("  99 % within", *[f"{spread.p99_s:.2f}" for spread in spreads], end_section=True)
    table.add_row("reply tokens / s", *[f"{outcome.tokens_per_s:.1f}" for outcome in outcomes])
    for name, counts in (
        ("most at once", [outcome.most_streams for outcome in outcomes]),
        ("moves", [outcome.moves for outcome in outcomes]),
        ("pauses; the pool's evictions", [outcome.interruptions for outcome in outcomes]),
        ("rows read again", [outcome.recomputed_rows for outcome in outcomes]),
        ("refused: too long", [outcome.refused for outcome in outcomes]),
    ):
        table.add_row(name, *[f"{count:,}" for count in counts])
    return table


def _document(asked: Asked, outcomes: Sequence[Outcome], suggestion: Suggestion | None) -> dict[str, Any]:
    return {
        "load": asked.load,
        "requests": len(asked.arrivals),
        "plan": dataclasses.asdict(asked.plan),
        "costs": dataclasses.asdict(asked.costs),
        "outcomes": [_outcome(outcome) for outcome in outcomes],
        "suggestion": None
        if suggestion is None
        else {"slot_contexts": spell(suggestion.listed), "tried": suggestion.tried},
    }


def _outcome(outcome: Outcome) -> dict[str, Any]:
    return {
        "name": outcome.name,
        "sessions": outcome.sessions,
        "memory_bytes": outcome.memory_bytes,
        "waiting": dataclasses.asdict(outcome.waiting),
        "first_token": dataclasses.asdict(outcome.first_token),
        "total": dataclasses.asdict(outcome.total),
        "tokens_per_s": outcome.tokens_per_s,
        "most_streams": outcome.most_streams,
        "moves": outcome.moves,
        "interruptions": outcome.interruptions,
        "recomputed_rows": outcome.recomputed_rows,
        "refused": outcome.refused,
        "served": [dataclasses.asdict(served) for served in outcome.served],
    }


def _write(option: str, path: Path, content: str) -> None:
    try:
        path.write_text(content, encoding="utf-8")
    except OSError as error:
        raise SettingError(f"{option} {path}: cannot be written: {error.strerror}") from error


_HELP = """Try a list of sessions on a load, with no model and no waiting.

The server's own lanes serve the load on a clock that jumps ahead, so hours take seconds. Beside the list, at
the same memory: equal sessions of the whole window, and an ideal paged pool.

\b
hermitcrab simulate --load agents --per-minute 3 --slot-contexts 65536x3
hermitcrab simulate --trace monday.jsonl --suggest --plot monday.svg
"""

command = click.Command(
    "simulate",
    callback=simulate,
    help=_HELP,
    params=[
        click.Option(
            ["--trace"],
            type=_FILE,
            metavar="FILE",
            help="The load: a trail of `hermitcrab serve`, or JSON lines with arrival_s, prompt_tokens, "
            "reply_tokens, and max_tokens if the client sends it.",
        ),
        click.Option(
            ["--load"],
            type=click.Choice(sorted(LOADS)),
            help="The load to draw without a trace: chats are short, agents send long prompts, mixed has an "
            "agent in four.  [default: mixed]",
        ),
        click.Option(
            ["--per-minute"],
            type=click.FloatRange(0.001, 100_000.0),
            metavar="RATE",
            help="Requests a minute to draw, at random times.  [default: 6]",
        ),
        click.Option(
            ["--requests"],
            type=click.IntRange(1, 100_000),
            metavar="COUNT",
            help="Requests to draw.  [default: 400]",
        ),
        click.Option(
            ["--seed"],
            type=click.IntRange(0),
            metavar="NUMBER",
            help="The same seed draws the same load.  [default: 0]",
        ),
        click.Option(
            ["--context"],
            type=click.IntRange(1024, 1 << 24),
            default=262_144,
            show_default=True,
            metavar="TOKENS",
            help="The whole window: the largest session.",
        ),
        click.Option(
            ["--slot-contexts"],
            default="65536,32768x3,16384x11",
            show_default=True,
            metavar="TOKENS",
            help="The list to try: sessions besides the whole window, TOKENS or TOKENSxN, with commas.",
        ),
        click.Option(
            ["--slot-grow"],
            type=click.IntRange(1, 1 << 24),
            default=8192,
            show_default=True,
            metavar="TOKENS",
            help="Reply tokens a session must have room for when a stream enters or moves.",
        ),
        click.Option(
            ["--decode-share"],
            type=click.FloatRange(0.0, 0.95),
            default=0.25,
            show_default=True,
            metavar="SHARE",
            help="Share of the time that running replies keep while prompts are read.",
        ),
        click.Option(
            ["--memory-gib"],
            type=click.FloatRange(0.001, 100_000.0),
            metavar="GIB",
            help="Memory for all sessions.  [default: what the list takes]",
        ),
        click.Option(
            ["--costs"],
            type=_FILE,
            metavar="FILE",
            help="Times and bytes as JSON, see docs/simulate.md.  [default: estimates for one H200]",
        ),
        click.Option(
            ["--grain"],
            type=click.Choice([str(grain) for grain in GRAINS]),
            default="4",
            show_default=True,
            help="Tokens that are counted as one; 1 is exact and takes three times as long as 4.",
        ),
        click.Option(["--suggest"], is_flag=True, help="Search for a list that does better in this memory."),
        click.Option(
            ["--tries"],
            type=click.IntRange(1, 10_000),
            default=40,
            show_default=True,
            metavar="COUNT",
            help="Lists that the search may try, each on the whole load.",
        ),
        click.Option(["--json"], type=_FILE, metavar="FILE", help="Write the results, request by request."),
        click.Option(
            ["--plot"], type=_FILE, metavar="FILE.svg", help="Write a picture of the waiting times."
        ),
    ],
)
