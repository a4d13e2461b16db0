"""The lane engine: admitted streams, their sessions, and one piece of work at a time.

A release can end another stream (it lets a paused one try to move, and the move can fail), so `sweep`
releases finished streams until none is left. Everything runs on the engine thread.

Why nothing waits for ever. Each wait is for something that another stream's end brings, and some stream runs:

* A live stream gets its turn: whoever is passed over is served before all that were (turns.py).
* A prompt fills: every other pass is the oldest one's. One that waits for another's state to be kept waits
  for a prompt that has begun or is older (kept.py), so the oldest that has begun waits for none.
* A paused stream waits for a larger session, and the largest one's stream never pauses (slots.py).
* A request waits for a session that holds its first part. Such a session is held by a stream that ends, or
  claimed by a paused one; what passes the first in the queue is bounded, by number and by age (admission.py).

So while streams are admitted, one of them runs, and each step adds a row or a token or an end. What remains
is a backend without memory for a free session, or one that cannot empty any: steps without work are counted,
and the youngest paused stream, or who waits in the queue, ends with an error (`MOST_STALLS`).
After every act of random schedules tests/core/test_schedules.py asserts that each step brings somebody
forward, that turns come round, and that waits point upward.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from hermitcrab.cache.store import NO_CACHE, CacheStatus
from hermitcrab.clock import Clock
from hermitcrab.core.admission import Refuse, Sizing, Start, Waiting, next_start
from hermitcrab.core.api import FinishReason, Progress
from hermitcrab.core.backend import Backend, Facts, SlotId
from hermitcrab.core.drafts import Drafts, draft_limits
from hermitcrab.core.fill import DecodeShare, Prompts
from hermitcrab.core.guard import GuardedBackend
from hermitcrab.core.kept import CacheRules, PromptCache
from hermitcrab.core.lone import LoneDriver
from hermitcrab.core.rounds import Rounds
from hermitcrab.core.slots import Full, Move, Pause, Session, SlotTable, Standing, Stay, is_wanted, room
from hermitcrab.core.status import Totals
from hermitcrab.core.stream import Stream
from hermitcrab.core.trail import (
    Decision,
    Ended,
    LogTracer,
    Moved,
    ReleaseFailed,
    Started,
    Tracer,
    Waits,
    tell,
)
from hermitcrab.errors import HermitcrabError, LaneError, LaneMemory, SessionFull, SettingError

# steps in which nothing ran and nothing that waits could go on, before it is given up: the host takes such
# steps every few hundredths of a second, so memory that somebody else frees within seconds still counts
MOST_STALLS = 100


@dataclass(frozen=True, slots=True)
class LaneRules:
    """How the lanes place, draft and share.

    `grow_tokens` None is the unset path: streams take the first free session and never move. `draft_depth` is
    the most drafts of a window: None means as many as there can be, 0 none. How many a window gets follows
    from measured costs; with `drafts_always`, for checks, it gets the head's deepest chain. `decode_share` is
    the part of the time rounds get while prompts fill. `context_tokens` caps prompt and reply together, where
    the largest session could hold more. `cache` is what may be kept of prompts, where the backend can.

    Raises SettingError for a value outside its range.
    """

    grow_tokens: int | None = None
    draft_depth: int | None = None
    decode_share: float = 0.25
    context_tokens: int | None = None
    drafts_always: bool = False
    cache: CacheRules = field(default_factory=CacheRules)

    def __post_init__(self) -> None:
        if self.grow_tokens is not None and self.grow_tokens < 1:
            raise SettingError(f"--slot-grow must be at least 1 token, not {self.grow_tokens}.")
        if self.draft_depth is not None and self.draft_depth < 0:
            raise SettingError(f"the draft depth must be 0 (off) or more, not {self.draft_depth}.")
        if not 0.0 <= self.decode_share < 1.0:
            raise SettingError(f"--decode-share must be at least 0 and below 1, not {self.decode_share}.")


class LaneEngine:
    """Owns the admitted streams and the slot table; each `step` is one round or one prompt pass."""

    def __init__(
        self,
        backend: Backend,
        rules: LaneRules,
        clock: Clock,
        tracers: Sequence[Tracer] = (LogTracer(),),
    ) -> None:
        self._backend = GuardedBackend(backend)
        facts = self._backend.facts()
        limits = draft_limits(facts, draft_depth=rules.draft_depth, drafts_always=rules.drafts_always)
        self.table = SlotTable(facts.session_rows)
        self.totals = Totals()
        self.sizing = Sizing(window_rows=1 + limits.most_drafts, grow_tokens=rules.grow_tokens)
        self._clock = clock
        self._tracers = tuple(tracers)
        self._streams: list[Stream] = []
        self._stalls = 0
        self._share = DecodeShare(rules.decode_share)
        drafts = Drafts(self._backend, self.table, clock, facts=facts, limits=limits)
        self._rounds = Rounds(self._backend, drafts, clock, self.totals, facts=facts)
        self._cache = self._open_cache(facts, rules.cache)
        self._lone = LoneDriver(self.table, self.sizing, self.totals)
        self._prompts = Prompts(self._backend, facts, self._rounds, self.totals, cache=self._cache)

    @property
    def streams(self) -> tuple[Stream, ...]:
        """Admitted streams that have not given their session back, oldest first."""
        return tuple(self._streams)

    @property
    def cache_status(self) -> CacheStatus:
        """What is kept of prompts."""
        return NO_CACHE if self._cache is None else self._cache.status

    def standing(self, stream: Stream) -> Standing:
        """The stream as `room` sees it."""
        return Standing(
            rows=stream.window.rows,
            remaining_tokens=stream.remaining_tokens,
            end_rows=stream.limits.end_rows,
            capacity_rows=self.table.capacity(stream.home),
        )

    def next_start(self, waiting: Sequence[Waiting]) -> Start | Refuse | None:
        """Which request of the queue starts next; no session that a paused stream waits for is given away."""
        return next_start(waiting, free=self._unclaimed(), sessions=self.table.sessions, sizing=self.sizing)

    def add(self, stream: Stream, slot: SlotId) -> None:
        """Admit a stream into a free slot; its prompt fills in the steps that follow."""
        self.table.take(slot, stream.request.id)
        stream.enter(slot, now_s=self._clock.now_s())
        self._streams.append(stream)
        self.note(Started(stream.request.id, slot))

    def step(self) -> bool:
        """Make room, then run one round or one prompt pass; False if there was nothing to run.

        A session that is free at last counts as work: somebody may wait for it.
        """
        self._lone.hand_back()
        has_emptied = self._empty_unclean()
        self._make_room()
        self.sweep()
        live = [stream for stream in self._streams if stream.is_live]
        filling = [stream for stream in self._streams if stream.is_filling]
        if not live and not filling:
            self._count_stall()
            return has_emptied
        self._stalls = 0
        started_s = self._clock.now_s()
        if self._share.is_round_due(has_live=bool(live), has_filling=bool(filling)):
            self._rounds.play(live)
            self._share.count_round(self._clock.now_s() - started_s)
        else:
            self._prompts.run_pass(filling)
            self._share.count_pass(self._clock.now_s() - started_s)
        self.sweep()
        return True

    def lone_step(self) -> bool:
        """Run a round of the only stream there is; False, with nothing done, if a shared step has to decide.

        For when no request waits: whoever waits may have to be admitted first.
        """
        stream = self._lone.take(self._streams)
        if stream is None:
            return False
        self._stalls = 0
        started_s = self._clock.now_s()
        self._rounds.play((stream,))
        # as in shared steps, the last round counts when a prompt comes
        self._share.reset()
        self._share.count_round(self._clock.now_s() - started_s)
        if stream.is_finished:
            self.sweep()
        return True

    def discard(self, stream: Stream, outcome: FinishReason | HermitcrabError) -> None:
        """End an admitted stream wherever it is, and give its session back."""
        stream.finish(outcome)
        self.sweep()

    def reset(self) -> None:
        """Forget every stream and empty every session, whatever state they are in."""
        for stream in self._streams:
            stream.slot = None
        self._streams.clear()
        for slot in self.table.held:
            self.table.give_back(slot)
            self._empty(slot)
        if self._cache is not None:
            self._cache.clear()

    def sweep(self) -> None:
        """Release finished streams until none is left; none outlives its job in the list."""
        while finished := [stream for stream in self._streams if stream.is_finished]:
            for stream in finished:
                self._retire(stream)
            self._resume_paused()

    def _open_cache(self, facts: Facts, rules: CacheRules) -> PromptCache | None:
        keeper = self._backend.keeper() if rules.budget_bytes else None
        if keeper is None or facts.piece_costs is None:
            return None
        return PromptCache(
            self._backend,
            keeper,
            facts.piece_costs,
            rules,
            grid_rows=facts.prompt_grid_rows,
            note=self.note,
        )

    def _retire(self, stream: Stream) -> None:
        slot = stream.home
        self._streams.remove(stream)
        stream.slot = None
        self.table.give_back(slot)
        self._empty(slot)
        assert stream.reply.outcome is not None, "a stream was retired before its end"
        self.note(Ended(stream.request.id, stream.reply.outcome, len(stream.reply.tokens)))

    def _make_room(self) -> None:
        if self.sizing.grow_tokens is None:
            return
        self._resume_paused()
        for stream in [stream for stream in self._streams if stream.is_live]:
            self._find_room(stream, grow_tokens=self.sizing.grow_tokens, free=self._unclaimed())

    def _resume_paused(self) -> None:
        """Let paused streams move, oldest first; again after each that did, for it freed a session."""
        grow_tokens = self.sizing.grow_tokens
        if grow_tokens is None:
            return
        while any(
            self._find_room(stream, grow_tokens=grow_tokens, free=self.table.free())
            for stream in [stream for stream in self._streams if stream.is_paused]
        ):
            pass

    def _find_room(self, stream: Stream, *, grow_tokens: int, free: list[Session]) -> bool:
        """Do what `room` says; True if the stream moved."""
        decision = room(
            self.standing(stream),
            free=free,
            sessions=self.table.sessions,
            window_rows=self.sizing.window_rows,
            grow_tokens=grow_tokens,
        )
        match decision:
            case Stay():
                return False
            case Move(slot):
                return self._move(stream, slot)
            case Pause():
                self._pause(stream)
                return False
            case Full():
                stream.finish(self._session_full(stream))
                return False

    def _move(self, stream: Stream, target: SlotId) -> bool:
        source = stream.home
        try:
            self._backend.move(source, target)
        except LaneMemory:
            self._pause(stream)
            return False
        except LaneError as error:
            stream.finish(error)
            self._empty(target)
            return False
        self.table.take(target, stream.request.id)
        stream.slot = target
        stream.stats.moves += 1
        self.totals.count_move(stream, source=source, target=target, now_s=self._clock.now_s())
        stream.tell(Progress.MOVED)
        if stream.is_paused:
            stream.resume(now_s=self._clock.now_s())
        self.table.give_back(source)
        self._empty(source)
        self.note(
            Moved(
                stream.request.id,
                stream.window.rows,
                source_rows=self.table.capacity(source),
                target_rows=self.table.capacity(target),
            )
        )
        return True

    def _pause(self, stream: Stream) -> None:
        if stream.is_paused:
            return
        stream.pause(now_s=self._clock.now_s())
        self.totals.pauses += 1
        self.note(Waits(stream.request.id, stream.window.rows, self.table.capacity(stream.home)))

    def _session_full(self, stream: Stream) -> SessionFull:
        return SessionFull(
            f"the reply has outgrown its session of {self.table.capacity(stream.home)} tokens at "
            f"{stream.window.rows}, and no larger session exists"
        )

    def _count_stall(self) -> None:
        """Give up the youngest paused stream when for long nothing has run whose end could let it move.

        Only a backend that has no memory for a free session, or cannot empty one, brings this about.
        """
        paused = [stream for stream in self._streams if stream.is_paused]
        self._stalls = self._stalls + 1 if paused else 0
        if self._stalls == MOST_STALLS:
            self._stalls = 0
            self.discard(
                paused[-1],
                LaneMemory(
                    "the reply needs a larger session, and there was no memory to move it into a free one"
                ),
            )

    def _empty(self, slot: SlotId) -> None:
        """Empty a session that nobody holds; one that cannot be emptied is kept from everyone."""
        try:
            self._backend.release(slot)
        except LaneError as error:
            self.table.mark_unclean(slot)
            self.note(ReleaseFailed(slot, error))

    def _empty_unclean(self) -> bool:
        """Try again where a release has failed; True if it did not fail everywhere again."""
        unclean = self.table.unclean
        for slot in unclean:
            self.table.mark_clean(slot)
            self._empty(slot)
        return self.table.unclean != unclean

    def _unclaimed(self) -> list[Session]:
        """Free sessions that no paused stream waits for."""
        waits = [self.standing(stream) for stream in self._streams if stream.is_paused]
        return [
            session
            for session in self.table.free()
            if not any(
                is_wanted(session, standing, window_rows=self.sizing.window_rows) for standing in waits
            )
        ]

    def note(self, decision: Decision) -> None:
        """Hand a decision to the tracers; never raises."""
        tell(self._tracers, decision)
