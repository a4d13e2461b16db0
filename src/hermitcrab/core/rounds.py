"""One round, top to bottom: choose, draft, plan, forward, accept, commit, settle.

A failed forward or a failed drafting ends every stream that was in it; a failed keep ends its own stream
only.
"""

from collections.abc import Sequence

from hermitcrab.clock import Clock
from hermitcrab.core.accept import kept_rows
from hermitcrab.core.api import StreamState, Tokens
from hermitcrab.core.backend import Backend, Facts, Verified, Window
from hermitcrab.core.drafts import Drafted, Drafts, Source
from hermitcrab.core.status import Totals
from hermitcrab.core.stops import StopRules, cut
from hermitcrab.core.stream import Stream
from hermitcrab.core.turns import choose
from hermitcrab.errors import LaneError
from hermitcrab.sampling.logprobs import TokenLogprobs


class Rounds:
    """Plays rounds for the streams it is given, and takes in a stream's first token."""

    def __init__(
        self, backend: Backend, drafts: Drafts, clock: Clock, totals: Totals, *, facts: Facts
    ) -> None:
        self._backend = backend
        self._drafts = drafts
        self._clock = clock
        self._totals = totals
        self._stream_limit = facts.stream_limit
        self._turns = 0

    def play(self, live: Sequence[Stream]) -> None:
        """Serve one round to as many live streams as it has rows for."""
        chosen = choose(live, stream_limit=self._stream_limit)
        planned = self._draft(chosen)
        if not planned:
            return
        windows = [_window(stream, drafted) for stream, drafted in planned]
        started_s = self._clock.now_s()
        verified = self._forward([stream for stream, _ in planned], windows)
        if verified is None:
            return
        for (stream, drafted), window, result in zip(planned, windows, verified, strict=True):
            kept = kept_rows(window.tokens, result.drawn)
            taken = self._commit(stream, result.drawn[:kept], result.logprobs[:kept])
            self._count(stream, drafted, accepted=min(kept - 1, taken))
            self._settle(stream, kept)
            self._drafts.learn(
                stream,
                drafted,
                landed=kept - 1,
                new_tokens=result.drawn[:taken],
                is_alone=len(live) == 1,
            )
        self._drafts.note_round(windows, seconds=self._clock.now_s() - started_s)

    def begin(self, stream: Stream, first_token: int, logprobs: tuple[TokenLogprobs, ...] = ()) -> None:
        """Take in a filled stream's first token; the stream is live from here, unless this token ends it."""
        stream.state = StreamState.LIVE
        stream.window.pending = first_token
        stream.stats.first_token_s = self._clock.now_s()
        # its first token was a turn: new replies that keep coming must not pass those that run
        self._turn(stream)
        self._commit(stream, (first_token,), logprobs)
        self._drafts.open(stream)

    def _draft(self, chosen: Sequence[Stream]) -> list[tuple[Stream, Drafted]]:
        """Each stream with its drafts, but for those that a failed head has ended."""
        drafted = self._drafts.make(chosen)
        return [pair for pair in zip(chosen, drafted, strict=True) if not pair[0].is_finished]

    def _forward(self, chosen: Sequence[Stream], windows: Sequence[Window]) -> list[Verified] | None:
        """Run all windows at once; None if that failed and ended every stream in it."""
        self._totals.rounds += 1
        for stream in chosen:
            stream.stats.rounds += 1
            self._turn(stream)
        try:
            return self._backend.verify(windows)
        except LaneError as error:
            for stream in chosen:
                stream.finish(error)
            return None

    def _turn(self, stream: Stream) -> None:
        self._turns += 1
        stream.stats.served_turn = self._turns

    def _commit(self, stream: Stream, tokens: tuple[int, ...], logprobs: tuple[TokenLogprobs, ...]) -> int:
        """Make tokens part of the reply up to the one that ends it; returns how many."""
        request, reply = stream.request, stream.reply
        rules = StopRules(stream.limits.max_new_tokens, request.eos_ids, request.stop_watch, stream.rules)
        try:
            end = cut(tokens, reply_tokens=len(reply.tokens), rules=rules)
        except Exception as error:  # noqa: BLE001 - watch and grammar are the server's; their fault is this stream's alone
            stream.finish(LaneError(f"the check for where the reply ends failed: {error}"))
            return 0
        reply.tokens.extend(tokens[: end.taken])
        self._totals.reply_tokens += end.taken
        if end.delivered:
            stream.outbox.append(Tokens(tokens[: end.delivered], logprobs[: end.delivered]))
        if end.reason is not None:
            stream.finish(end.reason)
        return end.taken

    def _count(self, stream: Stream, drafted: Drafted, *, accepted: int) -> None:
        if drafted.source is Source.FORCED:
            return
        count = len(drafted.tokens)
        stream.stats.drafted += count
        stream.stats.accepted += accepted
        self._totals.drafted += count
        self._totals.accepted += accepted
        if drafted.source is Source.COPY:
            self._totals.copied += count
            self._totals.copies_accepted += accepted

    def _settle(self, stream: Stream, kept: int) -> None:
        """Make the kept rows part of the session, unless the stream has ended."""
        if stream.is_finished:
            return
        try:
            self._backend.keep(stream.home, kept)
        except LaneError as error:
            stream.finish(error)
            return
        stream.window.rows += kept
        stream.window.pending = stream.reply.tokens[-1]


def _window(stream: Stream, drafted: Drafted) -> Window:
    return Window(
        slot=stream.home,
        position=stream.window.rows,
        tokens=(stream.window.pending, *drafted.tokens),
        sampling=stream.request.sampling,
        edits=stream.rules.edits(drafted.tokens),
        top_logprobs=stream.request.top_logprobs,
    )
