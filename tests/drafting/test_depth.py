"""The depths that pay: the best expected tokens a second for the round as a whole; none where none do."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermitcrab.drafting.costs import DRAFT_STEPS, RoundCosts
from hermitcrab.drafting.depth import Option, choose_depths


def costs(*, row_s: float, fixed_s: float = 1.0, draft_s: float = 0.0) -> RoundCosts:
    """Rounds that cost so much a row beyond a fixed part, and so much a step of the head."""
    made = RoundCosts()
    for streams in range(1, 9):
        for rows in (streams + drafts for drafts in DRAFT_STEPS):
            for widest in (1, 2, 4, 8):
                made.observe_forward(rows, streams, widest=widest, seconds=fixed_s + row_s * rows)
        for depth in range(1, 8):
            made.observe_draft(depth, streams, seconds=max(1e-9, draft_s * depth))
    return made


def option(rate: float, drafts: int, *, is_head: bool = True) -> Option:
    return Option(tuple(rate**place for place in range(1, drafts + 1)), is_head)


def test_cheap_rows_that_land_are_drafted_to_the_end() -> None:
    assert choose_depths([option(0.99, 7)], costs(row_s=0.01), spare_rows=63).depths == (7,)


def test_rows_that_cost_as_much_as_they_bring_are_not_drafted() -> None:
    assert choose_depths([option(0.5, 7)] * 8, costs(row_s=1.0), spare_rows=56).depths == (0,) * 8


def test_a_head_that_costs_more_than_a_round_is_left_alone_and_a_copy_is_not() -> None:
    dear = costs(row_s=0.01, draft_s=5.0)
    assert choose_depths([option(0.9, 3)], dear, spare_rows=63).depths == (0,)
    assert choose_depths([option(0.9, 3, is_head=False)], dear, spare_rows=63).depths == (3,)


def test_a_stream_whose_drafts_land_gets_them_beside_one_whose_drafts_do_not() -> None:
    chosen = choose_depths([option(0.95, 5), option(0.1, 5)], costs(row_s=0.15), spare_rows=62)
    assert chosen.depths[0] >= 3
    assert chosen.depths[1] == 0


def test_the_same_drafts_pay_alone_and_not_in_a_crowd() -> None:
    """The fixed part of a round is shared; the more share it, the dearer is a row beside it."""
    shared = costs(row_s=0.3)
    assert choose_depths([option(0.6, 3)], shared, spare_rows=63).depths[0] > 0
    assert choose_depths([option(0.6, 3)] * 8, shared, spare_rows=56).depths == (0,) * 8


def test_a_gain_within_the_noise_is_no_gain() -> None:
    # one draft that always lands in rounds of 1 and 1.96 s: 2 % more
    near = RoundCosts()
    near.observe_forward(1, 1, widest=1, seconds=1.0)
    near.observe_forward(2, 1, widest=2, seconds=1.96)
    assert choose_depths([option(1.0, 1, is_head=False)], near, spare_rows=1).depths == (0,)


def test_streams_without_drafts_get_none() -> None:
    assert choose_depths([Option(), option(0.9, 2)], costs(row_s=0.01), spare_rows=9).depths == (0, 2)


def test_the_pace_is_expected_tokens_by_seconds() -> None:
    chosen = choose_depths([option(1.0, 2)], costs(row_s=0.1, draft_s=0.1), spare_rows=9)
    assert chosen.depths == (2,)
    assert chosen.tokens_per_s == pytest.approx(3 / (1.3 + 0.2))
    assert choose_depths([Option()], costs(row_s=0.1), spare_rows=9).tokens_per_s == pytest.approx(1 / 1.1)


OPTIONS = st.lists(
    st.builds(option, st.floats(0.05, 1.0), st.integers(0, 3), is_head=st.booleans()), min_size=1, max_size=4
)
COSTS = st.builds(costs, row_s=st.floats(0.01, 1.0), fixed_s=st.floats(0.1, 2.0), draft_s=st.floats(0.0, 0.5))


def pace(options: list[Option], depths: tuple[int, ...], made: RoundCosts) -> float:
    heads = [depth for one, depth in zip(options, depths, strict=True) if one.is_head and depth]
    tokens = len(options) + sum(sum(one.gains[:depth]) for one, depth in zip(options, depths, strict=True))
    seconds = made.forward_s(len(options) + sum(depths), len(options), widest=1 + max(depths))
    return tokens / (seconds + made.draft_s(max(heads, default=0), len(heads)))


@given(OPTIONS, COSTS, st.integers(0, 12))
def test_depths_stay_in_their_limits_and_are_never_slower_than_none(
    options: list[Option], made: RoundCosts, spare_rows: int
) -> None:
    depths = choose_depths(options, made, spare_rows=spare_rows).depths
    assert sum(depths) <= spare_rows
    assert all(0 <= depth <= len(one.gains) for one, depth in zip(options, depths, strict=True))
    assert pace(options, depths, made) >= pace(options, (0,) * len(options), made) - 1e-9


@given(OPTIONS, COSTS)
def test_without_a_head_no_depths_are_better_by_more_than_the_margin(
    options: list[Option], made: RoundCosts
) -> None:
    copies = [Option(one.gains) for one in options]
    depths = choose_depths(copies, made, spare_rows=12).depths
    best = max(pace(copies, every, made) for every in product(*(range(len(one.gains) + 1) for one in copies)))
    assert pace(copies, depths, made) * 1.1 >= best - 1e-9
