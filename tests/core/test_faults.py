"""The backend fails at each of its calls: one end a request, every session back, the next one served."""

import pytest
from lane_bench import Bench, ask, sized, solo

from hermitcrab.clock import ScriptedClock
from hermitcrab.core.api import Failed, Finished, FinishReason
from hermitcrab.core.backend import DraftRequest, Verified, Window
from hermitcrab.core.fake import Call, CallKind, FakeBackend
from hermitcrab.core.lanes import MOST_STALLS, LaneRules
from hermitcrab.core.loop import HostLoop
from hermitcrab.core.trail import ReleaseFailed, Stalled
from hermitcrab.errors import DeviceFailed, LaneError, LaneMemory, SessionFull, StateNotSettled

NAMES = ("long", "grower", "short")
ERRORS = [
    DeviceFailed("the device failed"),
    StateNotSettled("a window waits"),
    SessionFull("no room"),
    LaneMemory("no memory"),
    RuntimeError("CUDA error: an illegal memory access"),
    MemoryError("out of memory"),
]


def crowd(bench: Bench) -> None:
    bench.submit(
        ask("long", prompt_tokens=30, max_new_tokens=30),
        ask("grower", max_new_tokens=60),
        ask("short", max_new_tokens=9),
    )


def expected(name: str) -> list[int]:
    requests = {
        "long": ask("long", prompt_tokens=30, max_new_tokens=30),
        "grower": ask("grower", max_new_tokens=60),
        "short": ask("short", max_new_tokens=9),
    }
    return solo(requests[name])


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("nth", [1, 2, 5])
@pytest.mark.parametrize("kind", [kind for kind in CallKind if kind is not CallKind.RELEASE])
def test_after_a_failed_call_each_request_has_one_end_and_the_next_is_served(
    kind: CallKind, nth: int, error: Exception
) -> None:
    bench = sized(128, 48, 24)
    crowd(bench)
    for _ in range(nth - 1):
        while sum(call.kind is kind for call in bench.backend.calls) < nth - 1 and bench.loop.has_requests:
            bench.step()
    bench.backend.fail_next(kind, error)
    bench.run()
    for name in NAMES:
        if isinstance(bench.ears[name].terminal, Finished):
            assert bench.tokens(name) == expected(name)
        else:
            assert bench.tokens(name) == expected(name)[: len(bench.tokens(name))]
    bench.submit(ask("next", prompt_tokens=100, max_new_tokens=20))
    bench.run()
    # a fault that was not reached before hits the next request
    if isinstance(bench.ears["next"].terminal, Finished):
        assert bench.tokens("next") == solo(ask("next", prompt_tokens=100, max_new_tokens=20))
    assert bench.is_clean


@pytest.mark.parametrize("kind", [CallKind.PREFILL, CallKind.DRAW_FIRST, CallKind.KEEP])
def test_a_failed_call_for_one_stream_ends_no_other(kind: CallKind) -> None:
    bench = sized(128, 48, 24)
    crowd(bench)
    bench.backend.fail_next(kind, DeviceFailed("the device failed"))
    bench.run()
    failed = [name for name in NAMES if isinstance(bench.ears[name].terminal, Failed)]
    assert len(failed) == 1
    assert [bench.tokens(name) for name in NAMES if name not in failed] == [
        expected(name) for name in NAMES if name not in failed
    ]


@pytest.mark.parametrize("kind", [CallKind.VERIFY, CallKind.DRAFT])
def test_a_failed_round_ends_every_stream_that_was_in_it_and_serves_the_queue(kind: CallKind) -> None:
    bench = sized(64, 64)
    bench.submit(*(ask(name, max_new_tokens=40) for name in ("one", "two", "queued")))
    bench.step_until_live("one", "two")
    bench.backend.fail_next(kind, DeviceFailed("the device failed"))
    bench.run()
    assert [type(bench.ears[name].terminal) for name in ("one", "two")] == [Failed, Failed]
    assert bench.tokens("queued") == solo(ask("queued", max_new_tokens=40))
    assert bench.is_clean


def test_an_error_of_the_device_library_reaches_the_client_as_a_lane_error_with_its_words() -> None:
    bench = sized(64)
    bench.submit(ask("one"))
    bench.backend.fail_next(CallKind.VERIFY, RuntimeError("CUDA error: 700"))
    bench.run()
    terminal = bench.ears["one"].terminal
    assert isinstance(terminal, Failed)
    assert isinstance(terminal.error, DeviceFailed)
    assert str(terminal.error) == "a round failed: CUDA error: 700"
    assert isinstance(terminal.error.__cause__, RuntimeError)


def test_tokens_of_a_round_whose_keep_fails_are_delivered_before_the_failure() -> None:
    bench = sized(64)
    bench.submit(ask("one", max_new_tokens=40))
    bench.backend.fail_next(CallKind.KEEP, DeviceFailed("the device failed"))
    bench.run()
    assert bench.tokens("one") == solo(ask("one", max_new_tokens=40))[:5]
    assert bench.ears["one"].terminal.usage.completion_tokens == 5


def test_a_session_whose_release_fails_is_given_to_nobody_until_it_succeeds() -> None:
    bench = sized(64)
    bench.submit(ask("one"), ask("two"))
    bench.backend.fail_next(CallKind.RELEASE, DeviceFailed("the device failed"))
    bench.run()
    assert bench.tokens("one") == solo(ask("one"))
    assert bench.tokens("two") == solo(ask("two"))
    assert len(bench.book.of(ReleaseFailed)) == 1
    assert bench.is_clean


def test_a_stream_still_moves_when_the_release_of_its_source_fails() -> None:
    bench = sized(128, 24)
    bench.submit(ask("grower", max_new_tokens=60))
    bench.backend.fail_next(CallKind.RELEASE, DeviceFailed("the device failed"))
    bench.run()
    assert bench.tokens("grower") == solo(ask("grower", max_new_tokens=60))
    assert bench.is_clean


def test_requests_wait_while_the_only_session_cannot_be_emptied() -> None:
    bench = sized(64)
    bench.submit(ask("one"), ask("two"))
    stuck = DeviceFailed("the device failed")
    bench.backend.fail_next(CallKind.RELEASE, stuck)
    bench.backend.on_call = lambda call: bench.backend.fail_next(CallKind.RELEASE, stuck)
    bench.step(20)
    assert not bench.ears["two"].terminals
    bench.backend.on_call = lambda call: None
    bench.run()
    assert bench.tokens("two") == solo(ask("two"))


def never_empties_slot_0(call: Call) -> None:
    if call.kind is CallKind.RELEASE and call.slots == (0,):
        raise DeviceFailed("the device failed")


def test_those_who_wait_for_a_session_that_can_never_be_emptied_hear_their_end() -> None:
    bench = sized(64)
    bench.submit(ask("first"), ask("one"), ask("two"))
    bench.backend.on_call = never_empties_slot_0
    bench.run(at_most=2 * MOST_STALLS)
    assert [type(bench.ears[name].terminal) for name in ("first", "one", "two")] == [Finished, Failed, Failed]
    assert str(bench.ears["one"].terminal.error).startswith("nothing runs, and no session that fits")
    assert [decision.waiting for decision in bench.book.of(Stalled)] == [2]


def test_who_fits_into_another_session_is_served_beside_one_that_can_never_be_emptied() -> None:
    bench = sized(64, 48)
    bench.submit(*(ask(name, prompt_tokens=50) for name in ("first", "big")), ask("small", max_new_tokens=30))
    bench.backend.on_call = never_empties_slot_0
    bench.run(at_most=2 * MOST_STALLS)
    assert isinstance(bench.ears["big"].terminal, Failed)
    assert bench.tokens("small") == solo(ask("small", max_new_tokens=30))


def test_only_steps_in_a_row_without_work_count_towards_ending_the_queue() -> None:
    bench = sized(64)
    bench.submit(ask("first"), ask("next"))
    bench.backend.on_call = never_empties_slot_0
    while not bench.ears["first"].terminals:
        bench.step()
    bench.step(MOST_STALLS - 1)
    bench.backend.on_call = lambda call: None
    bench.run()
    assert bench.tokens("next") == solo(ask("next"))


class ShortVerify(FakeBackend):
    """Loses a window's result."""

    def verify(self, windows: list[Window]) -> list[Verified]:  # type: ignore[override]  # narrower on purpose
        return super().verify(windows)[:-1]


class ShortDraft(FakeBackend):
    """Loses a stream's drafts."""

    def draft(self, requests: list[DraftRequest]) -> list[tuple[int, ...]]:  # type: ignore[override]  # as above
        return super().draft(requests)[:-1]


@pytest.mark.parametrize("backend", [ShortVerify, ShortDraft])
def test_a_result_of_the_wrong_size_is_a_device_failure(backend: type[FakeBackend]) -> None:
    bench = Bench(backend((64, 64)), LaneRules(grow_tokens=8))
    bench.submit(ask("one"))
    bench.run()
    terminal = bench.ears["one"].terminal
    assert isinstance(terminal, Failed)
    assert isinstance(terminal.error, DeviceFailed)


def test_all_requests_end_whatever_state_a_step_was_left_in() -> None:
    class StumblingClock(ScriptedClock):
        stumbles = False

        def now_s(self) -> float:
            if self.stumbles:
                self.stumbles = False
                raise OSError("no clock")
            return super().now_s()

    bench = Bench(FakeBackend((128, 24)), LaneRules(grow_tokens=8))
    clock = StumblingClock()
    bench.loop = HostLoop(bench.backend, LaneRules(grow_tokens=8), clock)
    bench.submit(*(ask(name, prompt_tokens=20, max_new_tokens=40) for name in "abc"))
    bench.step(3)
    clock.stumbles = True
    with pytest.raises(OSError, match="no clock"):
        bench.step()
    bench.loop.end_all(LaneError("the engine loop failed"))
    assert [type(bench.ears[name].terminal) for name in "abc"] == [Failed] * 3
    assert bench.is_clean
    bench.submit(ask("next"))
    bench.run()
    assert bench.tokens("next") == solo(ask("next"))


def test_a_cancel_of_a_failing_stream_is_not_a_second_end() -> None:
    bench = sized(64, 64)
    bench.submit(ask("one", max_new_tokens=40))
    bench.step_until_live("one")
    bench.backend.fail_next(CallKind.VERIFY, DeviceFailed("the device failed"))
    bench.backend.on_call = lambda call: None
    bench.step()
    bench.loop.cancel("one")
    bench.step()
    assert len(bench.ears["one"].terminals) == 1
    assert bench.loop.snapshot.requests_failed == 1
    assert bench.ears["one"].terminal != Finished(FinishReason.CANCELLED, bench.ears["one"].terminal.usage)
