"""Growing, moving and resuming, through the host on the fake. In the words of docs/sessions.md."""

import logging

import pytest
from lane_bench import GREEDY, SAMPLED, Bench, Ear, ask, sized, solo, solos, unsized

from hermitcrab.clock import ScriptedClock
from hermitcrab.core.api import Failed, Finished, FinishReason, Progress
from hermitcrab.core.backend import SlotId
from hermitcrab.core.fake import Call, CallKind, FakeBackend
from hermitcrab.core.lanes import MOST_STALLS, LaneEngine, LaneRules
from hermitcrab.core.loop import HostLoop
from hermitcrab.core.stream import Limits, Stream
from hermitcrab.core.trail import Moved, Waits
from hermitcrab.errors import DeviceFailed, LaneMemory, SessionFull, StateNotSettled
from hermitcrab.sampling.params import Sampling

SAMPLINGS = pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])


def first_draft_only(position: int, index: int) -> bool:
    """Every draft but one is rejected."""
    return index == 0


def outgrow_together(bench: Bench) -> None:
    """Two long replies in two small sessions, one larger session beside them."""
    bench.submit(ask("one", max_new_tokens=80), ask("two", max_new_tokens=80))


@SAMPLINGS
def test_a_reply_that_moves_twice_equals_one_that_never_moved(sampling: Sampling) -> None:
    bench = sized(256, 64, 24, 24)
    request = ask("count", max_new_tokens=200, sampling=sampling)
    bench.submit(request)
    bench.run()
    assert bench.ears["count"].terminal.usage.moves == 2
    assert bench.tokens("count") == solo(request)
    assert bench.is_clean


@SAMPLINGS
def test_two_replies_that_outgrow_together_both_equal_one_that_never_moved(sampling: Sampling) -> None:
    bench = sized(128, 24, 24)
    requests = [ask(name, max_new_tokens=80, sampling=sampling) for name in ("one", "two")]
    bench.submit(*requests)
    bench.run()
    assert [bench.tokens("one"), bench.tokens("two")] == solos(requests)


def test_of_two_that_outgrow_together_one_moves_and_the_other_waits_then_moves() -> None:
    bench = sized(128, 24, 24)
    outgrow_together(bench)
    bench.run()
    assert [type(decision) for decision in bench.book.decisions if isinstance(decision, Moved | Waits)] == [
        Moved,
        Waits,
        Moved,
    ]
    assert Progress.PAUSED not in bench.ears["one"].states
    assert bench.ears["two"].states[-3:] == [Progress.PAUSED, Progress.MOVED, Progress.RESUMED]


def test_eight_streams_with_more_rows_than_all_sessions_together_all_finish() -> None:
    bench = sized(128, 48, 32, 24, 24, 24, 24, 24)
    requests = [ask(f"r{index}", max_new_tokens=110) for index in range(8)]
    bench.submit(*requests)
    bench.run()
    assert [bench.tokens(request.id) for request in requests] == solos(requests)
    assert bench.is_clean


def test_a_stream_moves_at_most_once_a_size() -> None:
    bench = sized(256, 128, 64, 32, 24)
    bench.submit(ask("long", max_new_tokens=230))
    bench.run()
    assert bench.ears["long"].terminal.usage.moves == 4


def test_a_short_reply_never_moves() -> None:
    bench = sized(256, 24)
    bench.submit(ask("short", max_new_tokens=230, eos_ids=frozenset(range(16))))
    bench.run()
    assert bench.ears["short"].terminal.usage.moves == 0


@pytest.mark.parametrize("make", [sized, unsized], ids=["option set", "option unset"])
def test_near_the_limit_with_every_draft_but_one_rejected_it_never_pauses(make: type[Bench]) -> None:
    bench = make(64, 64, lands=first_draft_only)
    requests = [ask(name, prompt_tokens=10, max_new_tokens=5000) for name in ("one", "two")]
    bench.submit(*requests)
    bench.run()
    assert bench.book.of(Waits) == bench.book.of(Moved) == []
    assert [len(bench.tokens(request.id)) for request in requests] == [64 - 4 - 10] * 2
    assert [bench.tokens(request.id) for request in requests] == [
        solo(ask(name, prompt_tokens=10, max_new_tokens=50)) for name in ("one", "two")
    ]


def test_outgrowing_with_every_draft_but_one_rejected_it_moves_while_a_larger_session_is_free() -> None:
    bench = sized(128, 24, lands=first_draft_only)
    bench.submit(ask("grower", max_new_tokens=100))
    bench.run()
    assert bench.ears["grower"].states.count(Progress.MOVED) == 1
    assert bench.tokens("grower") == solo(ask("grower", max_new_tokens=100))


def test_outgrowing_with_none_free_it_pauses_on_a_state_from_which_a_round_still_fits() -> None:
    bench = sized(128, 24, lands=first_draft_only)
    bench.submit(ask("holder", prompt_tokens=60, max_new_tokens=60), ask("grower", max_new_tokens=100))
    bench.step_until_paused("grower")
    assert bench.backend.rows(1) + bench.loop.engine.sizing.window_rows <= 24


def test_no_round_serves_a_paused_stream() -> None:
    bench = sized(128, 24)
    bench.submit(ask("holder", prompt_tokens=60, max_new_tokens=60), ask("grower", max_new_tokens=100))
    bench.step_until_paused("grower")
    heard = len(bench.tokens("grower"))
    bench.step()
    assert len(bench.tokens("grower")) == heard
    assert not bench.ears["holder"].terminals


def test_a_stream_that_has_outgrown_every_session_ends_with_a_clear_error() -> None:
    backend = FakeBackend((32, 24))
    engine = LaneEngine(backend, LaneRules(grow_tokens=8), ScriptedClock(), ())
    stream = Stream(ask("lost", max_new_tokens=100), Limits(4, 100, 4), now_s=0.0)
    engine.add(stream, SlotId(0))
    while engine.step():
        pass
    assert isinstance(stream.reply.outcome, SessionFull)
    assert "outgrown its session of 32 tokens" in str(stream.reply.outcome)
    assert not engine.streams


def test_the_log_says_a_wait_and_a_move_in_one_line_each(caplog: pytest.LogCaptureFixture) -> None:
    loop = HostLoop(
        FakeBackend((262176, 16416, 16416), prompt_pass_rows=4096), LaneRules(grow_tokens=8), ScriptedClock()
    )
    with caplog.at_level(logging.INFO, "hermitcrab.core"):
        for name in ("one", "two"):
            loop.submit(ask(name, prompt_tokens=16360, max_new_tokens=100), Ear())
        while loop.has_requests:
            loop.step()
    assert caplog.messages == [
        "a stream at 16412 tokens moved from a 16416-token session to a 262176-token one",
        "a stream at 16412 tokens waits for a session larger than 16416 tokens to free",
        "a stream at 16412 tokens moved from a 16416-token session to a 262176-token one",
    ]


def test_a_move_is_made_of_settled_state_and_its_source_is_freed_after_the_copy() -> None:
    bench = sized(128, 24)
    bench.submit(ask("grower", max_new_tokens=60))
    bench.run()
    kinds = [call.kind for call in bench.backend.calls]
    at = kinds.index(CallKind.MOVE)
    assert kinds[at - 1 : at + 2] == [CallKind.KEEP, CallKind.MOVE, CallKind.RELEASE]
    assert bench.backend.calls[at].slots == (1, 0)
    assert bench.backend.calls[at + 1].slots == (1,)


def test_the_head_goes_on_after_a_move_where_it_was_before() -> None:
    bench = sized(128, 24)
    bench.submit(ask("grower", max_new_tokens=60))
    bench.run()
    calls = bench.backend.calls
    at = next(index for index, call in enumerate(calls) if call.kind is CallKind.MOVE)
    assert [call.kind for call in calls[at + 2 : at + 4]] == [CallKind.DRAFT, CallKind.VERIFY]
    assert calls[at + 3].rows == (4,)


def test_paused_streams_come_before_new_requests_for_a_freed_session() -> None:
    bench = sized(128, 24)
    bench.submit(ask("holder", prompt_tokens=60, max_new_tokens=50), ask("grower", max_new_tokens=100))
    bench.step_until_paused("grower")
    bench.submit(ask("newcomer", prompt_tokens=60))
    bench.run()
    ends = [decision.request_id for decision in bench.book.decisions if hasattr(decision, "outcome")]
    assert ends == ["holder", "grower", "newcomer"]


def test_paused_streams_resume_oldest_first() -> None:
    bench = sized(128, 24, 24)
    bench.submit(ask("holder", prompt_tokens=60, max_new_tokens=60))
    outgrow_together(bench)
    bench.step_until_paused("two")
    bench.run()
    assert [move.request_id for move in bench.book.of(Moved)] == ["one", "two"]


def test_a_session_that_a_resumed_stream_leaves_lets_the_next_one_in() -> None:
    bench = sized(160, 48, 24)
    bench.submit(
        ask("holder", prompt_tokens=60, max_new_tokens=80),
        ask("middle", prompt_tokens=18, max_new_tokens=100),
        ask("small", max_new_tokens=100),
    )
    bench.step_until_paused("middle")
    bench.step_until_paused("small")
    bench.loop.cancel("holder")
    bench.step()
    assert (bench.slot_of("middle"), bench.slot_of("small")) == (0, 1)


def test_the_session_of_a_stream_whose_move_failed_lets_the_next_paused_one_in() -> None:
    bench = sized(160, 48, 24)
    bench.submit(
        ask("holder", prompt_tokens=60, max_new_tokens=80),
        ask("middle", prompt_tokens=18, max_new_tokens=100),
        ask("small", max_new_tokens=100),
    )
    bench.step_until_paused("middle")
    bench.step_until_paused("small")
    bench.backend.fail_next(CallKind.MOVE, DeviceFailed("the copy failed"))

    def refuse_the_second(call: Call) -> None:
        if call.kind is CallKind.MOVE and call.slots == (1, 0):
            bench.backend.fail_next(CallKind.MOVE, LaneMemory("no memory now"))

    bench.backend.on_call = refuse_the_second
    bench.loop.cancel("holder")
    assert [stream.request.id for stream in bench.loop.engine.streams] == ["small"]
    assert bench.slot_of("small") == 1


@pytest.mark.parametrize("times", [1, 3])
def test_a_paused_stream_goes_on_waiting_when_there_is_no_memory_for_the_move(times: int) -> None:
    bench = sized(128, 24)
    bench.submit(ask("holder", prompt_tokens=60, max_new_tokens=40), ask("grower", max_new_tokens=100))
    bench.step_until_paused("grower")

    def refuse_some(call: object) -> None:
        if len([call for call in bench.backend.calls if call.kind is CallKind.MOVE]) <= times:
            bench.backend.fail_next(CallKind.MOVE, LaneMemory("no memory now"))

    refuse_some(None)
    bench.backend.on_call = refuse_some
    bench.run()
    assert bench.tokens("grower") == solo(ask("grower", max_new_tokens=100))
    assert bench.is_clean


def test_a_move_refused_for_memory_pauses_a_running_stream_with_one_log_line() -> None:
    bench = sized(128, 24)
    bench.submit(ask("grower", max_new_tokens=60))
    bench.backend.fail_next(CallKind.MOVE, LaneMemory("no memory now"))
    bench.run()
    assert len(bench.book.of(Waits)) == 1
    assert bench.tokens("grower") == solo(ask("grower", max_new_tokens=60))


def test_no_new_request_takes_a_session_a_paused_stream_still_waits_for() -> None:
    bench = sized(128, 48, 24)
    bench.submit(ask("runner", prompt_tokens=18, max_new_tokens=26), ask("grower", max_new_tokens=100))
    bench.backend.on_call = lambda call: bench.backend.fail_next(CallKind.MOVE, LaneMemory("no memory now"))
    bench.step_until_paused("grower")
    bench.submit(ask("newcomer", prompt_tokens=60))
    bench.step(2)
    assert (bench.slot_of("runner"), bench.slot_of("newcomer")) == (1, None)


def test_a_stream_is_given_up_when_nothing_runs_and_there_is_never_memory_for_its_move() -> None:
    bench = sized(128, 24)
    bench.submit(ask("grower", max_new_tokens=60))
    bench.backend.fail_next(CallKind.MOVE, LaneMemory("no memory now"))
    bench.backend.on_call = lambda call: bench.backend.fail_next(CallKind.MOVE, LaneMemory("no memory now"))
    bench.run()
    assert isinstance(bench.ears["grower"].terminal, Failed)
    assert isinstance(bench.ears["grower"].terminal.error, LaneMemory)
    bench.submit(ask("next", max_new_tokens=4))
    bench.run()
    assert bench.tokens("next") == solo(ask("next", max_new_tokens=4))


def refuse_every_move(bench: Bench) -> None:
    """From the next call on, there is no memory for any move."""
    bench.backend.fail_next(CallKind.MOVE, LaneMemory("no memory now"))
    bench.backend.on_call = lambda call: bench.backend.fail_next(CallKind.MOVE, LaneMemory("no memory now"))


def test_each_of_several_stuck_streams_is_given_up_in_its_turn_the_youngest_first() -> None:
    bench = sized(128, 24, 24)
    outgrow_together(bench)
    refuse_every_move(bench)
    bench.step_until_paused("one")
    bench.step_until_paused("two")
    bench.step(MOST_STALLS)
    assert [len(bench.ears[name].terminals) for name in ("one", "two")] == [0, 1]
    bench.step(MOST_STALLS)
    assert [len(bench.ears[name].terminals) for name in ("one", "two")] == [1, 1]


def test_only_steps_in_a_row_without_work_count_towards_giving_up() -> None:
    bench = sized(128, 24, 24)
    bench.submit(ask("grower", max_new_tokens=60))
    refuse_every_move(bench)
    bench.step_until_paused("grower")
    for turn in range(3):
        bench.step(MOST_STALLS - 2)
        # the sessions the paused one waits for are kept for it; the third holds this one
        bench.submit(ask(f"other{turn}", max_new_tokens=1))
        bench.step(2)
        assert bench.ears[f"other{turn}"].terminals
    assert not bench.ears["grower"].terminals


@pytest.mark.parametrize(
    "error", [DeviceFailed("the copy failed"), StateNotSettled("a window waits"), RuntimeError("ecc error")]
)
def test_any_other_failed_move_ends_a_paused_stream_and_frees_its_session_at_once(error: Exception) -> None:
    bench = sized(128, 24)
    bench.submit(ask("holder", prompt_tokens=60, max_new_tokens=60), ask("grower", max_new_tokens=100))
    bench.step_until_paused("grower")
    bench.backend.fail_next(CallKind.MOVE, error)
    bench.loop.cancel("holder")
    bench.step()
    terminal = bench.ears["grower"].terminal
    assert isinstance(terminal, Failed)
    assert str(error) in str(terminal.error)
    assert bench.is_clean


def test_any_other_failed_move_ends_a_running_stream_and_leaves_its_peers_unchanged() -> None:
    bench = sized(128, 48, 24)
    bench.submit(ask("peer", prompt_tokens=30, max_new_tokens=10), ask("grower", max_new_tokens=100))
    bench.backend.fail_next(CallKind.MOVE, DeviceFailed("the copy failed"))
    bench.run()
    assert isinstance(bench.ears["grower"].terminal, Failed)
    assert bench.tokens("peer") == solo(ask("peer", prompt_tokens=30, max_new_tokens=10))
    assert bench.is_clean


def test_when_the_last_larger_session_frees_one_move_fails_one_peer_waits_and_one_moves() -> None:
    bench = sized(128, 24, 24, 24)
    bench.submit(ask("holder", prompt_tokens=60, max_new_tokens=60))
    names = ["fails", "moves", "waits"]
    bench.submit(*(ask(name, max_new_tokens=100) for name in names))
    for name in names:
        bench.step_until_paused(name)
    bench.backend.fail_next(CallKind.MOVE, DeviceFailed("the copy failed"))
    bench.loop.cancel("holder")
    bench.step()
    assert isinstance(bench.ears["fails"].terminal, Failed)
    assert (bench.slot_of("moves"), bench.ears["moves"].states[-1]) == (0, Progress.RESUMED)
    assert bench.ears["waits"].states[-1] is Progress.PAUSED
    bench.run()
    assert [bench.tokens(name) for name in names[1:]] == solos(
        [ask(name, max_new_tokens=100) for name in names[1:]]
    )
    assert bench.is_clean


def test_time_in_a_pause_counts_as_waiting() -> None:
    bench = sized(128, 24)
    bench.submit(ask("holder", prompt_tokens=60, max_new_tokens=60), ask("grower", max_new_tokens=100))
    bench.step_until_paused("grower")
    bench.clock.advance(7.5)
    bench.run()
    assert bench.ears["grower"].terminal == Finished(FinishReason.LENGTH, bench.ears["grower"].terminal.usage)
    assert bench.ears["grower"].terminal.usage.waited_s == 7.5
