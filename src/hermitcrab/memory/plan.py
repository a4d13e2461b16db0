"""A table of everything that memory is needed for, and what could be changed, before anything is loaded."""

from collections.abc import Sequence
from dataclasses import dataclass

from hermitcrab.errors import BudgetError
from hermitcrab.memory.budget import MARGIN_BYTES, Item, Ledger, Line, SessionBudget, spell


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """One engine's use of memory with one model and one list of sessions, slot 0 first.

    `lines` are under the load limit, `beside` what is not (mapped files, which the system may drop).
    `refusal` is None if all of it fits.
    """

    engine: str
    is_planned: bool
    ledger: Ledger
    lines: tuple[Line, ...]
    sessions: tuple[Item, ...]
    beside: tuple[Line, ...]
    refusal: str | None
    suggestions: tuple[str, ...]

    @property
    def needed_bytes(self) -> int:
        """All lines and sessions."""
        return sum(line.bytes for line in self.lines) + sum(item.total_bytes for item in self.sessions)

    @property
    def left_bytes(self) -> int:
        """What the cap leaves; below 0 if it is passed."""
        return self.ledger.cap_bytes - self.needed_bytes


def make_plan(
    ledger: Ledger,
    budget: SessionBudget,
    *,
    engine: str,
    is_planned: bool,
    context_tokens: int,
    listed: Sequence[int],
    sessions_allowed: int,
    beside: Sequence[Line],
) -> MemoryPlan:
    """Hold slot 0 and the listed sessions against the budget of this ledger.

    A suggestion has at most `sessions_allowed` sessions, slot 0 counted.
    """
    tokens = (context_tokens, *listed)
    lines = (
        *ledger.parts,
        Line("work buffers", budget.shared_bytes(tokens), "a prompt pass or a round, at its most"),
        Line("margin", MARGIN_BYTES, "the runtime's own buffers, fragmentation"),
        Line("prompt cache", ledger.reserved_bytes),
        Line(
            "loading, beyond the cache",
            ledger.set_aside_bytes - ledger.reserved_bytes,
            "copies made on the way, given back before the first request",
        ),
    )
    refusal = None
    try:
        budget.check_list(context_tokens, listed)
    except BudgetError as error:
        refusal = str(error)
    return MemoryPlan(
        engine=engine,
        is_planned=is_planned,
        ledger=ledger,
        lines=lines,
        sessions=budget.items(tokens),
        beside=tuple(beside),
        refusal=refusal,
        suggestions=_ways_out(ledger, refusal)
        if refusal is not None
        else _suggestions(ledger, budget, tokens, sessions_allowed),
    )


def _suggestions(
    ledger: Ledger, budget: SessionBudget, tokens: Sequence[int], sessions_allowed: int
) -> tuple[str, ...]:
    """What the room that is left could hold: more of the smallest sessions, or a larger prompt cache."""
    smallest = min(tokens)
    more = min(budget.more_of(tokens, smallest), sessions_allowed - len(tokens))
    found = []
    if more > 0:
        listed = spell((*tokens[1:], *(smallest,) * more))
        found.append(f"{more} more of {smallest} tokens fit: --slot-contexts {listed}")
    total = sum(item.total_bytes for item in budget.items(tokens)) + budget.shared_bytes(tokens)
    free = ledger.room_bytes - total
    if ledger.reserved_bytes >= ledger.loading_bytes and free > 0:
        found.append(f"the prompt cache could take {free / 1e9:.1f} GB more")
    return tuple(found)


def _ways_out(ledger: Ledger, refusal: str) -> tuple[str, ...]:
    """The refusal's own advice, and the limit where the device has more."""
    found = [refusal.splitlines()[-1]]
    if ledger.room_bytes >= 0 and ledger.cap_bytes < ledger.device_bytes:
        found.append(f"the limit may be raised up to {ledger.device_bytes / 1e9:.1f} GB: --load-limit-gb")
    return tuple(found)
