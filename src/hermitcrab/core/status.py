"""Counters since the start, the token rate, and the snapshot that status pages show."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hermitcrab.core.api import SessionStatus, Status, StreamStatus
from hermitcrab.core.load_check import LoadCheck
from hermitcrab.core.slots import SlotTable
from hermitcrab.core.stream import Stream

RATE_SPAN_S = 2.0


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
    moves: int = 0
    pauses: int = 0


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
        moves=totals.moves,
        pauses=totals.pauses,
        load_check=load_check,
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
    )
