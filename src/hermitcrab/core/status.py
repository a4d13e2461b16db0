"""Counters since the start, the token rate, and the snapshot that status pages show."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from hermitcrab.cache.store import CacheStatus
from hermitcrab.core.api import FinishReason, MoveStatus, SessionStatus, Status, StreamStatus
from hermitcrab.core.backend import SlotId
from hermitcrab.core.load_check import LoadCheck
from hermitcrab.core.slots import SlotTable
from hermitcrab.core.stream import Stream
from hermitcrab.core.timings import TimingTallies

RATE_SPAN_S = 2.0

# more than happen between two looks of a page that asks a few times a second
RECENT_MOVES = 32


@dataclass(frozen=True, slots=True)
class MadeMove:
    """A move as it is kept: `at_s` is the clock's time."""

    number: int
    request_id: str
    source: SlotId
    target: SlotId
    tokens: int
    at_s: float


@dataclass(slots=True)
class Totals:
    """Counts since the start; the lane engine and the host loop add to them."""

    requests_finished: int = 0
    requests_failed: int = 0
    requests_cancelled: int = 0
    prompt_tokens: int = 0
    reply_tokens: int = 0
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    copied: int = 0
    copies_accepted: int = 0
    moves: int = 0
    pauses: int = 0
    handed_to_lone: int = 0
    handed_to_shared: int = 0
    ended_by_length: int = 0
    recent_moves: deque[MadeMove] = field(default_factory=lambda: deque(maxlen=RECENT_MOVES))
    timings: TimingTallies = field(default_factory=TimingTallies)

    def count_move(self, stream: Stream, *, source: SlotId, target: SlotId, now_s: float) -> None:
        """A stream has moved."""
        self.moves += 1
        self.recent_moves.append(
            MadeMove(self.moves, stream.request.id, source, target, stream.window.rows, now_s)
        )

    def count_end(self, stream: Stream, *, now_s: float) -> None:
        """A stream has had its end, and its session is back."""
        match stream.reply.outcome:
            case FinishReason.CANCELLED:
                self.requests_cancelled += 1
            case FinishReason() as reason:
                self.requests_finished += 1
                self.ended_by_length += reason is FinishReason.LENGTH
            case _:
                self.requests_failed += 1
        self._count_times(stream, now_s=now_s)

    def _count_times(self, stream: Stream, *, now_s: float) -> None:
        stats, later_tokens = stream.stats, len(stream.reply.tokens) - 1
        if stats.admitted_s is not None:
            self.timings.queue.note(stats.admitted_s - stats.submitted_s)
        if stats.first_token_s is not None:
            self.timings.first_token.note(stats.first_token_s - stats.submitted_s)
            if later_tokens > 0:
                self.timings.token.note((now_s - stats.first_token_s) / later_tokens)
        paused_s = stream.paused_s(now_s=now_s)
        if paused_s > 0.0:
            self.timings.pause.note(paused_s)


class TokenRate:
    """Reply tokens a second over the last two seconds."""

    def __init__(self) -> None:
        self._gains: deque[tuple[float, int]] = deque()
        self._noted_tokens = 0

    def note(self, *, now_s: float, reply_tokens: int) -> None:
        """Tell the count of reply tokens so far."""
        if reply_tokens > self._noted_tokens:
            self._gains.append((now_s, reply_tokens - self._noted_tokens))
            self._noted_tokens = reply_tokens

    def per_s(self, *, now_s: float) -> float:
        """The rate now."""
        while self._gains and self._gains[0][0] <= now_s - RATE_SPAN_S:
            self._gains.popleft()
        return sum(gain for _, gain in self._gains) / RATE_SPAN_S


def snapshot(
    streams: Iterable[Stream],
    *,
    table: SlotTable,
    totals: Totals,
    tokens_per_s: float,
    now_s: float,
    is_draining: bool,
    load_check: LoadCheck,
    cache: CacheStatus,
) -> Status:
    """The server's insides now; `streams` are the admitted ones, then the queue."""
    listed = list(streams)
    return Status(
        sessions=_sessions(listed, table),
        streams=tuple(_stream(stream, now_s) for stream in listed),
        tokens_per_s=tokens_per_s,
        tick_age_s=0.0,
        is_draining=is_draining,
        requests_finished=totals.requests_finished,
        requests_failed=totals.requests_failed,
        requests_cancelled=totals.requests_cancelled,
        prompt_tokens=totals.prompt_tokens,
        reply_tokens=totals.reply_tokens,
        rounds=totals.rounds,
        drafted=totals.drafted,
        accepted=totals.accepted,
        copied=totals.copied,
        copies_accepted=totals.copies_accepted,
        moves=totals.moves,
        pauses=totals.pauses,
        handed_to_lone=totals.handed_to_lone,
        handed_to_shared=totals.handed_to_shared,
        load_check=load_check,
        ended_by_length=totals.ended_by_length,
        recent_moves=tuple(_move(move, now_s) for move in totals.recent_moves),
        timings=totals.timings.timings(),
        cache=cache,
    )


def _sessions(streams: Sequence[Stream], table: SlotTable) -> tuple[SessionStatus, ...]:
    rows = {stream.slot: stream.window.rows for stream in streams}
    return tuple(
        SessionStatus(
            slot=session.slot,
            capacity_rows=session.rows,
            used_rows=rows.get(session.slot, 0),
            request_id=table.holder(session.slot),
        )
        for session in table.sessions
    )


def _stream(stream: Stream, now_s: float) -> StreamStatus:
    return StreamStatus(
        request_id=stream.request.id,
        state=stream.state,
        slot=stream.slot,
        prompt_tokens=stream.limits.prompt_tokens,
        filled_rows=min(stream.window.rows, stream.limits.prompt_tokens),
        reply_tokens=len(stream.reply.tokens),
        moves=stream.stats.moves,
        age_s=now_s - stream.stats.submitted_s,
        priority=stream.request.priority,
    )


def _move(move: MadeMove, now_s: float) -> MoveStatus:
    return MoveStatus(
        number=move.number,
        request_id=move.request_id,
        source_slot=move.source,
        target_slot=move.target,
        tokens=move.tokens,
        age_s=now_s - move.at_s,
    )
