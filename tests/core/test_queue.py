"""The queue's order: foreground before background, each in order of arrival, and background requests age."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lane_bench import Bench, ask, sized, solo, unsized

from hermitcrab.core.admission import AGEING_S
from hermitcrab.core.api import Priority, Request, StreamState
from hermitcrab.core.trail import Started

FOREGROUND, BACKGROUND = Priority.FOREGROUND, Priority.BACKGROUND


def later(name: str) -> Request:
    return ask(name, max_new_tokens=2, priority=BACKGROUND)


def now(name: str) -> Request:
    return ask(name, max_new_tokens=2)


def started(bench: Bench) -> list[str]:
    """The requests in the order in which they got a session."""
    return [decision.request_id for decision in bench.book.of(Started)]


def test_foreground_requests_start_before_background_ones_and_each_in_order_of_arrival() -> None:
    bench = unsized(64)
    bench.submit(later("b1"), now("f1"), later("b2"), now("f2"))
    bench.run()
    assert started(bench) == ["f1", "f2", "b1", "b2"]


def test_a_background_request_starts_at_once_where_a_session_is_free() -> None:
    bench = unsized(64, 64)
    bench.submit(now("f"), later("b"))
    bench.step()
    assert started(bench) == ["f", "b"]


def test_a_running_background_reply_is_not_stopped_for_a_foreground_request() -> None:
    bench = unsized(64)
    bench.submit(ask("b", max_new_tokens=30, priority=BACKGROUND))
    bench.step_until_live("b")
    bench.submit(now("f"))
    bench.run()
    assert bench.tokens("b") == solo(ask("b", max_new_tokens=30))
    assert bench.ears["b"].terminal.usage.moves == 0
    assert started(bench) == ["b", "f"]


@pytest.mark.parametrize(("waited_s", "order"), [(-1.0, ["f", "b"]), (1.0, ["b", "f"])])
def test_a_background_request_that_has_waited_long_stands_before_a_new_foreground_one(
    waited_s: float, order: list[str]
) -> None:
    bench = unsized(64)
    bench.submit(ask("holder", max_new_tokens=40), later("b"))
    bench.step_until_live("holder")
    bench.clock.advance(AGEING_S + waited_s)
    bench.submit(now("f"))
    bench.run()
    assert started(bench) == ["holder", *order]


def test_a_background_request_starts_however_many_foreground_ones_keep_coming() -> None:
    bench = unsized(64)
    bench.submit(ask("holder", max_new_tokens=2), later("b"))
    arrivals = 0
    while "b" not in started(bench):
        bench.submit(now(f"f{arrivals}"))
        arrivals += 1
        bench.clock.advance(1.0)
        bench.step()
        assert arrivals < 1000
    # only those of the ageing time came before it
    assert set(started(bench)) <= {"holder", "b", *(f"f{index}" for index in range(round(AGEING_S)))}


def test_a_foreground_request_that_does_not_fit_lets_a_background_one_pass() -> None:
    bench = sized(64, 24)
    bench.submit(ask("big", prompt_tokens=40, max_new_tokens=12), ask("head", prompt_tokens=40))
    bench.submit(later("small"))
    bench.step()
    assert started(bench) == ["big", "small"]


def test_the_queue_is_shown_in_its_order_with_priorities() -> None:
    bench = unsized(64)
    bench.submit(now("holder"))
    bench.step()
    bench.submit(later("b"), now("f"))
    waiting = [line for line in bench.loop.take_snapshot().streams if line.state is StreamState.QUEUED]
    assert [(line.request_id, line.priority) for line in waiting] == [("f", FOREGROUND), ("b", BACKGROUND)]


def test_the_priority_changes_no_token() -> None:
    bench = unsized(64)
    bench.submit(now("same"))
    bench.run()
    assert bench.tokens("same") == solo(later("same"))


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(Priority), st.floats(0.0, 2.0 * AGEING_S)),
        min_size=1,
        max_size=12,
    )
)
def test_nobody_is_passed_by_a_later_one_but_a_young_background_request_by_foreground(
    arrivals: list[tuple[Priority, float]],
) -> None:
    bench = unsized(64)
    came_s: dict[str, float] = {}
    for index, (priority, gap_s) in enumerate(arrivals):
        name = f"r{index}"
        bench.submit(ask(name, max_new_tokens=1, priority=priority))
        came_s[name] = bench.clock.now_s()
        bench.clock.advance(gap_s)
    bench.run()
    kinds = {f"r{index}": priority for index, (priority, _) in enumerate(arrivals)}
    order = started(bench)
    for place, name in enumerate(order):
        for other in order[:place]:
            if int(other[1:]) > int(name[1:]):
                assert (kinds[name], kinds[other]) == (BACKGROUND, FOREGROUND)
                assert came_s[other] - came_s[name] < AGEING_S
