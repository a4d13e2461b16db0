"""The unset path: equal sessions, first free, no growth checks. In the words of docs/sessions.md."""

import pytest
from lane_bench import ask, sized, solos, unsized

from hermitcrab.core.admission import Later, Never, Now, Sizing, fits
from hermitcrab.core.api import Failed, Progress
from hermitcrab.core.backend import SlotId
from hermitcrab.core.fake import CallKind
from hermitcrab.core.slots import SlotTable
from hermitcrab.core.stream import Limits
from hermitcrab.errors import ContextLengthExceeded

UNSET = Sizing(window_rows=4)
SET = Sizing(window_rows=4, grow_tokens=8)


def test_unset_takes_the_first_free_session_where_set_takes_the_smallest_that_fits() -> None:
    sessions = SlotTable((128, 32, 24)).sessions
    limits = Limits(prompt_tokens=4, max_new_tokens=8, window_rows=4)
    assert fits(limits, free=sessions, sessions=sessions, sizing=UNSET) == Now(SlotId(0))
    assert fits(limits, free=sessions[1:], sessions=sessions, sizing=UNSET) == Now(SlotId(1))
    assert fits(limits, free=sessions, sessions=sessions, sizing=SET) == Now(SlotId(2))


def test_unset_the_first_free_session_refuses_at_once_what_it_cannot_hold() -> None:
    sessions = SlotTable((24, 128)).sessions
    limits = Limits(prompt_tokens=20, max_new_tokens=8, window_rows=4)
    assert fits(limits, free=sessions, sessions=sessions, sizing=UNSET) == Never()
    assert fits(limits, free=(), sessions=sessions, sizing=UNSET) == Later()


def test_unset_a_request_its_first_free_session_cannot_hold_fails_with_a_context_error() -> None:
    bench = unsized(24, 128)
    bench.submit(ask("long", prompt_tokens=20))
    bench.step()
    terminal = bench.ears["long"].terminal
    assert isinstance(terminal, Failed)
    assert isinstance(terminal.error, ContextLengthExceeded)


def test_unset_with_equal_sessions_streams_sit_by_slot_in_order_of_arrival() -> None:
    bench = unsized(64, 64, 64)
    bench.submit(ask("a"), ask("b"), ask("c"))
    bench.step()
    assert [bench.slot_of(name) for name in "abc"] == [0, 1, 2]


def test_unset_nothing_ever_moves_or_pauses() -> None:
    bench = unsized(64, 64)
    bench.submit(*(ask(name, max_new_tokens=None) for name in "abcd"))
    bench.run()
    states = {state for ear in bench.ears.values() for state in ear.states}
    assert states == {Progress.QUEUED, Progress.FILLING}
    assert CallKind.MOVE not in [call.kind for call in bench.backend.calls]


def test_unset_a_reply_ends_at_the_sessions_edge_with_length() -> None:
    bench = unsized(64, 64)
    bench.submit(ask("a", prompt_tokens=10, max_new_tokens=5000))
    bench.run()
    assert bench.ears["a"].terminal.usage.completion_tokens == 64 - 4 - 10


def test_unset_requests_beyond_the_sessions_wait_in_order() -> None:
    bench = unsized(64, 64)
    requests = [ask(name, max_new_tokens=20) for name in "abcdef"]
    bench.submit(*requests)
    bench.run()
    assert [bench.tokens(request.id) for request in requests] == solos(requests)
    assert bench.is_clean


@pytest.mark.parametrize("grow_tokens", [1, 8, 1000])
def test_set_and_unset_give_the_same_replies(grow_tokens: int) -> None:
    requests = [ask(name, max_new_tokens=50) for name in "abcd"]
    with_option, without = sized(96, 48, 24, grow_tokens=grow_tokens), unsized(96, 96)
    for bench in (with_option, without):
        bench.submit(*requests)
        bench.run()
    assert [with_option.tokens(name) for name in "abcd"] == [without.tokens(name) for name in "abcd"]
