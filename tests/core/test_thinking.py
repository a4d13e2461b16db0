"""Thinking that ends: the budget, the guard against loops, and the marker that both force."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermitcrab.core.thinking import LOOP_PERIOD_TOKENS, LOOP_TOKENS, Thinking, ThinkingState, at_start

OPEN, CLOSE, BREAK = 10, 11, 12


def thinking(*, is_open: bool = True, budget_tokens: int | None = None) -> Thinking:
    return Thinking(is_open, OPEN, (CLOSE, BREAK, BREAK), budget_tokens)


def after(rules: Thinking, tokens: Sequence[int]) -> ThinkingState:
    state = at_start(rules)
    for token in tokens:
        state = state.after(token)
    return state


def reply(rules: Thinking, drawn: Sequence[int]) -> list[int]:
    """The reply when these are drawn in turn, where nothing is forced."""
    state, tokens = at_start(rules), list[int]()
    for token in drawn:
        while state.forced is not None:
            tokens.append(state.forced)
            state = state.after(state.forced)
        tokens.append(token)
        state = state.after(token)
    return tokens


@pytest.mark.parametrize("budget", [1, 2, 5])
def test_the_budgets_last_token_is_the_closing_one_and_the_rest_of_the_marker_follows(budget: int) -> None:
    told = reply(thinking(budget_tokens=budget), range(8))
    assert told == [*range(budget - 1), CLOSE, BREAK, BREAK, *range(budget - 1, 8)]


def test_a_budget_of_nothing_closes_at_once() -> None:
    assert reply(thinking(budget_tokens=0), [1]) == [CLOSE, BREAK, BREAK, 1]


def test_thinking_that_closes_in_time_is_left_alone() -> None:
    assert reply(thinking(budget_tokens=4), [1, 2, CLOSE, 3, 4, 5]) == [1, 2, CLOSE, 3, 4, 5]


def test_a_closing_may_always_be_whole() -> None:
    rules = Thinking(True, OPEN, (CLOSE, BREAK, BREAK), closes_whole=True)
    assert reply(rules, [1, CLOSE, 2, 3]) == [1, CLOSE, BREAK, BREAK, 2, 3]


def test_a_reply_that_does_not_think_has_no_budget() -> None:
    drawn = list(range(10))
    assert reply(thinking(is_open=False, budget_tokens=3), drawn) == drawn


def test_thinking_that_the_reply_opens_counts_its_mark() -> None:
    told = reply(thinking(is_open=False, budget_tokens=3), [1, OPEN, 2, 3])
    assert told == [1, OPEN, 2, CLOSE, BREAK, BREAK, 3]


def test_thinking_opened_again_past_the_budget_is_closed_at_once() -> None:
    told = reply(thinking(budget_tokens=3), [1, 2, 3, OPEN, 4])
    assert told == [1, 2, CLOSE, BREAK, BREAK, 3, OPEN, CLOSE, BREAK, BREAK, 4]


@pytest.mark.parametrize("period", range(1, LOOP_PERIOD_TOKENS + 1))
def test_an_exact_cycle_is_closed_once(period: int) -> None:
    cycle = [index % period for index in range(LOOP_TOKENS)]
    assert after(thinking(), cycle[:-1]).forced is None
    told = reply(thinking(), [*cycle, OPEN, *cycle, *cycle])
    assert told == [*cycle, CLOSE, BREAK, BREAK, OPEN, *cycle, *cycle]


def test_a_longer_cycle_is_left_alone() -> None:
    cycle = [index % (LOOP_PERIOD_TOKENS + 1) for index in range(4 * LOOP_TOKENS)]
    assert reply(thinking(), cycle) == cycle


def test_a_cycle_in_the_answer_is_left_alone() -> None:
    answer = [1] * (2 * LOOP_TOKENS)
    assert reply(thinking(), [CLOSE, *answer]) == [CLOSE, *answer]


def test_a_cycle_that_breaks_once_begins_anew() -> None:
    broken = [1] * (LOOP_TOKENS - 1) + [2]
    assert reply(thinking(), [*broken, *broken]) == [*broken, *broken]


def has_cycle(tokens: Sequence[int]) -> bool:
    last = tokens[-LOOP_TOKENS:]
    return len(last) == LOOP_TOKENS and any(
        last[period:] == last[:-period] for period in range(1, LOOP_PERIOD_TOKENS + 1)
    )


@settings(deadline=None)
@given(
    head=st.lists(st.integers(0, 2), max_size=12),
    cycle=st.lists(st.integers(0, 2), min_size=1, max_size=LOOP_PERIOD_TOKENS + 2),
    tokens=st.integers(LOOP_TOKENS - 4, LOOP_TOKENS + 16),
)
def test_the_guard_fires_exactly_where_the_last_tokens_are_a_cycle(
    head: list[int], cycle: list[int], tokens: int
) -> None:
    thought = [*head, *(cycle[index % len(cycle)] for index in range(tokens))]
    fires = [at for at in range(1, len(thought) + 1) if has_cycle(thought[:at])]
    state = at_start(thinking())
    for at, token in enumerate(thought, start=1):
        state = state.after(token)
        assert (state.forced is not None) == (bool(fires) and at == fires[0])
        if state.forced is not None:
            break
