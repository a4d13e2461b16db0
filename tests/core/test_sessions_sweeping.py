"""Sweeping and delivery: no stream outlives its job, every request hears its end."""

from collections.abc import Callable

import pytest
from lane_bench import Bench, Book, ask, sized, solo

from hermitcrab.clock import ScriptedClock
from hermitcrab.core.api import Failed, Finished, FinishReason, Progress
from hermitcrab.core.fake import Call, CallKind, FakeBackend
from hermitcrab.core.lanes import LaneRules
from hermitcrab.core.loop import HostLoop
from hermitcrab.core.trail import Decision, Ended
from hermitcrab.errors import DeviceFailed


def paused_peer() -> Bench:
    """One running stream in the large session, one paused in the small one; its next move fails."""
    bench = sized(128, 24)
    bench.submit(ask("runner", prompt_tokens=60, max_new_tokens=60), ask("peer", max_new_tokens=100))
    bench.step_until_paused("peer")
    bench.backend.fail_next(CallKind.MOVE, DeviceFailed("the copy failed"))
    return bench


def test_the_last_running_stream_is_cancelled_and_its_release_fails_the_paused_peer() -> None:
    bench = paused_peer()
    bench.loop.cancel("runner")
    worked = bench.loop.step()
    assert not worked
    assert bench.ears["runner"].terminal == Finished(
        FinishReason.CANCELLED, bench.ears["runner"].terminal.usage
    )
    assert isinstance(bench.ears["peer"].terminal, Failed)
    assert str(bench.ears["peer"].terminal.error) == "the copy failed"
    assert bench.is_clean


def test_the_last_running_stream_ends_by_itself_and_its_release_fails_the_paused_peer() -> None:
    bench = paused_peer()
    while not bench.ears["runner"].terminals:
        bench.step()
    assert isinstance(bench.ears["peer"].terminal, Failed)
    assert bench.is_clean


def test_a_cancel_during_prefill_releases_and_fails_a_peer() -> None:
    bench = sized(128, 24)
    bench.submit(ask("filler", prompt_tokens=100, max_new_tokens=8), ask("peer", max_new_tokens=100))
    bench.step_until_paused("peer")
    assert bench.ears["filler"].states[-1] is Progress.FILLING
    assert bench.tokens("filler") == []
    bench.backend.fail_next(CallKind.MOVE, DeviceFailed("the copy failed"))
    bench.loop.cancel("filler")
    bench.step()
    assert bench.ears["filler"].terminal.usage.completion_tokens == 0
    assert isinstance(bench.ears["peer"].terminal, Failed)
    assert bench.is_clean


class BrokenTracer:
    """A trace or log that cannot be written."""

    def note(self, decision: Decision) -> None:
        raise MemoryError("no memory for the trace")


def test_a_trace_failure_in_the_middle_of_a_sweep_does_not_stop_the_cleanup() -> None:
    backend, book = FakeBackend((128, 24, 24)), Book()
    bench = Bench(backend, LaneRules(grow_tokens=8))
    bench.loop = HostLoop(backend, LaneRules(grow_tokens=8), ScriptedClock(), (BrokenTracer(), book))
    bench.submit(ask("runner", prompt_tokens=60, max_new_tokens=60))
    bench.submit(*(ask(name, max_new_tokens=100) for name in ("one", "two")))
    bench.step_until_paused("one")
    bench.step_until_paused("two")
    for name in ("runner", "one", "two"):
        bench.loop.cancel(name)
    bench.step()
    assert [len(ear.terminals) for ear in bench.ears.values()] == [1, 1, 1]
    assert len(book.of(Ended)) == 3
    assert bench.is_clean


def test_a_broken_trace_changes_no_reply() -> None:
    backend = FakeBackend((128, 24, 24))
    bench = Bench(backend, LaneRules(grow_tokens=8))
    bench.loop = HostLoop(backend, LaneRules(grow_tokens=8), ScriptedClock(), (BrokenTracer(),))
    bench.submit(ask("one", max_new_tokens=80), ask("two", max_new_tokens=80))
    bench.run()
    assert bench.tokens("two") == solo(ask("two", max_new_tokens=80))


def on_release(bench: Bench, then: Callable[[], None]) -> None:
    """Call `then` once, in the middle of the next release."""
    is_over = False

    def hook(call: Call) -> None:
        nonlocal is_over
        if call.kind is CallKind.RELEASE and not is_over:
            is_over = True
            then()

    bench.backend.on_call = hook


@pytest.mark.parametrize("way", ["step", "discard"])
def test_a_stream_ended_by_anothers_release_leaves_the_live_list(way: str) -> None:
    bench = sized(64, 64)
    bench.submit(ask("first", max_new_tokens=12), ask("second", max_new_tokens=40))
    bench.step_until_live("first", "second")
    first, second = bench.loop.engine.streams
    on_release(bench, lambda: second.finish(DeviceFailed("ended by a release")))
    if way == "discard":
        bench.loop.engine.discard(first, FinishReason.CANCELLED)
    else:
        while not first.is_finished:
            bench.loop.engine.step()
    assert bench.loop.engine.streams == ()
    assert len(bench.loop.engine.table.free()) == 2


def test_a_stream_ended_by_a_release_between_two_steps_is_delivered_without_any_running() -> None:
    bench = sized(64, 64)
    bench.submit(ask("first", max_new_tokens=40), ask("second", max_new_tokens=40))
    bench.step_until_live("first", "second")
    second = bench.loop.engine.streams[1]
    on_release(bench, lambda: second.finish(DeviceFailed("ended by a release")))
    bench.loop.cancel("first")
    assert not bench.loop.step()
    assert isinstance(bench.ears["second"].terminal, Failed)


def test_a_terminal_event_comes_after_every_token_and_once() -> None:
    bench = sized(64, 24)
    bench.submit(*(ask(name, max_new_tokens=20) for name in "abc"))
    bench.run()
    for ear in bench.ears.values():
        assert ear.events[-1] is ear.terminal
        assert len(ear.tokens) == 20


def test_a_terminal_event_is_sent_when_the_session_is_back() -> None:
    bench = sized(64)
    free_at_end: list[bool] = []

    class Watcher:
        def put(self, event: object) -> None:
            if isinstance(event, Finished | Failed):
                free_at_end.append(bench.backend.is_empty(0) and bench.loop.snapshot.streams == ())

    bench.loop.submit(ask("a"), Watcher())
    bench.run()
    assert free_at_end == [True]
