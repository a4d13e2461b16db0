"""The real lanes on a load: the host loop of the server, on a backend that computes nothing and takes time.

Rounds in which nothing can change but that each reply grows by one token are run in one leap: the backend
says that it has drafted so many tokens, all of which land, and takes the time of so many rounds. A leap ends
where a reply does, where a session runs out, or where a request arrives, and there is none while a prompt is
read. So times are those of single rounds, to the last one; only moves come a few tokens early.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil

from hermitcrab.clock import ScriptedClock
from hermitcrab.core.api import Event, Failed, Finished, Progress, Progressed, Request, Status
from hermitcrab.core.backend import DraftRequest, Facts, SlotId, Verified, Window
from hermitcrab.core.lanes import LaneRules
from hermitcrab.core.loop import HostLoop
from hermitcrab.core.slot_list import MARGIN_ROWS
from hermitcrab.errors import ContextLengthExceeded
from hermitcrab.memory.budget import spell
from hermitcrab.sampling.edits import Edits
from hermitcrab.sampling.logprobs import TokenLogprobs
from hermitcrab.sampling.params import Sampling
from hermitcrab.simulate.costs import Costs
from hermitcrab.simulate.load import Arrival
from hermitcrab.simulate.outcome import Outcome, Served

# a window of the server, which its sessions leave room for
WINDOW_ROWS = 16

# the longest leap: a session is left so many tokens early, less a window, which must stay small beside it
LEAP_TOKENS = 32
_LEAST_LEAP_ROWS = 4

# rows of a prompt pass, as where the default costs of a prompt row were measured
PASS_ROWS = 2048

GRAINS = (1, 2, 4, 8, 16)

_END, _WORD = 0, 1
_GREEDY = Sampling()


@dataclass(frozen=True, slots=True)
class House:
    """The sessions to try, slot 0 first, and how requests get them; `grow_tokens` None: equal sessions."""

    session_tokens: tuple[int, ...]
    grow_tokens: int | None
    decode_share: float = 0.25

    @property
    def context_tokens(self) -> int:
        """The whole window."""
        return self.session_tokens[0]

    def memory_bytes(self, costs: Costs) -> int:
        """What the sessions take."""
        return sum(costs.bytes_of(tokens + MARGIN_ROWS) for tokens in self.session_tokens)

    @property
    def words(self) -> str:
        """The sessions as an operator writes them."""
        return spell(self.session_tokens)


@dataclass(frozen=True, slots=True)
class Grain:
    """So many tokens are counted as one, and take the time of so many: one of `GRAINS`, 1 is exact.

    A reply's length may be off by half a grain; a request that arrives may wait for a grain of rounds.
    """

    tokens: int = 1

    def __post_init__(self) -> None:
        assert self.tokens in GRAINS, f"a grain of {self.tokens} tokens does not divide a window"

    @property
    def leap_rows(self) -> int:
        """The longest leap."""
        return max(_LEAST_LEAP_ROWS, LEAP_TOKENS // self.tokens)

    def arrivals(self, arrivals: Sequence[Arrival]) -> tuple[Arrival, ...]:
        """A load in grains: prompts rounded up, replies to the nearest."""
        return tuple(
            Arrival(
                arrival.arrival_s,
                self.up(arrival.prompt_tokens),
                max(1, round(arrival.reply_tokens / self.tokens)),
                None if arrival.max_tokens is None else self.up(arrival.max_tokens),
            )
            for arrival in arrivals
        )

    def costs(self, costs: Costs) -> Costs:
        """What a grain costs."""
        rounds = tuple(replace(cost, ms=cost.ms * self.tokens) for cost in costs.rounds)
        return replace(
            costs,
            rounds=rounds,
            prompt_row_ms=costs.prompt_row_ms * self.tokens,
            move_row_ms=costs.move_row_ms * self.tokens,
        )

    def session_rows(self, tokens: int, *, leap_rows: int) -> int:
        """A session as large as the server's, when leaps stand in for its windows."""
        return (tokens + MARGIN_ROWS - WINDOW_ROWS) // self.tokens + leap_rows

    def up(self, tokens: int) -> int:
        """Grains that hold so many tokens."""
        return -(-tokens // self.tokens)


class TimedBackend:
    """Implements `Backend`: no tensors, no tokens but "more" and "end", only time on the clock."""

    def __init__(
        self,
        session_rows: Sequence[int],
        arrivals: Sequence[Arrival],
        costs: Costs,
        clock: ScriptedClock,
        *,
        leap_rows: int,
        pass_rows: int,
    ) -> None:
        self._facts = Facts(
            vocab_tokens=len(arrivals) + 2,
            session_rows=tuple(session_rows),
            row_limit=leap_rows * len(session_rows),
            window_rows=leap_rows,
            draft_depth=leap_rows - 1,
            backlog_rows=2 * leap_rows,
            prompt_grid_rows=pass_rows,
            prompt_pass_rows=pass_rows,
        )
        self._arrivals = arrivals
        self._costs = costs
        self._clock = clock
        self._rows: dict[SlotId, int] = {}
        # by slot, where the last token of its reply stands
        self._ends: dict[SlotId, int] = {}
        self.leap: Callable[[], int] = lambda: 1

    def facts(self) -> Facts:
        return self._facts

    def prefill(self, slot: SlotId, position: int, tokens: Sequence[int]) -> None:
        if position == 0:
            arrival = self._arrivals[tokens[0] - 2]
            self._ends[slot] = arrival.prompt_tokens + arrival.reply_tokens - 1
        self._rows[slot] = position + len(tokens)
        self._take(len(tokens) * self._costs.prompt_row_ms)

    def draw_first(self, slot: SlotId, position: int, sampling: Sampling, edits: Edits | None = None) -> int:
        return self._token(slot, position)

    def first_logprobs(self, slot: SlotId, token: int, top: int) -> TokenLogprobs:
        return TokenLogprobs(token, 0.0)

    def verify(self, windows: Sequence[Window]) -> list[Verified]:
        rounds = max(len(window.tokens) for window in windows)
        self._take(rounds * self._costs.token_ms(len(windows)))
        return [self._verify(window) for window in windows]

    def keep(self, slot: SlotId, rows: int) -> None:
        self._rows[slot] += rows

    def draft(self, requests: Sequence[DraftRequest]) -> list[tuple[int, ...]]:
        depth = min(self.leap() - 1, *(request.depth for request in requests))
        return [(_WORD,) * depth] * len(requests)

    def move(self, source: SlotId, target: SlotId) -> None:
        self._ends[target], self._rows[target] = self._ends[source], self._rows[source]
        self._take(self._costs.move_ms + self._rows[source] * self._costs.move_row_ms)

    def release(self, slot: SlotId) -> None:
        self._ends.pop(slot, None)
        self._rows.pop(slot, None)

    def keeper(self) -> None:
        """It keeps no states: every arrival's prompt is another."""

    def _verify(self, window: Window) -> Verified:
        rows = len(window.tokens)
        return Verified((*((_WORD,) * (rows - 1)), self._token(window.slot, window.position + rows)))

    def _token(self, slot: SlotId, position: int) -> int:
        return _END if position == self._ends[slot] else _WORD

    def _take(self, ms: float) -> None:
        self._clock.advance(ms / 1000)


class _Ear:
    """A sink that makes a record of a request's end."""

    def __init__(self, arrival: Arrival, grain: Grain, served: list[Served]) -> None:
        self._arrival = arrival
        self._grain = grain
        self._served = served
        self._pauses = 0

    def put(self, event: Event) -> None:
        match event:
            case Progressed(state=Progress.PAUSED):
                self._pauses += 1
            case Finished(usage=usage):
                self._served.append(
                    Served(
                        arrival_s=self._arrival.arrival_s,
                        waited_s=usage.waited_s,
                        first_token_s=usage.first_token_s,
                        total_s=usage.first_token_s + usage.decode_s,
                        reply_tokens=self._tokens(usage.completion_tokens),
                        interruptions=self._pauses,
                        moves=usage.moves,
                    )
                )
            case Failed(error=error):
                raise AssertionError(f"a simulated request failed: {error}")

    def _tokens(self, grains: int) -> int:
        """Tokens of a reply of so many grains; a reply that came to its end has what it was to have."""
        return min(grains * self._grain.tokens, self._arrival.reply_tokens)


class _Loop(HostLoop):
    """The host loop without the snapshots, which nobody looks at here."""

    def take_snapshot(self) -> Status:
        return self.snapshot if hasattr(self, "snapshot") else super().take_snapshot()


class Simulation:
    """One load on one house."""

    def __init__(
        self, arrivals: Sequence[Arrival], house: House, costs: Costs, grain: Grain, *, leaps: bool
    ) -> None:
        self._asked = arrivals
        self._arrivals = grain.arrivals(arrivals)
        self._costs = grain.costs(costs)
        self._memory_bytes = house.memory_bytes(costs)
        self._house = house
        self._clock = ScriptedClock()
        leap_rows = grain.leap_rows if leaps else 1
        self._backend = TimedBackend(
            [grain.session_rows(tokens, leap_rows=leap_rows) for tokens in house.session_tokens],
            self._arrivals,
            self._costs,
            self._clock,
            leap_rows=leap_rows,
            pass_rows=PASS_ROWS // grain.tokens,
        )
        self._backend.leap = self._leap
        rules = LaneRules(
            grow_tokens=None if house.grow_tokens is None else grain.up(house.grow_tokens),
            decode_share=house.decode_share,
            context_tokens=house.context_tokens // grain.tokens,
            drafts_always=True,
        )
        self._loop = _Loop(self._backend, rules, self._clock, ())
        self._grain = grain
        self._next = 0
        self._refused = 0
        self._most_streams = 0
        self._served: list[Served] = []

    def run(self, name: str) -> Outcome:
        """Serve the whole load."""
        while True:
            self._submit_arrived()
            has_worked = self._loop.step()
            self._most_streams = max(self._most_streams, len(self._loop.engine.streams))
            if has_worked:
                continue
            if self._next < len(self._arrivals):
                wait_s = self._arrivals[self._next].arrival_s - self._clock.now_s()
                self._clock.advance(max(0.0, wait_s))
            elif not self._loop.has_requests:
                break
            else:
                raise AssertionError("requests wait and nothing runs")
        return Outcome(
            name=name,
            sessions=self._house.words,
            memory_bytes=self._memory_bytes,
            served=tuple(self._served),
            refused=self._refused,
            most_streams=self._most_streams,
        )

    def _submit_arrived(self) -> None:
        now_s = self._clock.now_s()
        while self._next < len(self._arrivals) and self._arrivals[self._next].arrival_s <= now_s:
            arrival = self._arrivals[self._next]
            request = Request(
                id=str(self._next),
                prompt=(self._next + 2,) * arrival.prompt_tokens,
                sampling=_GREEDY,
                max_new_tokens=arrival.max_tokens,
                eos_ids=frozenset({_END}),
            )
            self._next += 1
            try:
                limits = self._loop.gate.limits(request)
            except ContextLengthExceeded:
                self._refused += 1
                continue
            ear = _Ear(self._asked[int(request.id)], self._grain, self._served)
            self._loop.enqueue(request, limits, ear, submitted_s=arrival.arrival_s)

    def _leap(self) -> int:
        """Rounds that can be run as one; the last before a change is on its own, since the lanes time it."""
        streams = self._loop.engine.streams
        live = [stream for stream in streams if stream.is_live]
        if len(live) < sum(not stream.is_paused for stream in streams):
            return 1
        most = min(
            min(
                self._arrivals[int(stream.request.id)].reply_tokens - len(stream.reply.tokens),
                stream.remaining_tokens,
            )
            for stream in live
        )
        if self._next < len(self._arrivals):
            left_s = self._arrivals[self._next].arrival_s - self._clock.now_s()
            most = min(most, ceil(left_s * 1000 / self._costs.token_ms(len(live))))
        return max(1, most - 1)


def simulate_lanes(
    arrivals: Sequence[Arrival], house: House, costs: Costs, *, name: str, grain: int = 1, leaps: bool = True
) -> Outcome:
    """The load on the sessions of a house, `grain` tokens counted as one; without `leaps` round by round."""
    return Simulation(arrivals, house, costs, Grain(grain), leaps=leaps).run(name)
