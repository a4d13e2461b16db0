"""The prompt cache at work: prompts resume from kept states, and leave states behind as they fill.

Only what a prompt pass computed is ever kept: a reply's rows round otherwise, so an earlier reply is filled
again as a part of the next prompt. Nothing that fails here ends a stream: a state that cannot be kept is not,
one that cannot be restored is forgotten, and its prompt fills from the beginning.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from hermitcrab.cache.marks import GAP_ROWS, PromptPlan, last_mark, planned_marks
from hermitcrab.cache.prefixes import PromptChain
from hermitcrab.cache.store import CacheStatus, Entry, PieceCosts, Store
from hermitcrab.core.api import Progress
from hermitcrab.core.backend import Backend, PieceId, StateKeeper
from hermitcrab.core.stream import Stream
from hermitcrab.core.trail import CacheFailed, Decision
from hermitcrab.errors import LaneError, SettingError


@dataclass(frozen=True, slots=True)
class CacheRules:
    """How much the prompt cache may take, and where it keeps states.

    `budget_bytes` 0 keeps nothing. A token of `start_ids` begins a message; marks at message starts are
    `gap_rows` apart. Raises SettingError for a negative value.
    """

    budget_bytes: int = 0
    start_ids: frozenset[int] = frozenset()
    gap_rows: int = GAP_ROWS

    def __post_init__(self) -> None:
        if self.budget_bytes < 0 or self.gap_rows < 0:
            raise SettingError("the prompt cache's bytes and gap must be 0 or more.")


class PromptCache:
    """Resumes and keeps for the prompts that are filling; every method runs on the engine thread."""

    def __init__(
        self,
        backend: Backend,
        keeper: StateKeeper,
        costs: PieceCosts,
        rules: CacheRules,
        *,
        grid_rows: int,
        note: Callable[[Decision], None],
    ) -> None:
        self._backend = backend
        self._keeper = keeper
        self._costs = costs
        self._rules = rules
        self._grid_rows = grid_rows
        self._note = note
        self._store = Store(rules.budget_bytes, costs)
        self._undropped: list[PieceId] = []

    @property
    def status(self) -> CacheStatus:
        """Where it stands."""
        return self._store.status

    def ready(self, filling: Sequence[Stream]) -> list[Stream]:
        """The streams to which a pass may be given: all but those that wait for another one's state."""
        return [stream for place, stream in enumerate(filling) if not self._waits(stream, place, filling)]

    def resume_one(self, ready: Iterable[Stream]) -> bool:
        """Let one stream that has not begun resume from the longest kept prefix; False if none can."""
        for stream in ready:
            entry = None if stream.window.rows else self._longest(stream)
            if entry is not None:
                self._resume(stream, entry)
                return True
        return False

    def begin(self, stream: Stream) -> None:
        """A stream's first pass is next, and nothing of its prompt was kept."""
        self._store.count_miss()

    def pass_end(self, stream: Stream, end: int) -> int:
        """Where a pass up to `end` ends: at the next state to keep, if that comes first."""
        plan, start = self._plan(stream), stream.window.rows
        marks = (mark for mark in plan.marks if start < mark < end and not self._store.has(plan.chain, mark))
        return next(marks, end)

    def keep(self, stream: Stream) -> None:
        """Keep the state that a stream is in, if it is one to keep, new, and worth its bytes."""
        plan, rows = self._plan(stream), stream.window.rows
        offer = self._store.offer(plan.chain, rows, turns=plan.turns) if rows in plan.marks else None
        if offer is None:
            return
        has_room, dropped = self._store.make_room(offer)
        self._drop(dropped)
        if not has_room:
            return
        rows_piece, end_piece = self._store.pieces_for(offer)
        try:
            if offer.needs_rows:
                self._keeper.save_rows(stream.home, PieceId(rows_piece), offer.start_rows)
            self._keeper.save_end(stream.home, PieceId(end_piece))
        except LaneError as error:
            self._drop([*([rows_piece] if offer.needs_rows else []), end_piece, *self._store.withdraw(offer)])
            self._note(CacheFailed(stream.request.id, error))
            return
        self._store.add(offer, rows_piece, end_piece)

    def clear(self) -> None:
        """Forget everything."""
        self._drop(sorted(self._store.clear()))

    def _plan(self, stream: Stream) -> PromptPlan:
        if stream.plan is None:
            prompt = stream.request.prompt
            marks = planned_marks(
                prompt,
                start_ids=self._rules.start_ids,
                grid_rows=self._grid_rows,
                gap_rows=self._rules.gap_rows,
            )
            held = [mark for mark in marks if self._state_bytes(mark) <= self._rules.budget_bytes]
            stream.plan = PromptPlan(
                PromptChain(prompt, grid_rows=self._grid_rows),
                tuple(held),
                last_mark(len(prompt), grid_rows=self._grid_rows),
            )
        return stream.plan

    def _state_bytes(self, rows: int) -> int:
        return self._costs.rows(rows) + self._costs.end_bytes

    def _longest(self, stream: Stream) -> Entry | None:
        plan = self._plan(stream)
        return self._store.longest(plan.chain, most_rows=plan.most_rows)

    def _waits(self, stream: Stream, place: int, filling: Sequence[Stream]) -> bool:
        """Whether another stream is about to keep a state that this one could start from.

        Waiting costs nothing if the other one is at least as far as this one could be at once: it has no more
        rows left to there. Streams that have begun wait for nobody, the others only for those and for earlier
        ones: so there is always one that goes on, and when it ends the next one does.
        """
        if stream.window.rows:
            return False
        entry, plan = self._longest(stream), self._plan(stream)
        at_once_rows = 0 if entry is None else entry.rows
        for other_place, other in enumerate(filling):
            is_ahead = other.window.rows > 0 or other_place < place
            if other is stream or not is_ahead or other.window.rows < at_once_rows:
                continue
            theirs = self._plan(other)
            if any(
                other.window.rows < mark <= plan.most_rows
                and mark > at_once_rows
                and plan.chain.shares(theirs.chain, mark)
                for mark in theirs.marks
            ):
                return True
        return False

    def _resume(self, stream: Stream, entry: Entry) -> None:
        resumption = self._store.resumption(entry)
        rows_pieces = [PieceId(piece) for piece in resumption.rows_pieces]
        try:
            self._keeper.restore(stream.home, rows_pieces, PieceId(resumption.end_piece))
        except LaneError as error:
            self._drop(self._store.forget(entry))
            self._note(CacheFailed(stream.request.id, error))
            self._empty(stream)
            return
        self._store.count_hit(entry)
        self._plan(stream).turns = entry.turns + 1
        stream.window.rows = stream.stats.cached_tokens = resumption.rows
        stream.tell(Progress.FILLING)

    def _empty(self, stream: Stream) -> None:
        """Undo half a restore; a session that cannot be emptied ends its stream."""
        try:
            self._backend.release(stream.home)
        except LaneError as error:
            stream.finish(error)

    def _drop(self, pieces: Iterable[int]) -> None:
        """Drop pieces; those that cannot be dropped now are tried again with the next ones."""
        waiting, self._undropped = [*self._undropped, *(PieceId(piece) for piece in pieces)], []
        for piece in waiting:
            try:
                self._keeper.drop(piece)
            except LaneError:
                self._undropped.append(piece)
