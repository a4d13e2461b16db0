"""The host's inner loop: queue, cancels, delivery, what requests cost."""

import pytest
from lane_bench import Ear, ask, sized, solo, unsized

from hermitcrab.core.api import (
    Event,
    Failed,
    Finished,
    FinishReason,
    Progress,
    Progressed,
    Request,
    StreamState,
)
from hermitcrab.core.fake import CallKind
from hermitcrab.errors import DeviceFailed, RequestError, ShuttingDown
from hermitcrab.sampling.params import Sampling


def test_requests_start_in_order_of_arrival() -> None:
    bench = unsized(64)
    bench.submit(*(ask(name, max_new_tokens=2) for name in "abc"))
    bench.run()
    ends = [decision.request_id for decision in bench.book.decisions if hasattr(decision, "outcome")]
    assert ends == ["a", "b", "c"]


def test_a_queued_request_is_cancelled_before_the_next_round() -> None:
    bench = unsized(64)
    bench.submit(ask("runs", max_new_tokens=20), ask("queued"))
    bench.step_until_live("runs")
    bench.loop.cancel("queued")
    bench.step()
    assert isinstance(bench.ears["queued"].terminal, Finished)
    assert bench.ears["queued"].terminal.reason is FinishReason.CANCELLED
    assert not bench.ears["runs"].terminals


@pytest.mark.parametrize("phase", ["filling", "live", "paused"])
def test_an_admitted_request_is_cancelled_and_its_session_is_back_before_the_next_round(phase: str) -> None:
    bench = sized(128, 24)
    bench.submit(ask("holder", prompt_tokens=60, max_new_tokens=60))
    bench.submit(ask("goner", prompt_tokens=12 if phase == "filling" else 4, max_new_tokens=100))
    if phase == "paused":
        bench.step_until_paused("goner")
    elif phase == "live":
        bench.step_until_live("goner")
    else:
        bench.step()
    bench.loop.cancel("goner")
    assert bench.backend.is_empty(1)
    bench.step()
    assert isinstance(bench.ears["goner"].terminal, Finished)
    bench.run()
    assert bench.tokens("holder") == solo(ask("holder", prompt_tokens=60, max_new_tokens=60))


def test_cancelling_an_unknown_or_finished_request_is_ignored() -> None:
    bench = unsized(64)
    bench.loop.cancel("nobody")
    bench.submit(ask("a"))
    bench.run()
    bench.loop.cancel("a")
    bench.step()
    assert len(bench.ears["a"].terminals) == 1


def test_fifty_requests_abandoned_in_the_queue_do_not_delay_the_next() -> None:
    bench = unsized(64)
    bench.submit(ask("runs", max_new_tokens=8))
    names = [f"r{index}" for index in range(50)]
    bench.submit(*(ask(name) for name in names), ask("next"))
    bench.step()
    for name in names:
        bench.loop.cancel(name)
    bench.run()
    assert bench.tokens("next") == solo(ask("next"))
    assert sum(call.kind == "prefill" for call in bench.backend.calls) == 2


class Deaf(Ear):
    """A sink that fails from its n-th event on."""

    def __init__(self, nth: int) -> None:
        super().__init__()
        self.nth = nth

    def put(self, event: Event) -> None:
        super().put(event)
        if len(self.events) >= self.nth:
            raise OSError("the client is gone")


@pytest.mark.parametrize("nth", range(1, 8))
def test_a_sink_that_raises_cancels_its_own_request_only(nth: int) -> None:
    bench = unsized(64, 64)
    deaf = Deaf(nth)
    bench.loop.submit(ask("deaf", max_new_tokens=40), deaf)
    bench.submit(ask("peer", max_new_tokens=40))
    bench.run()
    assert len(deaf.terminals) == 1
    assert len(deaf.events) == nth + 1
    assert bench.tokens("peer") == solo(ask("peer", max_new_tokens=40))
    assert bench.is_clean


def test_a_sink_that_fails_at_its_terminal_event_hears_no_second_one() -> None:
    bench = unsized(64)
    deaf = Deaf(5)
    bench.loop.submit(ask("deaf", max_new_tokens=5), deaf)
    bench.run()
    assert [type(event) for event in deaf.events][-1] is Finished
    assert len(deaf.terminals) == 1


def test_a_lost_client_whose_release_fails_a_paused_peer_does_not_leave_it_unheard() -> None:
    bench = sized(128, 24)
    deaf = Deaf(100)
    bench.loop.submit(ask("deaf", prompt_tokens=60, max_new_tokens=60), deaf)
    bench.submit(ask("peer", max_new_tokens=100))
    bench.step_until_paused("peer")
    deaf.nth = 0
    bench.backend.fail_next(CallKind.MOVE, DeviceFailed("the copy failed"))
    bench.step()
    assert isinstance(bench.ears["peer"].terminal, Failed)
    assert not bench.loop.has_requests


@pytest.mark.parametrize(
    ("request_", "param"),
    [
        (Request("a", (), Sampling()), "prompt"),
        (Request("a", (3, 16), Sampling()), "prompt"),
        (Request("a", (-1,), Sampling()), "prompt"),
        (Request("a", (1,), Sampling(), max_new_tokens=0), "max_tokens"),
    ],
)
def test_a_request_that_is_none_is_refused_and_its_sink_never_called(request_: Request, param: str) -> None:
    bench = unsized(64)
    ear = Ear()
    with pytest.raises(RequestError) as caught:
        bench.loop.submit(request_, ear)
    assert caught.value.param == param
    bench.step()
    assert ear.events == []


def test_an_id_in_use_is_refused_until_its_request_has_ended() -> None:
    bench = unsized(64)
    bench.submit(ask("a"))
    with pytest.raises(RequestError, match="already here"):
        bench.loop.submit(ask("a"), Ear())
    bench.run()
    bench.submit(ask("a"))
    bench.run()
    assert bench.tokens("a") == solo(ask("a"))


def test_usage_tells_waiting_first_token_and_decode_times() -> None:
    bench = unsized(64, draft_depth=0)
    bench.submit(ask("first", max_new_tokens=3), ask("second", max_new_tokens=3))
    while bench.loop.has_requests:
        bench.loop.step()
        bench.clock.advance(1.0)
    first, second = (bench.ears[name].terminal.usage for name in ("first", "second"))
    # a step each: the prompt with the first token, then two rounds
    assert (first.waited_s, first.first_token_s, first.decode_s) == (0.0, 0.0, 2.0)
    assert (second.waited_s, second.first_token_s, second.decode_s) == (3.0, 3.0, 2.0)


def test_status_shows_sessions_and_streams_as_they_are() -> None:
    bench = sized(128, 24)
    bench.submit(ask("a", prompt_tokens=20, max_new_tokens=40), ask("b"), ask("c"))
    bench.clock.advance(2.0)
    bench.step(3)
    status = bench.loop.take_snapshot()
    assert [(line.slot, line.capacity_rows, line.used_rows, line.request_id) for line in status.sessions] == [
        (0, 128, 8, "a"),
        (1, 24, 8, "b"),
    ]
    assert [
        (line.request_id, line.state, line.slot, line.filled_rows, line.age_s) for line in status.streams
    ] == [
        ("a", StreamState.FILLING, 0, 8, 2.0),
        ("b", StreamState.LIVE, 1, 4, 2.0),
        ("c", StreamState.QUEUED, None, 0, 2.0),
    ]


def test_status_counts_exactly() -> None:
    bench = sized(128, 24, 24)
    bench.submit(ask("a", max_new_tokens=80), ask("b", max_new_tokens=80), ask("c"))
    bench.step_until_live("a", "b")
    bench.loop.cancel("c")
    bench.run()
    status = bench.loop.snapshot
    usages = [bench.ears[name].terminal.usage for name in "abc"]
    assert (status.requests_finished, status.requests_cancelled, status.requests_failed) == (2, 1, 0)
    assert status.reply_tokens == sum(usage.completion_tokens for usage in usages)
    assert status.drafted == sum(usage.drafted for usage in usages)
    assert status.accepted == sum(usage.accepted for usage in usages)
    assert status.moves == sum(usage.moves for usage in usages) == 2
    assert status.pauses == 1
    assert status.rounds == sum(call.kind == "verify" for call in bench.backend.calls)
    assert status.prompt_tokens == sum(call.rows[0] for call in bench.backend.calls if call.kind == "prefill")


def test_the_token_rate_is_over_the_last_two_seconds() -> None:
    bench = unsized(256, draft_depth=0)
    bench.submit(ask("a", max_new_tokens=200))
    bench.step_until_live("a")
    for _ in range(50):
        bench.clock.advance(0.125)
        bench.step()
    assert bench.loop.take_snapshot().tokens_per_s == 8.0
    bench.loop.cancel("a")
    bench.clock.advance(10.0)
    bench.step()
    assert bench.loop.snapshot.tokens_per_s == 0.0


def test_draining_fails_the_queue_and_lets_running_replies_end() -> None:
    bench = unsized(64)
    bench.submit(ask("runs", max_new_tokens=20), ask("queued"))
    bench.step_until_live("runs")
    bench.loop.drain(ShuttingDown("ending", retry_after_s=5))
    bench.run()
    assert isinstance(bench.ears["queued"].terminal, Failed)
    assert bench.tokens("runs") == solo(ask("runs", max_new_tokens=20))


def test_a_session_is_shown_free_when_a_reply_has_ended() -> None:
    bench = unsized(64)
    bench.submit(ask("a"))
    bench.run()
    assert [line.request_id for line in bench.loop.snapshot.sessions] == [None]
    assert bench.loop.snapshot.streams == ()


def test_the_first_event_is_queued_and_filling_follows() -> None:
    bench = unsized(64)
    bench.submit(ask("a"))
    bench.step()
    assert bench.ears["a"].events[:2] == [Progressed(Progress.QUEUED, 0), Progressed(Progress.FILLING, 0)]


def test_while_only_tokens_come_the_snapshot_is_taken_every_twentieth_of_a_second() -> None:
    bench = unsized(256)
    bench.submit(ask("a", max_new_tokens=200))
    bench.step_until_live("a")
    bench.clock.advance(0.0625)
    bench.step()
    taken = bench.loop.snapshot
    bench.step(3)
    assert bench.loop.snapshot is taken
    bench.clock.advance(0.0625)
    bench.step()
    assert bench.loop.snapshot is not taken
