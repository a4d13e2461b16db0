"""Log probabilities: the log-softmax of the raw row, best alternatives first."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermitcrab.sampling.logprobs import token_logprobs


def test_log_probabilities_of_known_shares() -> None:
    row = [math.log(0.5), math.log(0.125), math.log(0.375)]
    told = token_logprobs(row, 1, top=2)
    assert told.token == 1
    assert told.logprob == pytest.approx(math.log(0.125))
    assert [token for token, _ in told.top] == [0, 2]
    assert [math.exp(logprob) for _, logprob in told.top] == pytest.approx([0.5, 0.375])


def test_without_alternatives_only_the_token_is_told() -> None:
    assert token_logprobs([0.0, 0.0], 0, top=0).top == ()


def test_alternatives_that_tie_stand_by_id() -> None:
    assert [token for token, _ in token_logprobs([1.0, 2.0, 1.0, 2.0], 0, top=3).top] == [1, 3, 0]


@settings(deadline=None)
@given(st.lists(st.floats(-50, 50), min_size=1, max_size=20))
def test_all_probabilities_sum_to_one(row: list[float]) -> None:
    told = token_logprobs(row, 0, top=len(row))
    assert math.fsum(math.exp(logprob) for _, logprob in told.top) == pytest.approx(1.0)
