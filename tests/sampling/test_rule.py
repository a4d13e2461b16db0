"""The drawing rule of docs/exactness.md, clause by clause."""

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermitcrab.errors import DeviceFailed
from hermitcrab.sampling.params import Sampling
from hermitcrab.sampling.rule import candidates, draw

LOGITS = st.lists(st.integers(-40, 40).map(lambda eighth: eighth / 8), min_size=1, max_size=24)
SAMPLINGS = st.builds(
    Sampling,
    temperature=st.sampled_from([0.25, 0.7, 1.0, 3.0]),
    top_k=st.integers(0, 30),
    top_p=st.sampled_from([0.05, 0.5, 0.9, 1.0]),
    min_p=st.sampled_from([0.0, 0.1, 1.0]),
    seed=st.integers(0, 1000),
)


def test_temperature_zero_takes_the_highest_logit() -> None:
    assert draw([0.5, 3.0, 2.0], 7, Sampling()) == 1


def test_temperature_zero_takes_the_lower_id_of_a_tie() -> None:
    assert draw([1.0, 3.0, 3.0, 3.0], 7, Sampling(top_k=1, top_p=0.1, min_p=1.0, seed=99)) == 1


def test_candidates_stand_by_logit_descending_then_id_ascending() -> None:
    assert candidates([1.0, 2.0, 1.0, 2.0], Sampling(temperature=1.0)) == [1, 3, 0, 2]


def test_top_k_cuts_a_tie_at_the_higher_id() -> None:
    assert candidates([2.0, 1.0, 1.0, 1.0], Sampling(temperature=1.0, top_k=2)) == [0, 1]


def test_the_token_that_crosses_top_p_stays() -> None:
    logits = [math.log(0.5), math.log(0.3), math.log(0.2)]
    assert candidates(logits, Sampling(temperature=1.0, top_p=0.6)) == [0, 1]


def test_a_bound_that_is_reached_exactly_lets_no_further_token_in() -> None:
    assert candidates([0.0, 0.0], Sampling(temperature=1.0, top_p=0.5)) == [0]


def test_top_p_keeps_a_token_for_any_bound() -> None:
    assert candidates([0.0, 0.0], Sampling(temperature=1.0, top_p=1e-9)) == [0]


def test_top_p_sees_what_top_k_left() -> None:
    logits = [math.log(0.4), math.log(0.3), math.log(0.3)]
    # of the first two, the first has 4/7: enough for 0.55 of them, not for 0.55 of all three
    assert candidates(logits, Sampling(temperature=1.0, top_k=2, top_p=0.55)) == [0]


def test_top_p_sees_probabilities_after_the_temperature() -> None:
    logits = [1.0, 0.0]
    assert candidates(logits, Sampling(temperature=1.0, top_p=0.7)) == [0]
    assert candidates(logits, Sampling(temperature=4.0, top_p=0.7)) == [0, 1]


def test_min_p_is_relative_to_the_best() -> None:
    logits = [math.log(0.5), math.log(0.26), math.log(0.24)]
    assert candidates(logits, Sampling(temperature=1.0, min_p=0.5)) == [0, 1]


def test_a_logit_of_minus_infinity_is_never_drawn() -> None:
    drawn = {draw([-math.inf, 0.0, 0.0], position, Sampling(temperature=100.0)) for position in range(200)}
    assert drawn == {1, 2}


def test_a_temperature_too_small_for_a_quotient_takes_the_highest() -> None:
    assert draw([0.0, 5.0, 4.0], 3, Sampling(temperature=5e-324, seed=1)) == 1


@pytest.mark.parametrize("logits", [[0.0, math.nan], [math.nan], [-math.inf, -math.inf], [math.inf, 0.0]])
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=1.0)], ids=["greedy", "sampled"])
def test_logits_without_a_highest_finite_value_are_refused(logits: list[float], sampling: Sampling) -> None:
    with pytest.raises(DeviceFailed, match="position 11"):
        draw(logits, 11, sampling)


@given(LOGITS, SAMPLINGS, st.integers(0, 1000))
def test_what_is_drawn_is_a_candidate(logits: list[float], sampling: Sampling, position: int) -> None:
    assert draw(logits, position, sampling) in candidates(logits, sampling)


@given(LOGITS, SAMPLINGS, st.integers(0, 1000))
def test_a_draw_is_a_function_of_its_arguments(
    logits: list[float], sampling: Sampling, position: int
) -> None:
    assert draw(logits, position, sampling) == draw(list(logits), position, sampling)


@given(LOGITS, SAMPLINGS, st.integers(0, 1000), st.integers(-64, 64))
def test_adding_a_constant_to_all_logits_changes_nothing(
    logits: list[float], sampling: Sampling, position: int, constant: int
) -> None:
    # eighths plus whole numbers: exact in float64
    assert draw([logit + constant for logit in logits], position, sampling) == draw(
        logits, position, sampling
    )


def test_draws_follow_the_softmax() -> None:
    logits = [math.log(0.6), math.log(0.3), math.log(0.1)]
    counts = Counter(draw(logits, position, Sampling(temperature=1.0, seed=3)) for position in range(6000))
    # four standard errors of 6,000 draws
    for token, share in enumerate([0.6, 0.3, 0.1]):
        assert abs(counts[token] / 6000 - share) < 4 * math.sqrt(share * (1 - share) / 6000)


def test_another_seed_gives_another_reply() -> None:
    logits = [0.0] * 8
    replies = [
        tuple(draw(logits, position, Sampling(temperature=1.0, seed=seed)) for position in range(20))
        for seed in range(5)
    ]
    assert len(set(replies)) == 5
