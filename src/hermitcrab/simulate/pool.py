"""An ideal paged pool at the same memory, a model of its own: how little a request waits for memory at best.

It is no bound for whole replies: it lets in all that fits, and with more at once each round takes longer.

Idealised in its favour: a page is one row, so nothing is lost to rounding or fragments; pages cost no time to
find, and rounds and passes take as long as with sessions; a request may pass any that does not fit, for ever.

A request is admitted when its state, its prompt and one row more fit beside what is held now; its reply takes
a row a token. When a round has not enough rows, the youngest request gives all its memory back and waits in
the queue by its arrival. When it is admitted again, its prompt and its reply so far are read anew, as paged
servers do (recompute); a server that does so cannot promise the same bits.
"""

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil

from hermitcrab.core.fill import DecodeShare
from hermitcrab.simulate.costs import Costs
from hermitcrab.simulate.lanes import PASS_ROWS
from hermitcrab.simulate.load import Arrival
from hermitcrab.simulate.outcome import Outcome, Served


@dataclass(slots=True)
class _Guest:
    """A request in the pool or before it: rows held, rows still to be read, reply tokens made."""

    index: int
    arrival: Arrival
    reply_tokens: int
    since_s: float
    rows: int = 0
    unread_rows: int = 0
    made_tokens: int = 0
    waited_s: float = 0.0
    first_token_s: float | None = None
    evictions: int = 0
    order: int = 0

    @property
    def admission_rows(self) -> int:
        """Rows to start, or to start again: all but the token drawn last, and one more."""
        return self.arrival.prompt_tokens + max(0, self.made_tokens - 1) + 1


@dataclass(slots=True)
class _Totals:
    """Counts over the whole load."""

    most_streams: int = 0
    recomputed_rows: int = 0
    refused: int = 0
    served: list[Served] = field(default_factory=list)


class PagedPool:
    """One load on one pool."""

    def __init__(
        self,
        arrivals: Sequence[Arrival],
        costs: Costs,
        *,
        memory_bytes: int,
        context_tokens: int,
        stream_limit: int,
        decode_share: float,
    ) -> None:
        self._arrivals = arrivals
        self._costs = costs
        self._memory_bytes = memory_bytes
        self._context_tokens = context_tokens
        self._stream_limit = stream_limit
        self._share = DecodeShare(decode_share)
        self._now_s = 0.0
        self._next = 0
        self._passes = 0
        self._admissions = 0
        self._waiting: list[_Guest] = []
        self._guests: list[_Guest] = []
        self._totals = _Totals()

    def run(self, name: str) -> Outcome:
        """Serve the whole load."""
        while True:
            self._arrive()
            self._admit()
            live = [guest for guest in self._guests if not guest.unread_rows]
            filling = [guest for guest in self._guests if guest.unread_rows]
            if not self._guests:
                assert not self._waiting, "a request that the empty pool does not hold was let in"
                if self._next == len(self._arrivals):
                    break
                self._now_s = max(self._now_s, self._arrivals[self._next].arrival_s)
            elif self._share.is_round_due(has_live=bool(live), has_filling=bool(filling)):
                self._round(live, is_filling=bool(filling))
            else:
                self._pass(filling)
        totals = self._totals
        return Outcome(
            name=name,
            sessions="one pool, a row a page",
            memory_bytes=self._memory_bytes,
            served=tuple(totals.served),
            refused=totals.refused,
            most_streams=totals.most_streams,
            recomputed_rows=totals.recomputed_rows,
        )

    def _arrive(self) -> None:
        while self._next < len(self._arrivals) and self._arrivals[self._next].arrival_s <= self._now_s:
            arrival = self._arrivals[self._next]
            self._next += 1
            room_tokens = self._context_tokens - arrival.prompt_tokens
            if room_tokens < 1:
                self._totals.refused += 1
                continue
            reply_tokens = min(arrival.reply_tokens, room_tokens, arrival.max_tokens or room_tokens)
            self._waiting.append(_Guest(self._next, arrival, reply_tokens, arrival.arrival_s))

    def _admit(self) -> None:
        for guest in list(self._waiting):
            if len(self._guests) == self._stream_limit:
                return
            if self._costs.bytes_of(guest.admission_rows) > self._free_bytes():
                continue
            self._waiting.remove(guest)
            self._admissions += 1
            guest.order = self._admissions
            guest.waited_s += self._now_s - guest.since_s
            guest.rows = guest.admission_rows
            guest.unread_rows = guest.admission_rows - 1
            if guest.made_tokens:
                self._totals.recomputed_rows += guest.unread_rows
            self._guests.append(guest)
            self._totals.most_streams = max(self._totals.most_streams, len(self._guests))

    def _free_bytes(self) -> int:
        return self._memory_bytes - sum(self._costs.bytes_of(guest.rows) for guest in self._guests)

    def _pass(self, filling: Sequence[_Guest]) -> None:
        """One pass of a prompt: as in the lanes, the shortest rest and the oldest prompt in turn."""
        guest = filling[0] if self._passes % 2 else min(filling, key=lambda guest: guest.unread_rows)
        self._passes += 1
        rows = min(PASS_ROWS, guest.unread_rows)
        seconds = rows * self._costs.prompt_row_ms / 1000
        self._now_s += seconds
        self._share.count_pass(seconds)
        guest.unread_rows -= rows
        if guest.unread_rows:
            return
        if guest.first_token_s is None:
            guest.first_token_s = self._now_s
            guest.made_tokens = 1
        if guest.made_tokens >= guest.reply_tokens:
            self._end(guest)

    def _round(self, live: list[_Guest], *, is_filling: bool) -> None:
        """As many rounds as nothing changes in, at least one."""
        live = self._with_room(live)
        if not live:
            return
        token_s = self._costs.token_ms(len(live)) / 1000
        rounds = 1 if is_filling else self._leap(live, token_s)
        self._now_s += rounds * token_s
        self._share.count_round(token_s)
        for guest in live:
            guest.rows += rounds
            guest.made_tokens += rounds
        for guest in live:
            if guest.made_tokens >= guest.reply_tokens:
                self._end(guest)

    def _with_room(self, live: list[_Guest]) -> list[_Guest]:
        """The live requests that a row more is free for, after the youngest have given theirs back."""
        while self._free_bytes() < len(live) * self._costs.row_bytes:
            youngest = self._guests.pop()
            youngest.rows = youngest.unread_rows = 0
            youngest.evictions += 1
            youngest.since_s = self._now_s
            insort(self._waiting, youngest, key=lambda guest: guest.index)
            live = [guest for guest in live if guest is not youngest]
        return live

    def _leap(self, live: Sequence[_Guest], token_s: float) -> int:
        most = min(guest.reply_tokens - guest.made_tokens for guest in live)
        most = min(most, self._free_bytes() // (len(live) * self._costs.row_bytes))
        if self._next < len(self._arrivals):
            left_s = self._arrivals[self._next].arrival_s - self._now_s
            most = min(most, ceil(left_s / token_s))
        return max(1, most)

    def _end(self, guest: _Guest) -> None:
        self._guests.remove(guest)
        assert guest.first_token_s is not None, "a reply ended before its first token"
        arrival_s = guest.arrival.arrival_s
        self._totals.served.append(
            Served(
                arrival_s=arrival_s,
                waited_s=guest.waited_s,
                first_token_s=guest.first_token_s - arrival_s,
                total_s=self._now_s - arrival_s,
                reply_tokens=guest.reply_tokens,
                interruptions=guest.evictions,
            )
        )


def simulate_pool(
    arrivals: Sequence[Arrival],
    costs: Costs,
    *,
    memory_bytes: int,
    context_tokens: int,
    stream_limit: int,
    decode_share: float,
    name: str,
) -> Outcome:
    """The load on an ideal pool of so many bytes, with at most `stream_limit` requests in it."""
    pool = PagedPool(
        arrivals,
        costs,
        memory_bytes=memory_bytes,
        context_tokens=context_tokens,
        stream_limit=stream_limit,
        decode_share=decode_share,
    )
    return pool.run(name)
