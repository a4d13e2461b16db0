"""Random schedules of submits, cancels, faults, clock steps and rounds, on the fake.

Whatever the schedule: one terminal event a request, no slot held twice, waits only upward, every session free
at the end, and the tokens of the same request alone.
"""

from collections.abc import Callable
from dataclasses import replace

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
from lane_bench import Bench, Ear, ask, prompt_of, solo

from hermitcrab.core.api import Failed, Finished, FinishReason, Request
from hermitcrab.core.fake import CallKind, FakeBackend
from hermitcrab.core.kept import CacheRules
from hermitcrab.core.lanes import LaneRules
from hermitcrab.core.slots import Pause, room
from hermitcrab.errors import DeviceFailed, LaneMemory
from hermitcrab.sampling.params import Sampling

LARGEST_ROWS = 96
WINDOW_ROWS = 4

# more steps than any schedule here needs, and less than forever
MOST_STEPS = 20_000


class Schedules(RuleBasedStateMachine):
    """The host loop under a schedule."""

    has_faults = False

    def __init__(self) -> None:
        super().__init__()
        self.requests: dict[str, Request] = {}
        self.cancelled: set[str] = set()

    @initialize(
        others=st.lists(st.integers(16, LARGEST_ROWS), max_size=5),
        is_sized=st.booleans(),
        grow_tokens=st.integers(1, 24),
        row_limit=st.integers(4, 16),
        depth=st.integers(0, 3),
        period=st.integers(1, 4),
        cache_bytes=st.sampled_from([0, 1_000, 3_000, 100_000]),
    )
    def open_house(
        self,
        others: list[int],
        is_sized: bool,
        grow_tokens: int,
        row_limit: int,
        depth: int,
        period: int,
        cache_bytes: int,
    ) -> None:
        session_rows = (LARGEST_ROWS, *(others if is_sized else [LARGEST_ROWS] * len(others)))
        backend = FakeBackend(
            session_rows,
            row_limit=row_limit,
            window_rows=WINDOW_ROWS,
            lands=lambda position, index: position % period == 0,
        )
        rules = LaneRules(
            grow_tokens=grow_tokens if is_sized else None,
            draft_depth=depth,
            cache=CacheRules(cache_bytes, frozenset({5}), gap_rows=8),
        )
        self.bench = Bench(backend, rules)

    @rule(
        prompt_tokens=st.integers(1, 60),
        kin=st.integers(0, 2),
        max_new_tokens=st.none() | st.integers(1, 80),
        seed=st.integers(0, 3),
        is_greedy=st.booleans(),
        has_eos=st.booleans(),
    )
    def submit(
        self,
        prompt_tokens: int,
        kin: int,
        max_new_tokens: int | None,
        seed: int,
        is_greedy: bool,
        has_eos: bool,
    ) -> None:
        name = f"r{len(self.requests)}"
        request = ask(
            name,
            max_new_tokens=max_new_tokens,
            sampling=Sampling(temperature=0.0 if is_greedy else 0.9, seed=seed),
            eos_ids=frozenset({5}) if has_eos else frozenset(),
        )
        # those of a kin have a prefix in common, as long as the shorter one
        self.requests[name] = replace(request, prompt=prompt_of(f"kin {kin}", prompt_tokens))
        self.bench.submit(self.requests[name])

    @precondition(lambda self: self.requests)
    @rule(which=st.integers(0, 1000))
    def cancel(self, which: int) -> None:
        name = f"r{which % len(self.requests)}"
        self.cancelled.add(name)
        self.bench.loop.cancel(name)

    @rule(times=st.integers(1, 12))
    def step(self, times: int) -> None:
        self.bench.step(times)

    @rule(seconds=st.floats(0.0, 10.0))
    def wait(self, seconds: float) -> None:
        self.bench.clock.advance(seconds)

    @precondition(lambda self: self.has_faults)
    @rule(kind=st.sampled_from(CallKind), is_memory=st.booleans())
    def fail(self, kind: CallKind, is_memory: bool) -> None:
        error = LaneMemory("no memory now") if is_memory else DeviceFailed("the device failed")
        self.bench.backend.fail_next(kind, error)

    @invariant()
    def no_slot_is_held_twice(self) -> None:
        if not hasattr(self, "bench"):
            return
        engine = self.bench.loop.engine
        slots = [stream.slot for stream in engine.streams]
        assert len(set(slots)) == len(slots)
        assert set(engine.table.held) == set(slots)
        assert {engine.table.holder(slot) for slot in engine.table.held} == {
            stream.request.id for stream in engine.streams
        }

    @invariant()
    def a_paused_stream_waits_for_a_larger_session_that_somebody_holds(self) -> None:
        if not hasattr(self, "bench") or self.has_faults:
            return
        engine = self.bench.loop.engine
        for stream in engine.streams:
            if stream.is_paused:
                assert engine.table.capacity(stream.home) < LARGEST_ROWS
                assert stream.window.rows + engine.sizing.window_rows <= engine.table.capacity(stream.home)
                assert self.decision_for(stream) == Pause()

    def decision_for(self, stream: object) -> object:
        engine = self.bench.loop.engine
        grow_tokens = engine.sizing.grow_tokens
        assert grow_tokens is not None
        return room(
            engine.standing(stream),  # type: ignore[arg-type]  # a stream, as the caller knows
            free=engine.table.free(),
            sessions=engine.table.sessions,
            window_rows=engine.sizing.window_rows,
            grow_tokens=grow_tokens,
        )

    @invariant()
    def while_anything_waits_something_runs(self) -> None:
        if not hasattr(self, "bench") or self.has_faults:
            return
        engine = self.bench.loop.engine
        if engine.streams:
            assert any(stream.is_live or stream.is_filling for stream in engine.streams)

    def teardown(self) -> None:
        if not hasattr(self, "bench"):
            return
        self.bench.run(at_most=MOST_STEPS)
        for name, ear in self.bench.ears.items():
            self.check_end(name, ear)
        # a fault that no call has met yet may leave one session to be emptied by the next step
        self.bench.step()
        assert self.bench.is_clean
        cache = self.bench.loop.take_snapshot().cache
        assert self.has_faults or cache.bytes == self.bench.backend.pieces_bytes
        assert cache.bytes <= cache.budget_bytes

    def check_end(self, name: str, ear: Ear) -> None:
        assert len(ear.terminals) == 1
        assert ear.events[-1] is ear.terminal
        alone = solo(self.requests[name], session_rows=LARGEST_ROWS)
        assert ear.tokens == alone[: len(ear.tokens)]
        match ear.terminal:
            case Finished(reason=FinishReason.CANCELLED):
                assert name in self.cancelled
            case Finished():
                assert ear.tokens == alone
            case Failed():
                assert self.has_faults


class FaultySchedules(Schedules):
    """The same with a backend that fails."""

    has_faults = True


def run_schedules(machine: Callable[[], Schedules]) -> None:
    run_state_machine_as_test(
        machine, settings=settings(max_examples=60, stateful_step_count=25, deadline=None)
    )


def test_any_schedule_gives_each_request_one_end_and_its_solo_tokens() -> None:
    run_schedules(Schedules)


def test_any_schedule_with_faults_gives_each_request_one_end_and_no_wrong_token() -> None:
    run_schedules(FaultySchedules)
