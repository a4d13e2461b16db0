"""The engine's draws are the rule's: the same token from the same logits, position and parameters."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hermitcrab.engine.draws import SHORT_LIST, draw_rows
from hermitcrab.errors import DeviceFailed
from hermitcrab.sampling.params import Sampling
from hermitcrab.sampling.rule import draw

# both sides of the longest list that is ranked and drawn in plain floats
TOP_KS = (0, 1, 2, 20, SHORT_LIST - 1, SHORT_LIST, SHORT_LIST + 1, 5000)

samplings = st.builds(
    Sampling,
    temperature=st.sampled_from([0.0, 0.05, 0.7, 1.0, 20.0]),
    top_k=st.sampled_from(TOP_KS),
    top_p=st.sampled_from([0.01, 0.5, 0.95, 1.0]),
    min_p=st.sampled_from([0.0, 0.05, 0.9, 1.0]),
    seed=st.integers(0, 2**63 - 1),
)

# a few values over and over: ties at the top, at every cut and throughout
tied = st.lists(st.sampled_from([-math.inf, -3.0, 0.0, 0.5, 2.0]), min_size=2, max_size=40)


def rule_of(row: torch.Tensor, position: int, sampling: Sampling) -> int:
    return draw([float(logit) for logit in row], position, sampling)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 1000),
    vocab=st.sampled_from([3, 255, 256, 257, 600]),
    position=st.integers(1, 300_000),
    sampling=samplings,
    scale=st.sampled_from([0.01, 1.0, 8.0]),
)
def test_a_draw_is_the_rules(seed: int, vocab: int, position: int, sampling: Sampling, scale: float) -> None:
    row = torch.randn(1, vocab, generator=torch.Generator().manual_seed(seed)) * scale
    assert draw_rows(row, [position], [sampling]) == [rule_of(row[0], position, sampling)]


@settings(max_examples=300, deadline=None, derandomize=True)
@given(logits=tied, position=st.integers(1, 1000), sampling=samplings)
def test_a_draw_among_ties_is_the_rules(logits: list[float], position: int, sampling: Sampling) -> None:
    row = torch.tensor([[*logits, 1.0]])
    assert draw_rows(row, [position], [sampling]) == [rule_of(row[0], position, sampling)]


def test_each_row_is_drawn_by_its_own_position_and_parameters() -> None:
    rows = torch.randn(9, 300, generator=torch.Generator().manual_seed(1))
    parameters = [
        Sampling(temperature=0.4 * row, top_k=TOP_KS[row % 8], top_p=1.0 - 0.05 * row, seed=row)
        for row in range(9)
    ]
    positions = [100 * row + 1 for row in range(9)]
    together = draw_rows(rows, positions, parameters)
    assert together == [rule_of(*row) for row in zip(rows, positions, parameters, strict=True)]
    for row in range(9):
        assert draw_rows(rows[row : row + 1], positions[row : row + 1], parameters[row : row + 1]) == [
            together[row]
        ]


def test_a_greedy_draw_takes_the_lowest_of_equal_ids() -> None:
    rows = torch.zeros(2, 500)
    rows[1, [77, 300]] = 5.0
    assert draw_rows(rows, [1, 2], [Sampling()] * 2) == [0, 77]


def test_a_token_of_minus_infinity_is_never_drawn() -> None:
    row = torch.full((1, 300), -torch.inf)
    row[0, 123] = -50.0
    hot = Sampling(temperature=100.0)
    assert {draw_rows(row, [position], [hot])[0] for position in range(1, 30)} == {123}


@pytest.mark.parametrize("top_k", [0, 20])
def test_sampled_tokens_come_as_often_as_their_probability(top_k: int) -> None:
    logits = torch.log(torch.tensor([0.5, 0.3, 0.15, 0.05]))
    drawn = draw_rows(
        logits.repeat(4000, 1), range(1, 4001), [Sampling(temperature=1.0, top_k=top_k, seed=5)] * 4000
    )
    shares = np.bincount(drawn, minlength=4) / 4000
    # four standard deviations of a share of 4000 draws are 0.032 at most
    assert np.abs(shares - [0.5, 0.3, 0.15, 0.05]).max() < 0.035


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=1.0)], ids=["greedy", "sampled"])
def test_logits_without_a_highest_finite_value_are_refused_with_their_position(
    bad: float, sampling: Sampling
) -> None:
    rows = torch.zeros(3, 10)
    rows[1, 4] = bad
    with pytest.raises(DeviceFailed, match="position 22"):
        draw_rows(rows, [11, 22, 33], [sampling] * 3)


def test_logits_that_are_all_minus_infinity_are_refused() -> None:
    with pytest.raises(DeviceFailed):
        draw_rows(torch.full((1, 10), -torch.inf), [1], [Sampling()])
