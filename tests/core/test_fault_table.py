"""Each call of the boundary fails, early and late, before and after its work; each way out at each phase."""

import functools
from collections import Counter

import pytest
from fault_bench import ENDING, FailingBackend, FaultHouse, Leaving, Moment, OneFault, Place
from lane_bench import GREEDY, Bench, solo
from lane_bench import ask as plain_ask

from hermitcrab.clock import ScriptedClock
from hermitcrab.core.api import Failed, Finished, FinishReason, Request
from hermitcrab.core.fake import CallKind, FakeBackend
from hermitcrab.core.kept import CacheRules
from hermitcrab.core.lanes import LaneRules
from hermitcrab.core.recorder import Recorder
from hermitcrab.core.recording import RecordedLoop
from hermitcrab.errors import DeviceFailed, LaneMemory, ShuttingDown
from hermitcrab.sampling.params import Sampling

SESSION_ROWS = (160, 64, 40, 40)
# small enough that states are dropped
RULES = LaneRules(grow_tokens=8, cache=CacheRules(budget_bytes=1000, start_ids=frozenset({1}), gap_rows=8))
SAMPLED = Sampling(temperature=0.9, seed=3)
SHARED = (1, *range(2, 9), 1, *range(3, 10))


def ask(name: str, prompt: tuple[int, ...], max_new_tokens: int, sampling: Sampling = GREEDY) -> Request:
    return Request(name, prompt, sampling, max_new_tokens=max_new_tokens)


# two grow and meet in the larger sessions, a long prompt fills beside them, two share a prefix, two queue
CROWD = (
    ask("grower", (*SHARED, 11), 60),
    ask("rival", (*SHARED, 12), 60, SAMPLED),
    ask("long", tuple((7 * place) % 13 + 2 for place in range(90)), 20, SAMPLED),
    ask("twin", (*SHARED, 1, 5, 6), 12),
    ask("queued", (*SHARED, 1, 5, 6, 4), 9, SAMPLED),
    ask("last", (1, 9, 9, 9, 1, 8, 8, 8, 1, 7), 9),
)
NEXT = (ask("next", tuple(place % 11 + 1 for place in range(120)), 20), ask("small", (3, 4, 5), 8, SAMPLED))

ERRORS = {
    "ours": DeviceFailed("the device failed"),
    "the library's": RuntimeError("CUDA error: an illegal memory access"),
    "memory": MemoryError("out of memory"),
}


@functools.cache
def alone(request: Request) -> list[int]:
    return solo(request)


@functools.cache
def clean_counts() -> Counter[CallKind]:
    house = FaultHouse(FailingBackend(FakeBackend(SESSION_ROWS)), RULES)
    house.serve(CROWD)
    return house.backend.counts


def test_the_crowd_makes_every_kind_of_call() -> None:
    assert set(clean_counts()) == set(CallKind)


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("moment", Moment)
@pytest.mark.parametrize("place", Place)
@pytest.mark.parametrize("kind", CallKind)
def test_a_failed_call_ends_those_it_was_for_and_nobody_else(
    kind: CallKind, place: Place, moment: Moment, error: str
) -> None:
    fake = FakeBackend(SESSION_ROWS)
    fault = OneFault(kind, place.nth(clean_counts()[kind]), moment, ERRORS[error])
    house = FaultHouse(FailingBackend(fake, fault), RULES)
    house.serve(CROWD)
    assert house.backend.has_failed
    assert house.failed(CROWD) == (house.backend.hit if kind in ENDING else set())
    for request in CROWD:
        tokens = house.ears[request.id].tokens
        is_whole = request.id not in house.failed(CROWD)
        assert tokens == (alone(request) if is_whole else alone(request)[: len(tokens)])
    house.serve(NEXT)
    assert [house.ears[request.id].tokens for request in NEXT] == [alone(request) for request in NEXT]
    assert house.is_empty
    assert fake.violations == []
    assert house.loop.engine.cache_status.bytes == fake.pieces_bytes


@pytest.mark.parametrize("place", Place)
def test_no_memory_for_a_move_ends_nobody(place: Place) -> None:
    fault = OneFault(
        CallKind.MOVE, place.nth(clean_counts()[CallKind.MOVE]), Moment.BEFORE, LaneMemory("no memory now")
    )
    house = FaultHouse(FailingBackend(FakeBackend(SESSION_ROWS), fault), RULES)
    house.serve(CROWD)
    assert house.backend.has_failed
    assert [house.ears[request.id].tokens for request in CROWD] == [alone(request) for request in CROWD]


class FullDisk:
    """A trail's file that takes so many lines."""

    def __init__(self, lines: int) -> None:
        self._lines = lines

    def write(self, line: str, /) -> object:
        self._lines -= 1
        if self._lines < 0:
            raise OSError("no space left on device")
        return None


GONER = {
    "queued": plain_ask("goner", prompt_tokens=100, max_new_tokens=20),
    "filling": plain_ask("goner", prompt_tokens=24, max_new_tokens=20),
    "live": plain_ask("goner", max_new_tokens=100),
    "paused": plain_ask("goner", max_new_tokens=100),
}
HOLDER = plain_ask("holder", prompt_tokens=60, max_new_tokens=60)
PEER = plain_ask("peer", max_new_tokens=100)
LATER = plain_ask("later", max_new_tokens=6)

# what goes wrong while the session comes back
TROUBLES = {
    "nothing": [],
    "its release": [(CallKind.RELEASE, DeviceFailed("not emptied"))],
    "a peer's move": [(CallKind.MOVE, DeviceFailed("the copy failed"))],
    "memory": [(CallKind.MOVE, LaneMemory("no memory now"))],
    "release and move": [
        (CallKind.RELEASE, RuntimeError("CUDA error: 700")),
        (CallKind.MOVE, MemoryError("out of memory")),
    ],
}


def bench_with_goner(phase: str, trail_lines: int | None) -> Bench:
    """One stream in the large session, a peer that outgrows its small one, and the one that will go."""
    bench = Bench(FakeBackend((160, 40, 40)), LaneRules(grow_tokens=8))
    if trail_lines is not None:
        recorder = Recorder(FullDisk(trail_lines), ScriptedClock())
        bench.loop = RecordedLoop(bench.backend, LaneRules(grow_tokens=8), recorder, ())
    bench.submit(HOLDER, PEER)
    bench.step_until_live("holder", "peer")
    bench.ears["goner"] = Leaving()
    bench.loop.submit(GONER[phase], bench.ears["goner"])
    match phase:
        case "queued" | "filling":
            bench.step()
        case "live":
            bench.step_until_live("goner")
        case _:
            bench.step_until_paused("goner")
    bench.submit(LATER)
    return bench


def go(bench: Bench, way: str) -> None:
    """End the one that goes."""
    match way:
        case "cancel":
            bench.loop.cancel("goner")
        case "disconnect":
            goner = bench.ears["goner"]
            assert isinstance(goner, Leaving)
            goner.has_gone = True
        case "drain":
            bench.loop.drain(ShuttingDown("ending", retry_after_s=5))
        case _:
            bench.loop.end_all(ShuttingDown("ending", retry_after_s=5))


def phase_of(bench: Bench, name: str) -> str:
    (state,) = [line.state for line in bench.loop.take_snapshot().streams if line.request_id == name]
    return str(state)


@pytest.mark.parametrize("trail_lines", [None, 3])
@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("phase", GONER)
@pytest.mark.parametrize("way", ["cancel", "disconnect", "drain", "end all"])
def test_whoever_goes_at_any_phase_and_whatever_fails_then_each_has_one_end(
    way: str, phase: str, trouble: str, trail_lines: int | None
) -> None:
    bench = bench_with_goner(phase, trail_lines)
    assert phase_of(bench, "goner") == phase
    for kind, error in TROUBLES[trouble]:
        bench.backend.fail_next(kind, error)
    go(bench, way)
    bench.run()
    for request in (HOLDER, PEER, LATER, GONER[phase]):
        ear = bench.ears[request.id]
        assert len(ear.terminals) == 1
        assert ear.events[-1] is ear.terminal
        expected = alone(request)
        whole = isinstance(ear.terminal, Finished) and ear.terminal.reason is not FinishReason.CANCELLED
        assert ear.tokens == (expected if whole else expected[: len(ear.tokens)])
    bench.submit(plain_ask("next", prompt_tokens=100, max_new_tokens=20))
    bench.run()
    # a fault that nothing has met until then meets this one's session, and no stream
    bench.step()
    assert bench.tokens("next") == alone(plain_ask("next", prompt_tokens=100, max_new_tokens=20))
    assert bench.is_clean


@pytest.mark.parametrize("phase", GONER)
@pytest.mark.parametrize("way", ["cancel", "disconnect"])
def test_one_that_goes_leaves_the_others_tokens_as_they_were(way: str, phase: str) -> None:
    bench = bench_with_goner(phase, None)
    go(bench, way)
    bench.run()
    assert [bench.tokens(request.id) for request in (HOLDER, PEER, LATER)] == [
        alone(request) for request in (HOLDER, PEER, LATER)
    ]


@pytest.mark.parametrize("kind", [CallKind.RELEASE, CallKind.MOVE])
@pytest.mark.parametrize("phase", GONER)
def test_an_end_of_all_during_a_shutdown_is_heard_by_all_even_if_the_device_fails(
    phase: str, kind: CallKind
) -> None:
    bench = bench_with_goner(phase, None)
    bench.loop.drain(ShuttingDown("ending", retry_after_s=5))
    bench.step(2)
    bench.backend.fail_next(kind, DeviceFailed("the device failed"))
    bench.loop.end_all(ShuttingDown("ending", retry_after_s=5))
    assert not bench.loop.has_requests
    assert [len(ear.terminals) for ear in bench.ears.values()] == [1] * 4
    assert all(isinstance(ear.terminal, Failed) for ear in bench.ears.values())
