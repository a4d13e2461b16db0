"""A backend that fails at one call, before or after what the call does, and a host loop over any of these."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

from lane_bench import Ear

from hermitcrab.clock import ScriptedClock
from hermitcrab.core.api import Event, Failed, Request
from hermitcrab.core.backend import Backend, DraftRequest, PieceId, SlotId, StateKeeper, Verified, Window
from hermitcrab.core.fake import CallKind
from hermitcrab.core.lanes import LaneRules
from hermitcrab.core.loop import HostLoop
from hermitcrab.receipts.relays import Relay
from hermitcrab.sampling.edits import Edits
from hermitcrab.sampling.params import Sampling


class Leaving(Ear):
    """A sink that fails once its client has gone."""

    has_gone = False

    def put(self, event: Event) -> None:
        super().put(event)
        if self.has_gone:
            raise OSError("the client is gone")


class Moment(StrEnum):
    """When a call fails."""

    BEFORE = "before"
    AFTER = "after"


class Place(StrEnum):
    """Which of its kind's calls fails, of all that a run makes."""

    FIRST = "first"
    MIDDLE = "middle"
    LAST = "last"

    def nth(self, calls: int) -> int:
        """The number of the call, from 1."""
        return {Place.FIRST: 1, Place.MIDDLE: (calls + 1) // 2, Place.LAST: calls}[self]


@dataclass(frozen=True)
class OneFault:
    """The `nth` call of a kind, from 1, raises `error`."""

    kind: CallKind
    nth: int
    moment: Moment
    error: Exception


class FailingBackend(Relay):
    """Passes calls on, but for one; `hit` has the requests in the sessions that the failed call named."""

    def __init__(self, backend: Backend, fault: OneFault | None = None) -> None:
        super().__init__(backend)
        self._fault = fault
        self._holder: Callable[[SlotId], str | None] = lambda slot: None
        self.counts: Counter[CallKind] = Counter()
        self.has_failed = False
        self.hit: set[str] = set()

    def follow(self, holder: Callable[[SlotId], str | None]) -> None:
        """Learn who tells which request sits in a slot."""
        self._holder = holder

    @contextmanager
    def _call(self, kind: CallKind, *slots: SlotId) -> Iterator[None]:
        self.counts[kind] += 1
        fault = self._fault
        is_due = fault is not None and (fault.kind, fault.nth) == (kind, self.counts[kind])
        if fault is None or not is_due:
            yield
            return
        self.has_failed = True
        self.hit = {holder for slot in slots if (holder := self._holder(slot)) is not None}
        if fault.moment is Moment.AFTER:
            yield
        raise fault.error

    def prefill(self, slot: SlotId, position: int, tokens: Sequence[int]) -> None:
        with self._call(CallKind.PREFILL, slot):
            super().prefill(slot, position, tokens)

    def draw_first(self, slot: SlotId, position: int, sampling: Sampling, edits: Edits | None = None) -> int:
        with self._call(CallKind.DRAW_FIRST, slot):
            return super().draw_first(slot, position, sampling, edits)

    def verify(self, windows: Sequence[Window]) -> list[Verified]:
        with self._call(CallKind.VERIFY, *(SlotId(window.slot) for window in windows)):
            return super().verify(windows)

    def keep(self, slot: SlotId, rows: int) -> None:
        with self._call(CallKind.KEEP, slot):
            super().keep(slot, rows)

    def draft(self, requests: Sequence[DraftRequest]) -> list[tuple[int, ...]]:
        with self._call(CallKind.DRAFT, *(request.slot for request in requests)):
            return super().draft(requests)

    def move(self, source: SlotId, target: SlotId) -> None:
        with self._call(CallKind.MOVE, source, target):
            super().move(source, target)

    def release(self, slot: SlotId) -> None:
        with self._call(CallKind.RELEASE, slot):
            super().release(slot)

    def keeper(self) -> StateKeeper | None:
        keeper = super().keeper()
        return None if keeper is None else FailingKeeper(keeper, self)


class FailingKeeper:
    """The keeper of a `FailingBackend`."""

    def __init__(self, keeper: StateKeeper, backend: FailingBackend) -> None:
        self._keeper = keeper
        self._backend = backend

    def save_rows(self, slot: SlotId, piece: PieceId, start: int) -> None:
        with self._backend._call(CallKind.SAVE_ROWS, slot):
            self._keeper.save_rows(slot, piece, start)

    def save_end(self, slot: SlotId, piece: PieceId) -> None:
        with self._backend._call(CallKind.SAVE_END, slot):
            self._keeper.save_end(slot, piece)

    def restore(self, slot: SlotId, rows: Sequence[PieceId], end: PieceId) -> None:
        with self._backend._call(CallKind.RESTORE, slot):
            self._keeper.restore(slot, rows, end)

    def drop(self, piece: PieceId) -> None:
        with self._backend._call(CallKind.DROP):
            self._keeper.drop(piece)


class FaultHouse:
    """A host loop over a failing backend, driven step by step."""

    def __init__(self, backend: FailingBackend, rules: LaneRules) -> None:
        self.backend = backend
        self.loop = HostLoop(backend, rules, ScriptedClock(), ())
        backend.follow(self.loop.engine.table.holder)
        self.ears: dict[str, Ear] = {}

    def serve(self, requests: Sequence[Request], *, at_most: int = 2000) -> None:
        """Run requests together until each has had its terminal event."""
        for request in requests:
            self.ears[request.id] = Ear()
            self.loop.submit(request, self.ears[request.id])
        for _ in range(at_most):
            if not self.loop.has_requests:
                return
            self.loop.step()
        raise AssertionError("requests are left")

    def failed(self, requests: Sequence[Request]) -> set[str]:
        """Those that ended with an error."""
        return {request.id for request in requests if isinstance(self.ears[request.id].terminal, Failed)}

    @property
    def is_empty(self) -> bool:
        """True if nobody is here and every session is free."""
        engine = self.loop.engine
        return not engine.streams and len(engine.table.free()) == len(engine.table.sessions)


# kinds whose failure ends the streams that the call was for; that of the others ends nobody
ENDING = frozenset(
    {CallKind.PREFILL, CallKind.DRAW_FIRST, CallKind.VERIFY, CallKind.KEEP, CallKind.DRAFT, CallKind.MOVE}
)
