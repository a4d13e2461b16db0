"""Random schedules of submits, cancels, clients that leave, faults, clock steps and rounds, on the fake.

Requests have priorities, penalties, grammars, thinking budgets; prompts share prefixes that are kept; rounds
cost time, so drafts come and go with what they pay. Whatever the schedule: one terminal event a request, no
slot held twice or lost, nobody in two places, waits only upward, every step brings somebody forward, no live
reply waits longer for its turn than all the others take, every session free at the end, and the tokens of
the same request alone.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest
from fault_bench import Leaving
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from lane_bench import Bench, Ear, prompt_of
from table_grammar import pairs

from hermitcrab.core.api import Failed, Finished, FinishReason, Priority, Request
from hermitcrab.core.fake import Call, CallKind, FakeBackend
from hermitcrab.core.kept import CacheRules
from hermitcrab.core.lanes import LaneRules
from hermitcrab.core.load_check import NOT_RUN
from hermitcrab.core.slots import Pause, room
from hermitcrab.core.stream import Stream
from hermitcrab.core.thinking import Thinking
from hermitcrab.errors import DeviceFailed, LaneError, LaneMemory, ShuttingDown
from hermitcrab.sampling.params import Penalties, Sampling

LARGEST_ROWS = 96
SIZES = (28, 28, 40, 56, LARGEST_ROWS)
MOST_SESSIONS = 6

# more steps than any schedule here needs, and less than forever
MOST_STEPS = 20_000

# what a reply's own tokens ask of its next ones; a grammar has a state, so each request gets its own
STYLES: tuple[Callable[[], dict[str, Any]], ...] = (
    dict,
    dict,
    dict,
    lambda: {"eos_ids": frozenset({5})},
    lambda: {"eos_ids": frozenset({5, 6}), "min_tokens": 9},
    lambda: {"penalties": Penalties(presence=1.5, frequency=0.5)},
    lambda: {"penalties": Penalties(repetition=1.3, bias=((3, 4.0),)), "top_logprobs": 2},
    lambda: {"thinking": Thinking(is_open=True, open_id=14, close_ids=(15, 13), budget_tokens=6)},
    lambda: {"grammar": pairs()},
)


def script(prompt: tuple[int, ...]) -> tuple[int, ...]:
    """Every second prompt has a reply that repeats itself for a while, so that copies land."""
    period = tuple((3 * place + prompt[0]) % 16 for place in range(9))
    return period * 4 if sum(prompt) % 2 else ()


@dataclass(frozen=True)
class Wish:
    """A request without its name."""

    family: int
    shared_tokens: int
    own_tokens: int
    max_new_tokens: int | None
    sampling: Sampling
    style: Callable[[], dict[str, Any]]
    priority: Priority

    def request(self, name: str) -> Request:
        shared = prompt_of(f"family {self.family}", self.shared_tokens)
        return Request(
            id=name,
            prompt=(*shared, *prompt_of(name, self.own_tokens)),
            sampling=self.sampling,
            max_new_tokens=self.max_new_tokens,
            priority=self.priority,
            **self.style(),
        )


WISHES = st.builds(
    Wish,
    family=st.integers(0, 2),
    shared_tokens=st.sampled_from([0, 8, 16, 40]),
    own_tokens=st.integers(1, 12),
    max_new_tokens=st.sampled_from([None, 80, 60, 40, 9, 1]),
    sampling=st.builds(Sampling, temperature=st.sampled_from([0.0, 0.9]), seed=st.integers(0, 3)),
    style=st.sampled_from(STYLES),
    priority=st.sampled_from(Priority),
)


@dataclass(frozen=True)
class Prices:
    """What rows, streams, drafts and prompt rows cost in clock seconds."""

    round_s: float
    row_s: float
    draft_s: float
    prompt_row_s: float

    def of(self, call: Call) -> float:
        match call.kind:
            case CallKind.VERIFY:
                return self.round_s + self.row_s * sum(call.rows)
            case CallKind.DRAFT:
                return self.draft_s
            case CallKind.PREFILL:
                return self.prompt_row_s * sum(call.rows)
        return 0.0


class Schedules(RuleBasedStateMachine):
    """The host loop under a schedule."""

    has_faults = False

    def __init__(self) -> None:
        super().__init__()
        self.makers: dict[str, Callable[[], Request]] = {}
        self.gone: set[str] = set()
        self.stuck: set[int] = set()
        self.turns: dict[str, tuple[int, int]] = {}
        self.worked_steps = 0

    @initialize(
        others=st.lists(st.sampled_from(SIZES), min_size=1, max_size=MOST_SESSIONS - 1),
        is_sized=st.sampled_from([True, True, True, False]),
        grow_tokens=st.integers(1, 24),
        row_limit=st.integers(2, 16),
        is_sharing_off=st.booleans(),
        window_rows=st.sampled_from([4, 12]),
        depth=st.none() | st.integers(0, 3),
        period=st.integers(1, 4),
        cache_bytes=st.sampled_from([0, 800, 3000, 1 << 20]),
        prices=st.builds(
            Prices,
            round_s=st.sampled_from([0.0, 1.0]),
            row_s=st.sampled_from([0.0, 0.02, 0.6]),
            draft_s=st.sampled_from([0.0, 0.1, 2.0]),
            prompt_row_s=st.sampled_from([0.0, 0.2]),
        ),
        wishes=st.lists(WISHES, min_size=2, max_size=6),
    )
    def open_house(
        self,
        others: list[int],
        is_sized: bool,
        grow_tokens: int,
        row_limit: int,
        is_sharing_off: bool,
        window_rows: int,
        depth: int | None,
        period: int,
        cache_bytes: int,
        prices: Prices,
        wishes: list[Wish],
    ) -> None:
        self.window_rows = window_rows
        backend = FakeBackend(
            (LARGEST_ROWS, *(others if is_sized else [LARGEST_ROWS] * len(others))),
            row_limit=row_limit,
            load_check=replace(NOT_RUN, is_sharing_off=is_sharing_off),
            window_rows=window_rows,
            backlog_rows=16,
            lands=lambda position, index: position % period == 0,
            script=script,
        )
        rules = LaneRules(
            grow_tokens=grow_tokens if is_sized else None,
            draft_depth=depth,
            cache=CacheRules(cache_bytes, start_ids=frozenset({1, 2}), gap_rows=4),
        )
        self.prices = prices
        self.bench = Bench(backend, rules)
        backend.on_call = self.meet
        self.take(wishes)

    def meet(self, call: Call) -> None:
        """A call takes its time, and a session that sticks is not emptied."""
        self.bench.clock.advance(self.prices.of(call))
        if call.kind is CallKind.RELEASE and self.stuck & set(call.slots):
            raise DeviceFailed("the session cannot be emptied")

    @rule(wishes=st.lists(WISHES, min_size=1, max_size=4))
    def submit(self, wishes: list[Wish]) -> None:
        self.take(wishes)

    def take(self, wishes: list[Wish]) -> None:
        """Submit them in their order."""
        for wish in wishes:
            name = f"r{len(self.makers)}"
            self.makers[name] = partial(wish.request, name)
            self.bench.ears[name] = Leaving()
            self.bench.loop.submit(self.makers[name](), self.bench.ears[name])

    @precondition(lambda self: self.makers)
    @rule(which=st.integers(0, 1000), is_cancelled=st.booleans())
    def go(self, which: int, is_cancelled: bool) -> None:
        """A request is cancelled, or its client leaves and its next event finds nobody."""
        name = f"r{which % len(self.makers)}"
        self.gone.add(name)
        ear = self.bench.ears[name]
        assert isinstance(ear, Leaving)
        if is_cancelled:
            self.bench.loop.cancel(name)
        else:
            ear.has_gone = True

    @rule(times=st.integers(1, 30))
    def step(self, times: int) -> None:
        for _ in range(times):
            self.step_once()

    @rule(seconds=st.floats(0.0, 100.0))
    def wait(self, seconds: float) -> None:
        self.bench.clock.advance(seconds)

    @precondition(lambda self: self.has_faults)
    @rule(kind=st.sampled_from(CallKind), is_memory=st.booleans())
    def fail(self, kind: CallKind, is_memory: bool) -> None:
        error = LaneMemory("no memory now") if is_memory else DeviceFailed("the device failed")
        self.bench.backend.fail_next(kind, error)

    @precondition(lambda self: self.has_faults)
    @rule(slot=st.integers(0, MOST_SESSIONS - 1))
    def stick(self, slot: int) -> None:
        """From now on a session cannot be emptied, or it can again."""
        self.stuck ^= {slot}

    @precondition(lambda self: self.has_faults)
    @rule(way=st.sampled_from(["no", "no", "no", "drain", "all"]))
    def end(self, way: str) -> None:
        if way == "all":
            self.bench.loop.end_all(LaneError("the engine loop failed"))
        elif way == "drain":
            self.bench.loop.drain(ShuttingDown("ending", retry_after_s=5))

    def step_once(self) -> None:
        before = self.progress()
        has_worked = self.bench.loop.step()
        self.worked_steps += has_worked
        if self.has_faults:
            return
        assert self.progress() > before or not has_worked
        assert has_worked or not self.bench.loop.has_requests
        for stream in self.bench.loop.engine.streams:
            self.check_turn(stream)

    def progress(self) -> int:
        """What only grows while there is work, and not for ever: rows filled, tokens, moves, ends."""
        totals = self.bench.loop.engine.totals
        rows = sum(stream.window.rows for stream in self.bench.loop.engine.streams if stream.is_filling)
        ends = sum(bool(ear.terminals) for ear in self.bench.ears.values())
        # the rows of an ended or filled prompt count once more than any that were left behind
        past = 2 * LARGEST_ROWS * (ends + sum(bool(ear.tokens) for ear in self.bench.ears.values()))
        return rows + past + totals.reply_tokens + totals.moves

    def check_turn(self, stream: Stream) -> None:
        """A live reply gets its turn within as many rounds as there can be streams, each behind one pass."""
        name, rounds = stream.request.id, stream.stats.rounds
        last_rounds, since = self.turns.get(name, (-1, self.worked_steps))
        if not stream.is_live or rounds != last_rounds:
            since = self.worked_steps
        self.turns[name] = (rounds, since)
        assert self.worked_steps - since <= 2 * MOST_SESSIONS

    @invariant()
    def no_session_is_held_twice_or_lost(self) -> None:
        if not hasattr(self, "bench"):
            return
        table, streams = self.bench.loop.engine.table, self.bench.loop.engine.streams
        slots = [stream.slot for stream in streams]
        assert len(set(slots)) == len(slots)
        assert {table.holder(slot): slot for slot in table.held} == {
            stream.request.id: stream.slot for stream in streams
        }
        accounted = [*table.held, *table.unclean, *(session.slot for session in table.free())]
        assert sorted(accounted) == [session.slot for session in table.sessions]

    @invariant()
    def nobody_is_in_two_places(self) -> None:
        if not hasattr(self, "bench"):
            return
        shown = [line.request_id for line in self.bench.loop.take_snapshot().streams]
        assert len(set(shown)) == len(shown)
        assert not [name for name in shown if self.bench.ears[name].terminals]
        if not (self.has_faults or self.gone):
            assert set(shown) == {name for name, ear in self.bench.ears.items() if not ear.terminals}

    @invariant()
    def a_paused_stream_waits_for_a_larger_session_that_somebody_holds(self) -> None:
        if not hasattr(self, "bench") or self.has_faults:
            return
        engine = self.bench.loop.engine
        grow_tokens = engine.sizing.grow_tokens
        for stream in engine.streams:
            if stream.is_paused:
                assert grow_tokens is not None
                assert engine.table.capacity(stream.home) < LARGEST_ROWS
                assert stream.window.rows + engine.sizing.window_rows <= engine.table.capacity(stream.home)
                decision = room(
                    engine.standing(stream),
                    free=engine.table.free(),
                    sessions=engine.table.sessions,
                    window_rows=engine.sizing.window_rows,
                    grow_tokens=grow_tokens,
                )
                assert decision == Pause()

    @invariant()
    def while_anything_waits_something_runs(self) -> None:
        if not hasattr(self, "bench") or self.has_faults:
            return
        streams = self.bench.loop.engine.streams
        assert not streams or any(stream.is_live or stream.is_filling for stream in streams)

    @invariant()
    def what_is_kept_is_counted(self) -> None:
        if hasattr(self, "bench") and not self.has_faults:
            assert self.bench.loop.engine.cache_status.bytes == self.bench.backend.pieces_bytes

    def teardown(self) -> None:
        if not hasattr(self, "bench"):
            return
        self.stuck.clear()
        for _ in range(MOST_STEPS):
            if not self.bench.loop.has_requests:
                break
            self.step_once()
        for name, ear in self.bench.ears.items():
            self.check_end(name, ear)
        # a fault that no call has met yet may leave one session to be emptied by the next step
        self.bench.step()
        assert self.bench.is_clean

    def check_end(self, name: str, ear: Ear) -> None:
        assert len(ear.terminals) == 1
        assert ear.events[-1] is ear.terminal
        alone = self.alone(name)
        assert ear.tokens == alone[: len(ear.tokens)]
        match ear.terminal:
            case Finished(reason=FinishReason.CANCELLED):
                assert name in self.gone
            case Finished():
                # who has gone may have missed the last tokens of a reply that came to its end all the same
                assert ear.tokens == alone or name in self.gone
            case Failed():
                assert self.has_faults

    def alone(self, name: str) -> list[int]:
        """The reply undrafted in a house of its own, with nothing kept."""
        backend = FakeBackend((LARGEST_ROWS,), window_rows=self.window_rows, script=script)
        bench = Bench(backend, LaneRules(draft_depth=0))
        bench.submit(self.makers[name]())
        bench.run()
        return bench.tokens(name)


class FaultySchedules(Schedules):
    """The same with a backend that fails, sessions that stick, and ends of all."""

    has_faults = True


def run_schedules(machine: Callable[[], Schedules], *, schedules: int, acts: int) -> None:
    run_state_machine_as_test(
        machine, settings=settings(max_examples=schedules, stateful_step_count=acts, deadline=None)
    )


def test_any_schedule_gives_each_request_one_end_and_its_solo_tokens() -> None:
    run_schedules(Schedules, schedules=25, acts=25)


def test_any_schedule_with_faults_gives_each_request_one_end_and_no_wrong_token() -> None:
    run_schedules(FaultySchedules, schedules=40, acts=25)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("machine", [Schedules, FaultySchedules])
def test_thousands_of_schedules_give_each_request_one_end_and_no_wrong_token(
    machine: Callable[[], Schedules],
) -> None:
    run_schedules(machine, schedules=2000, acts=40)
