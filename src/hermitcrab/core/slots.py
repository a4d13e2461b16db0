"""Who sits in which session, and whether a stream stays there: table, placing and `room`.

Why a paused stream always resumes: it waits only for a session strictly larger than its own that would let
it go on, so waits point upward in size. Admission lets in only streams that the largest session holds to
their end, and a stream in a session that holds it never pauses. So the largest session's stream always
ends, then the next size's, and so on down; paused streams come before new requests for what frees.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hermitcrab.core.backend import SlotId


@dataclass(frozen=True, slots=True)
class Session:
    """A place in the table: its slot and its capacity."""

    slot: SlotId
    rows: int


@dataclass(frozen=True, slots=True)
class Standing:
    """A stream as `room` sees it: settled rows, reply tokens still allowed, end, its session's capacity."""

    rows: int
    remaining_tokens: int
    end_rows: int
    capacity_rows: int


@dataclass(frozen=True, slots=True)
class Stay:
    """Its next round fits where it is."""


@dataclass(frozen=True, slots=True)
class Move:
    """It goes on in another, larger session."""

    slot: SlotId


@dataclass(frozen=True, slots=True)
class Pause:
    """It waits for a session larger than its own."""


@dataclass(frozen=True, slots=True)
class Full:
    """No session that exists could ever let it go on."""


Room = Stay | Move | Pause | Full


def room(
    standing: Standing,
    *,
    free: Sequence[Session],
    sessions: Sequence[Session],
    window_rows: int,
    grow_tokens: int,
) -> Room:
    """What a stream does before its next round, from numbers alone; `free` is a part of `sessions`."""
    if stays(standing, window_rows=window_rows):
        return Stay()
    larger = [session for session in sessions if is_wanted(session, standing, window_rows=window_rows)]
    if not larger:
        return Full()
    roomy_rows = standing.rows + min(standing.remaining_tokens, grow_tokens) + window_rows
    usable = [session for session in larger if session in free]
    target = smallest(usable, at_least_rows=roomy_rows) or smallest(usable, at_least_rows=0)
    return Pause() if target is None else Move(target.slot)


def stays(standing: Standing, *, window_rows: int) -> bool:
    """True if the stream's own session holds it to its end, or its next round and the one after it."""
    return standing.capacity_rows >= standing.end_rows or _goes_on(
        standing, standing.capacity_rows, window_rows
    )


def is_wanted(session: Session, standing: Standing, *, window_rows: int) -> bool:
    """True for a session that is larger than the stream's own and would let it go on."""
    return session.rows > standing.capacity_rows and (
        session.rows >= standing.end_rows or _goes_on(standing, session.rows, window_rows)
    )


def _goes_on(standing: Standing, capacity_rows: int, window_rows: int) -> bool:
    """True if after a whole window more, a round would still fit: the state a pause must be in."""
    return standing.rows + 2 * window_rows <= capacity_rows


def smallest(sessions: Iterable[Session], *, at_least_rows: int) -> Session | None:
    """The smallest session that has the rows; the first of equals."""
    fitting = [session for session in sessions if session.rows >= at_least_rows]
    return min(fitting, key=lambda session: (session.rows, session.slot), default=None)


class SlotTable:
    """Which sessions exist and who holds each; changed by the lane engine only."""

    def __init__(self, session_rows: Sequence[int]) -> None:
        self.sessions = tuple(Session(SlotId(slot), rows) for slot, rows in enumerate(session_rows))
        self._holders: dict[SlotId, str] = {}
        self._unclean: set[SlotId] = set()

    @property
    def largest_rows(self) -> int:
        """Capacity of the largest session."""
        return max(session.rows for session in self.sessions)

    @property
    def held(self) -> tuple[SlotId, ...]:
        """Slots somebody holds."""
        return tuple(sorted(self._holders))

    @property
    def unclean(self) -> tuple[SlotId, ...]:
        """Sessions nobody holds whose release failed: not free until it succeeds."""
        return tuple(sorted(self._unclean))

    def capacity(self, slot: SlotId) -> int:
        """Rows of a slot's session."""
        return self.sessions[slot].rows

    def holder(self, slot: SlotId) -> str | None:
        """The request that holds a slot."""
        return self._holders.get(slot)

    def free(self) -> list[Session]:
        """Sessions nobody holds, by slot."""
        return [
            session
            for session in self.sessions
            if session.slot not in self._holders and session.slot not in self._unclean
        ]

    def take(self, slot: SlotId, request_id: str) -> None:
        """Give a free slot to a request."""
        assert slot not in self._holders, f"slot {slot} is held by {self._holders[slot]}"
        assert slot not in self._unclean, f"slot {slot} was never released"
        self._holders[slot] = request_id

    def give_back(self, slot: SlotId) -> None:
        """Make a held slot free."""
        del self._holders[slot]

    def mark_unclean(self, slot: SlotId) -> None:
        """Keep a slot that nobody holds from being given to anyone."""
        self._unclean.add(slot)

    def mark_clean(self, slot: SlotId) -> None:
        """Undo `mark_unclean`."""
        self._unclean.discard(slot)
