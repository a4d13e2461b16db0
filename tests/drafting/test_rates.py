"""Landing rates: what a window may expect of its drafts, from what became of those before."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermitcrab.drafting.rates import LandingRates

WINDOWS = st.lists(
    st.integers(1, 6).flatmap(lambda drafted: st.tuples(st.just(drafted), st.integers(0, drafted))),
    max_size=60,
)


def rates(*windows: tuple[int, int], prior: float = 0.5, most_drafts: int = 6) -> LandingRates:
    made = LandingRates(most_drafts, prior=prior)
    for drafted, landed in windows:
        made.observe(drafted=drafted, landed=landed)
    return made


def test_before_the_first_window_each_draft_has_the_prior_of_the_one_before() -> None:
    assert rates().gains(3) == (0.5, 0.25, 0.125)


@given(WINDOWS)
def test_gains_are_chances_and_never_rise(windows: list[tuple[int, int]]) -> None:
    gains = rates(*windows).gains(6)
    assert all(0.0 <= gain <= 1.0 for gain in gains)
    assert list(gains) == sorted(gains, reverse=True)


@given(WINDOWS, st.integers(0, 6))
def test_shallower_windows_have_the_same_gains(windows: list[tuple[int, int]], drafts: int) -> None:
    assert rates(*windows).gains(6)[:drafts] == rates(*windows).gains(drafts)


def test_drafts_that_always_land_come_near_one_and_drafts_that_never_do_near_zero() -> None:
    assert rates(*[(3, 3)] * 200).gains(3)[2] > 0.99
    assert rates(*[(3, 0)] * 200).gains(1)[0] < 0.01


def test_a_rate_is_of_the_windows_in_which_all_before_landed() -> None:
    """The first lands every second time, the second always behind it."""
    gains = rates(*[(2, 2), (2, 0)] * 100).gains(2)
    assert gains[0] == pytest.approx(0.5, abs=0.05)
    assert gains[1] / gains[0] > 0.99


def test_a_place_that_was_never_tried_is_thought_as_good_as_the_one_before() -> None:
    gains = rates(*[(1, 1)] * 200).gains(6)
    assert gains[5] > 0.94


def test_a_place_that_once_missed_is_given_another_try_while_those_before_it_land() -> None:
    made = rates(*[(2, 1)] * 50)
    before = made.gains(2)[1]
    for _ in range(100):
        made.observe(drafted=1, landed=1)
    assert before < 0.1
    assert made.gains(2)[1] > 0.5


def test_a_change_of_text_shows_within_some_dozens_of_windows() -> None:
    made = rates(*[(1, 1)] * 500)
    for _ in range(32):
        made.observe(drafted=1, landed=0)
    assert made.gains(1)[0] < 0.2


def test_one_miss_of_a_new_stream_halves_its_rate_and_one_landing_goes_half_the_way_to_one() -> None:
    assert rates((1, 0), prior=0.8).gains(1) == pytest.approx((0.4,))
    assert rates((1, 1), prior=0.8).gains(1) == pytest.approx((0.9,))


def test_drafts_that_are_not_wanted_slowly_get_another_try() -> None:
    made = rates(*[(2, 0)] * 30, prior=0.8)
    before = made.gains(1)[0]
    for _ in range(100):
        made.relax()
    assert before < 0.1
    assert 0.7 < made.gains(1)[0] < 0.8


def test_a_rate_above_the_prior_does_not_relax() -> None:
    made = rates(*[(1, 1)] * 30, prior=0.5)
    before = made.gains(1)
    made.relax()
    assert made.gains(1) == before
