"""Measured costs: known cells as measured, others from the nearest known ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermitcrab.drafting.costs import CostTable, RoundCosts

CELLS = st.lists(
    st.tuples(st.integers(1, 64), st.integers(1, 16), st.floats(1e-4, 10.0)), min_size=1, max_size=30
)


def table(*cells: tuple[int, int, float]) -> CostTable:
    made = CostTable(lambda count, streams: float(count))
    for count, streams, seconds in cells:
        made.observe(count, streams, seconds=seconds)
    return made


def test_without_measurements_the_shape_is_the_estimate() -> None:
    assert table().is_empty
    assert table().estimate(5, 2) == 5.0


def test_a_measured_cell_costs_the_median_of_its_last_nine() -> None:
    assert table((4, 1, 3.0), (4, 1, 900.0), (4, 1, 2.0)).estimate(4, 1) == 3.0
    assert table(*[(4, 1, 50.0)] * 30, *[(4, 1, 2.0)] * 9).estimate(4, 1) == 2.0


def test_between_measured_counts_of_the_same_streams_lies_a_straight_line() -> None:
    assert table((2, 1, 10.0), (6, 1, 30.0), (3, 2, 500.0)).estimate(3, 1) == pytest.approx(15.0)


def test_beyond_them_the_shape_goes_on_from_the_nearest() -> None:
    made = table((2, 1, 10.0), (4, 1, 12.0))
    assert made.estimate(8, 1) == pytest.approx(24.0)
    assert made.estimate(1, 1) == pytest.approx(5.0)


def test_other_streams_are_taken_from_the_nearest_measured_ones_with_windows_alike() -> None:
    made = table((2, 1, 10.0), (32, 4, 7.0))
    # 16 rows of 2 streams are alike to 32 of 4 or 8 of 1; of those as near, the fewer streams count
    assert made.estimate(16, 2) == pytest.approx(made.estimate(8, 1) * 2)
    # 40 rows of 5 streams are alike to 32 of 4
    assert made.estimate(40, 5) == pytest.approx(7.0 * 40 / 32)


def test_a_clock_that_stood_still_tells_nothing() -> None:
    assert table((1, 1, 0.0)).is_empty


def test_more_rows_never_take_less_time_than_fewer() -> None:
    made = table((2, 1, 10.0), (4, 1, 3.0), (8, 1, 12.0))
    assert [made.estimate(count, 1) for count in (2, 3, 4, 6, 8)] == [10.0, 10.0, 10.0, 11.0, 12.0]


def test_a_new_measurement_moves_the_estimates_around_it() -> None:
    made = table((2, 1, 10.0))
    before = made.estimate(4, 1)
    made.observe(4, 1, seconds=99.0)
    assert (before, made.estimate(4, 1)) == (20.0, 99.0)


@given(CELLS, st.integers(1, 64), st.integers(1, 16))
def test_every_estimate_is_more_than_nothing(
    cells: list[tuple[int, int, float]], count: int, streams: int
) -> None:
    assert table(*cells).estimate(count, streams) > 0.0


@given(CELLS, st.integers(1, 64), st.integers(1, 16))
def test_the_same_measurements_give_the_same_estimates(
    cells: list[tuple[int, int, float]], count: int, streams: int
) -> None:
    asked_before = table()
    for measured, of, seconds in cells:
        asked_before.estimate(count, streams)
        asked_before.observe(measured, of, seconds=seconds)
    assert asked_before.estimate(count, streams) == table(*cells).estimate(count, streams)


def test_no_drafts_cost_nothing() -> None:
    costs = RoundCosts()
    costs.observe_draft(3, 1, seconds=1.0)
    assert costs.draft_s(0, 5) == 0.0


def test_before_the_head_has_run_its_cost_is_a_share_of_a_forward() -> None:
    costs = RoundCosts()
    costs.observe_forward(1, 1, widest=1, seconds=2.0)
    assert costs.draft_s(3, 1) == pytest.approx(0.6)
    costs.observe_draft(3, 1, seconds=0.25)
    assert costs.draft_s(3, 1) == 0.25


def test_forwards_and_drafting_are_measured_apart() -> None:
    costs = RoundCosts()
    assert costs.is_empty
    costs.observe_draft(2, 2, seconds=7.0)
    assert costs.is_empty
    costs.observe_forward(2, 2, widest=1, seconds=3.0)
    assert not costs.is_empty
    assert (costs.forward_s(2, 2, widest=1), costs.draft_s(2, 2)) == (3.0, 7.0)


def test_a_machine_that_slows_down_does_not_make_what_was_measured_before_look_cheap() -> None:
    costs = RoundCosts()
    for _ in range(9):
        costs.observe_forward(1, 1, widest=1, seconds=1.0)
        costs.observe_forward(4, 1, widest=1, seconds=2.0)
    for _ in range(50):
        costs.observe_forward(4, 1, widest=1, seconds=6.0)
    assert costs.forward_s(4, 1, widest=1) / costs.forward_s(1, 1, widest=1) == pytest.approx(2.0, rel=0.1)


def test_a_single_busy_moment_changes_next_to_nothing() -> None:
    costs = RoundCosts()
    for _ in range(9):
        costs.observe_forward(1, 1, widest=1, seconds=1.0)
    costs.observe_forward(1, 1, widest=1, seconds=500.0)
    for _ in range(20):
        costs.observe_forward(1, 1, widest=1, seconds=1.0)
        costs.observe_forward(4, 1, widest=1, seconds=2.0)
    assert costs.forward_s(4, 1, widest=1) / costs.forward_s(1, 1, widest=1) == pytest.approx(2.0, rel=0.1)


def test_a_version_tells_whether_anything_has_changed() -> None:
    costs = RoundCosts()
    versions = []
    for seconds in (1.0, 1.0, 3.0, 3.0):
        costs.observe_forward(1, 1, widest=1, seconds=seconds)
        versions.append(costs.version)
    assert versions[0] == versions[1] > 0
    costs.observe_draft(2, 1, seconds=1.0)
    assert costs.version > versions[-1]


def test_forwards_of_about_as_many_drafts_count_together() -> None:
    costs = RoundCosts()
    for rows in (30, 31, 32, 33, 34):
        costs.observe_forward(rows, 8, widest=1, seconds=1.0 + 0.1 * (rows - 1))
    assert costs.forward_s(32, 8, widest=1) == pytest.approx(4.1)


def test_forwards_of_another_widest_window_are_measured_apart() -> None:
    costs = RoundCosts()
    costs.observe_forward(15, 8, widest=2, seconds=12.6)
    costs.observe_forward(15, 8, widest=8, seconds=12.6)
    for _ in range(9):
        costs.observe_forward(15, 8, widest=2, seconds=12.6)
        costs.observe_forward(15, 8, widest=8, seconds=18.7)
    wide, narrow = (costs.forward_s(15, 8, widest=widest) for widest in (8, 2))
    assert wide / narrow == pytest.approx(18.7 / 12.6, rel=0.1)


def test_a_width_that_was_not_measured_is_thought_a_little_dearer_than_the_nearest_narrower_one() -> None:
    costs = RoundCosts()
    costs.observe_forward(8, 8, widest=1, seconds=1.0)
    assert costs.forward_s(8, 8, widest=1) < costs.forward_s(8, 8, widest=4) < 1.2


def test_widths_measured_with_as_many_streams_count_before_others() -> None:
    costs = RoundCosts()
    costs.observe_forward(8, 8, widest=1, seconds=1.0)
    costs.observe_forward(4, 1, widest=4, seconds=500.0)
    assert costs.forward_s(8, 8, widest=4) < 2.0
