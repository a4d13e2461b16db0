"""One round, top to bottom: choose, plan, forward, accept, commit, settle, draft.

A failed forward or a failed drafting ends every stream that was in it; a failed keep ends its own stream
only.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from hermitcrab.clock import Clock
from hermitcrab.core.accept import kept_rows
from hermitcrab.core.api import StreamState, Tokens
from hermitcrab.core.backend import Backend, DraftRequest, Facts, Verified, Window
from hermitcrab.core.slots import SlotTable
from hermitcrab.core.status import Totals
from hermitcrab.core.stops import StopRules, cut
from hermitcrab.core.stream import Stream, WindowState
from hermitcrab.core.turns import choose
from hermitcrab.core.windows import draft_room, exact_drafts, share_rows
from hermitcrab.errors import LaneError


@dataclass(frozen=True, slots=True)
class Settled:
    """Rows that have just become part of a session: the head has still to absorb them."""

    stream: Stream
    position: int
    next_tokens: tuple[int, ...]


class Rounds:
    """Plays rounds for the streams it is given, and takes in a stream's first token."""

    def __init__(
        self, backend: Backend, table: SlotTable, clock: Clock, totals: Totals, *, depth: int, facts: Facts
    ) -> None:
        self._backend = backend
        self._table = table
        self._clock = clock
        self._totals = totals
        self._depth = depth
        self._row_limit = facts.row_limit
        self._stream_limit = facts.stream_limit
        self._widths = facts.exact_widths
        self._turns = 0

    def play(self, live: Sequence[Stream]) -> None:
        """Serve one round to as many live streams as it has rows for."""
        chosen = choose(live, stream_limit=self._stream_limit)
        windows = self._plan(chosen)
        verified = self._forward(chosen, windows)
        if verified is None:
            return
        settled = []
        for stream, window, result in zip(chosen, windows, verified, strict=True):
            kept = kept_rows(window.tokens, result.drawn)
            taken = self._commit(stream, result.drawn[:kept])
            self._count(stream, drafted=len(window.tokens) - 1, accepted=min(kept - 1, taken))
            if self._settle(stream, kept):
                settled.append(Settled(stream, window.position, result.drawn[:kept]))
        self._hold_drafts(settled)

    def begin(self, stream: Stream, first_token: int) -> None:
        """Take in a filled stream's first token; the stream is live from here, unless this token ends it."""
        stream.state = StreamState.LIVE
        stream.window.pending = first_token
        stream.stats.first_token_s = self._clock.now_s()
        self._commit(stream, (first_token,))
        if not stream.is_finished:
            self._hold_drafts([Settled(stream, stream.window.rows - 1, (first_token,))])

    def _plan(self, chosen: Sequence[Stream]) -> list[Window]:
        granted = share_rows(
            [min(len(stream.window.drafts), self._draft_room(stream)) for stream in chosen],
            row_limit=self._row_limit,
        )
        return [
            Window(
                slot=stream.home,
                position=stream.window.rows,
                tokens=(stream.window.pending, *stream.window.drafts[: exact_drafts(drafts, self._widths)]),
                sampling=stream.request.sampling,
            )
            for stream, drafts in zip(chosen, granted, strict=True)
        ]

    def _forward(self, chosen: Sequence[Stream], windows: Sequence[Window]) -> list[Verified] | None:
        """Run all windows at once; None if that failed and ended every stream in it."""
        self._totals.rounds += 1
        for stream in chosen:
            stream.stats.rounds += 1
            self._turns += 1
            stream.stats.served_turn = self._turns
        try:
            return self._backend.verify(windows)
        except LaneError as error:
            for stream in chosen:
                stream.finish(error)
            return None

    def _commit(self, stream: Stream, tokens: tuple[int, ...]) -> int:
        """Make tokens part of the reply up to the one that ends it; returns how many."""
        request, reply = stream.request, stream.reply
        rules = StopRules(stream.limits.max_new_tokens, request.eos_ids, request.stop_watch)
        try:
            end = cut(tokens, reply_tokens=len(reply.tokens), rules=rules)
        except Exception as error:  # noqa: BLE001 - the stop watch is the server's; its fault is this stream's alone
            stream.finish(LaneError(f"the check for stop strings failed: {error}"))
            return 0
        reply.tokens.extend(tokens[: end.taken])
        self._totals.reply_tokens += end.taken
        if end.delivered:
            stream.outbox.append(Tokens(tokens[: end.delivered]))
        if end.reason is not None:
            stream.finish(end.reason)
        return end.taken

    def _count(self, stream: Stream, *, drafted: int, accepted: int) -> None:
        stream.stats.drafted += drafted
        stream.stats.accepted += accepted
        self._totals.drafted += drafted
        self._totals.accepted += accepted

    def _settle(self, stream: Stream, kept: int) -> bool:
        """Make the kept rows part of the session; False if the stream has ended."""
        if stream.is_finished:
            return False
        try:
            self._backend.keep(stream.home, kept)
        except LaneError as error:
            stream.finish(error)
            return False
        stream.window = WindowState(rows=stream.window.rows + kept, pending=stream.reply.tokens[-1])
        return True

    def _hold_drafts(self, settled: Sequence[Settled]) -> None:
        if not settled or self._depth == 0:
            return
        try:
            drafts = self._backend.draft(
                [
                    DraftRequest(
                        slot=rows.stream.home,
                        position=rows.position,
                        next_tokens=rows.next_tokens,
                        depth=self._draft_room(rows.stream),
                        sampling=rows.stream.request.sampling,
                    )
                    for rows in settled
                ]
            )
        except LaneError as error:
            for rows in settled:
                rows.stream.finish(error)
            return
        for rows, held in zip(settled, drafts, strict=True):
            rows.stream.window.drafts = held

    def _draft_room(self, stream: Stream) -> int:
        return draft_room(
            depth=self._depth,
            remaining_tokens=stream.remaining_tokens,
            rows=stream.window.rows,
            capacity_rows=self._table.capacity(stream.home),
        )
