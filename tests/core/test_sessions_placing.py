"""Placing: where a new stream starts, who waits, who may pass whom. In the words of docs/sessions.md."""

import pytest
from lane_bench import Bench, ask, sized, solo, unsized

from hermitcrab.core.admission import MOST_PASSES, Later, Never, Now, Sizing, fits
from hermitcrab.core.api import Failed, Finished, FinishReason, Progress
from hermitcrab.core.backend import SlotId
from hermitcrab.core.fake import FakeBackend
from hermitcrab.core.lanes import LaneRules
from hermitcrab.core.slots import SlotTable
from hermitcrab.core.stream import Limits
from hermitcrab.errors import ContextLengthExceeded

SIZING = Sizing(window_rows=4, grow_tokens=8)
SESSIONS = SlotTable((128, 32, 24, 24)).sessions


def limits(prompt_tokens: int, max_new_tokens: int) -> Limits:
    return Limits(prompt_tokens=prompt_tokens, max_new_tokens=max_new_tokens, window_rows=4)


def test_a_new_stream_takes_the_smallest_free_session_that_holds_prompt_growth_and_a_window() -> None:
    assert fits(limits(12, 100), free=SESSIONS, sessions=SESSIONS, sizing=SIZING) == Now(SlotId(2))
    assert fits(limits(13, 100), free=SESSIONS, sessions=SESSIONS, sizing=SIZING) == Now(SlotId(1))


def test_a_reply_shorter_than_the_growth_needs_only_itself() -> None:
    assert fits(limits(18, 2), free=SESSIONS, sessions=SESSIONS, sizing=SIZING) == Now(SlotId(2))


def test_among_equal_sessions_the_first_is_taken() -> None:
    assert fits(limits(4, 4), free=SESSIONS[2:], sessions=SESSIONS, sizing=SIZING) == Now(SlotId(2))


def test_a_stream_the_largest_session_cannot_hold_to_its_end_never_fits() -> None:
    assert fits(limits(28, 97), free=SESSIONS, sessions=SESSIONS, sizing=SIZING) == Never()
    assert fits(limits(28, 96), free=SESSIONS, sessions=SESSIONS, sizing=SIZING) == Now(SlotId(0))


def test_a_stream_whose_first_part_fits_no_free_session_fits_later() -> None:
    assert fits(limits(60, 8), free=SESSIONS[1:], sessions=SESSIONS, sizing=SIZING) == Later()


def test_a_prompt_that_can_never_fit_is_refused_at_once_with_both_counts() -> None:
    bench = sized(64, 24)
    with pytest.raises(ContextLengthExceeded) as caught:
        bench.submit(ask("long", prompt_tokens=60))
    assert (caught.value.prompt_tokens, caught.value.context_tokens) == (60, 60)


def test_the_advertised_context_is_what_the_largest_session_holds() -> None:
    assert sized(24, 64, 24).loop.gate.context_tokens == 64 - 4


def test_the_operators_window_caps_the_advertised_context_below_the_session() -> None:
    bench = Bench(FakeBackend((64,)), LaneRules(grow_tokens=8, context_tokens=32))
    bench.submit(ask("open", prompt_tokens=10, max_new_tokens=None))
    bench.run()
    assert bench.loop.gate.context_tokens == 32
    assert bench.ears["open"].terminal.usage.completion_tokens == 22


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_the_room_for_a_reply_does_not_depend_on_drafting(depth: int) -> None:
    assert unsized(64, draft_depth=depth).loop.gate.context_tokens == 60


def test_more_new_tokens_than_the_largest_session_has_room_for_are_cut_to_it() -> None:
    bench = sized(64, 24)
    bench.submit(ask("greedy-agent", prompt_tokens=10, max_new_tokens=5000))
    bench.run()
    assert bench.ears["greedy-agent"].terminal.usage.completion_tokens == 64 - 4 - 10
    assert bench.ears["greedy-agent"].terminal == Finished(
        FinishReason.LENGTH, bench.ears["greedy-agent"].terminal.usage
    )


def test_no_limit_on_new_tokens_means_the_room_of_the_largest_session() -> None:
    bench = sized(64, 24)
    bench.submit(ask("open", prompt_tokens=59, max_new_tokens=None))
    bench.run()
    assert bench.ears["open"].terminal.usage.completion_tokens == 1


def test_a_long_prompt_is_placed_whole_while_small_sessions_are_idle() -> None:
    bench = sized(128, 24, 24)
    bench.submit(ask("whole", prompt_tokens=90))
    bench.run()
    assert bench.ears["whole"].terminal.usage.prompt_tokens == 90
    assert bench.backend.calls[0].slots == (0,)


def test_starting_depends_on_the_growth_and_not_on_the_most_new_tokens() -> None:
    bench = sized(1024, *[32] * 6)
    names = [f"r{index}" for index in range(7)]
    bench.submit(*(ask(name, prompt_tokens=6, max_new_tokens=900) for name in names))
    bench.step()
    assert None not in [bench.slot_of(name) for name in names]


def test_a_request_waits_for_a_session_that_holds_it() -> None:
    bench = sized(64, 24)
    bench.submit(ask("first", prompt_tokens=40), ask("second", prompt_tokens=40))
    bench.step_until_live("first")
    assert bench.ears["second"].states == [Progress.QUEUED]
    bench.run()
    assert bench.tokens("second") == solo(ask("second", prompt_tokens=40))


def test_a_later_request_that_fits_passes_a_waiting_head() -> None:
    bench = sized(64, 24)
    bench.submit(ask("big", prompt_tokens=40, max_new_tokens=12), ask("head", prompt_tokens=40), ask("small"))
    bench.step()
    assert (bench.slot_of("big"), bench.slot_of("head"), bench.slot_of("small")) == (0, None, 1)


def test_a_waiting_head_is_passed_by_a_bounded_number_of_streams_that_may_grow() -> None:
    bench = sized(512, 24, draft_depth=0)
    bench.submit(ask("big", prompt_tokens=40, max_new_tokens=400), ask("head", prompt_tokens=400))
    passers = [f"p{index}" for index in range(MOST_PASSES + 2)]
    # each ends after its first token, and could have outgrown the small session
    bench.submit(*(ask(name, max_new_tokens=100, eos_ids=frozenset(range(16))) for name in passers))
    bench.step(3 * len(passers))
    ended = [name for name in passers if bench.ears[name].terminals]
    assert ended == passers[:MOST_PASSES]
    assert bench.slot_of("big") == 0


def test_those_held_behind_the_head_start_when_it_has_started() -> None:
    bench = sized(512, 24, draft_depth=0)
    bench.submit(ask("big", prompt_tokens=40, max_new_tokens=200), ask("head", prompt_tokens=400))
    passers = [f"p{index}" for index in range(MOST_PASSES + 1)]
    bench.submit(*(ask(name, max_new_tokens=100, eos_ids=frozenset(range(16))) for name in passers))
    while bench.loop.has_requests:
        bench.loop.step()
        bench.clock.advance(1.0)
    waited_s = {name: ear.terminal.usage.waited_s for name, ear in bench.ears.items()}
    assert waited_s[passers[-1]] == waited_s["head"] > 200.0
    assert waited_s[passers[-2]] < 100.0


def test_a_stream_that_cannot_outgrow_its_session_passes_a_head_without_being_counted() -> None:
    bench = sized(512, 24)
    bench.submit(ask("big", prompt_tokens=40, max_new_tokens=400), ask("head", prompt_tokens=400))
    passers = [f"p{index}" for index in range(2 * MOST_PASSES)]
    bench.submit(*(ask(name, max_new_tokens=1) for name in passers))
    bench.step(3 * len(passers))
    assert all(bench.ears[name].terminals for name in passers)


def test_a_request_that_can_never_fit_does_not_delay_those_behind_it() -> None:
    bench = sized(64, 24)
    with pytest.raises(ContextLengthExceeded):
        bench.submit(ask("never", prompt_tokens=1100))
    bench.submit(ask("next"))
    bench.run()
    assert bench.tokens("next") == solo(ask("next"))


def test_ten_mixed_requests_each_land_in_the_smallest_free_session_that_fits() -> None:
    bench = sized(1024, 512, 512, 256, 256, 256, 256, grow_tokens=64)
    prompts = [700, 300, 20, 20, 300, 20, 20, 20, 20, 20]
    bench.submit(*(ask(f"r{i}", prompt_tokens=n, max_new_tokens=64) for i, n in enumerate(prompts)))
    bench.step()
    assert [bench.slot_of(f"r{i}") for i in range(10)] == [0, 1, 3, 4, 2, 5, 6, None, None, None]
    bench.run()
    assert bench.is_clean
    assert not [ear for ear in bench.ears.values() if isinstance(ear.terminal, Failed)]
