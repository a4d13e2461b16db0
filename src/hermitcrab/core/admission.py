"""Which waiting request starts next and where: order, fits now, later or never; bounded overtaking.

Foreground requests stand before background ones, each in order of arrival. A background request ages: one
that came `AGEING_S` before a foreground request stands before it, so no more than the requests of that time
ever get in front of it.

A later request that fits may pass one that does not. The waiting one is asked first each time, so a passer
never takes a session that it could have had. Only a passer that outgrows its session can delay it, because
a paused stream comes before new requests: so only passers that may grow are counted, and their number is
bounded.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from hermitcrab.core.api import Priority
from hermitcrab.core.backend import SlotId
from hermitcrab.core.slots import Session, smallest
from hermitcrab.core.stream import Limits

# a passer can take a freed session before the waiting request once at most, so this is also how many
# replies the request may have to wait for because of passers; 16 is one full house of the session list the
# design comes from
MOST_PASSES = 16

# long beside a turn of a conversation, so that people go first; short beside the time-out of a batch client
AGEING_S = 60.0


def queue_key(priority: Priority, *, submitted_s: float) -> float:
    """Where a request stands in the queue, the lowest first; it never changes, so a queue stays in order."""
    return submitted_s + (AGEING_S if priority is Priority.BACKGROUND else 0.0)


@dataclass(frozen=True, slots=True)
class Sizing:
    """How streams are placed.

    `grow_tokens` None: the option is unset, every stream takes the first free session and none grows.
    """

    window_rows: int
    grow_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Now:
    """It can start in this slot."""

    slot: SlotId


@dataclass(frozen=True, slots=True)
class Later:
    """A session that holds its first part exists, and none such is free."""


@dataclass(frozen=True, slots=True)
class Never:
    """No wait will help."""


Fit = Now | Later | Never


@dataclass(frozen=True, slots=True)
class Waiting:
    """A request in the queue: its limits, and how many that may grow have passed it."""

    limits: Limits
    passes: int


@dataclass(frozen=True, slots=True)
class Start:
    """The request at `index` of the queue starts in `slot`; `may_grow` if it could outgrow it."""

    index: int
    slot: SlotId
    may_grow: bool


@dataclass(frozen=True, slots=True)
class Refuse:
    """The request at `index` of the queue can never start."""

    index: int


def fits(limits: Limits, *, free: Sequence[Session], sessions: Sequence[Session], sizing: Sizing) -> Fit:
    """Whether a stream can start now, and where."""
    if sizing.grow_tokens is None:
        if not free:
            return Later()
        return Now(free[0].slot) if free[0].rows >= limits.end_rows else Never()
    if max(session.rows for session in sessions) < limits.end_rows:
        return Never()
    target = smallest(free, at_least_rows=limits.first_rows(sizing.grow_tokens))
    return Later() if target is None else Now(target.slot)


def next_start(
    waiting: Sequence[Waiting], *, free: Sequence[Session], sessions: Sequence[Session], sizing: Sizing
) -> Start | Refuse | None:
    """The first request of the queue that can be decided; None if all have to wait."""
    rows = {session.slot: session.rows for session in sessions}
    is_guarded = False
    for index, request in enumerate(waiting):
        match fits(request.limits, free=free, sessions=sessions, sizing=sizing):
            case Never():
                return Refuse(index)
            case Now(slot):
                may_grow = rows[slot] < request.limits.end_rows
                if not (may_grow and is_guarded):
                    return Start(index, slot, may_grow)
            case Later():
                is_guarded = is_guarded or request.passes >= MOST_PASSES
    return None
