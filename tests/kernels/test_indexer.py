"""The indexer: pooled keys, scores, and the choice of blocks in a total order."""

import math

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernel_bench import DTYPES, assert_near, assert_rows_are_their_own, random

from hermitcrab.kernels.indexer import SCORE_BLOCKS, pool_blocks, score_blocks, top_blocks
from hermitcrab.kernels.rope import rope_tables


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("block_tokens", [2, 4, 8])
def test_a_pooled_block_is_its_own(dtype: torch.dtype, block_tokens: int) -> None:
    raw, gain = random(24, block_tokens, 32, seed=1, dtype=dtype), 1.0 + random(32, seed=2)
    cos, sin = rope_tables(24, 16, 1e4, dtype)
    assert_rows_are_their_own(lambda index: pool_blocks(raw[index], gain, 1e-6, cos[index], sin[index]))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("block_tokens", [2, 4, 8])
def test_a_pooled_block_is_the_turned_norm_of_the_mean(dtype: torch.dtype, block_tokens: int) -> None:
    raw, gain = random(7, block_tokens, 32, seed=3, dtype=dtype), 1.0 + random(32, seed=4)
    cos, sin = rope_tables(7, 16, 1e4, dtype)
    mean = raw.double().mean(1).to(dtype).double()
    normed = mean / (mean.square().mean(-1, keepdim=True) + 1e-6).sqrt() * gain.double()
    number = torch.complex(normed[:, :8], normed[:, 8:16]) * torch.complex(cos.double(), sin.double())
    expected = torch.cat((number.real, number.imag, normed[:, 16:]), -1)
    pooled = pool_blocks(raw, gain, 1e-6, cos, sin)
    assert pooled.dtype == dtype
    assert_near(pooled, expected, dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("heads", [1, 4, 16])
def test_a_rows_scores_are_its_own(dtype: torch.dtype, heads: int) -> None:
    q, pooled = random(24, heads, 32, seed=5, dtype=dtype), random(SCORE_BLOCKS, 32, seed=6, dtype=dtype)
    assert_rows_are_their_own(lambda index: score_blocks(q[index], pooled))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("heads", [1, 4, 16])
def test_scores_are_the_oracles(dtype: torch.dtype, heads: int) -> None:
    q, pooled = random(5, heads, 32, seed=7, dtype=dtype), random(2 * SCORE_BLOCKS, 32, seed=8, dtype=dtype)
    products = torch.einsum("rhd,bd->rhb", q.double(), pooled.double())
    scores = score_blocks(q, pooled)
    assert scores.dtype == torch.float32
    assert_near(scores, products.clamp(min=0).sum(1) / math.sqrt(32))


def test_a_score_does_not_depend_on_how_many_blocks_there_are() -> None:
    q, pooled = random(3, 4, 32, seed=9), random(4 * SCORE_BLOCKS, 32, seed=10)
    longest = score_blocks(q, pooled)
    for tiles in (1, 2, 3):
        part = score_blocks(q, pooled[: tiles * SCORE_BLOCKS])
        assert torch.equal(part, longest[:, : tiles * SCORE_BLOCKS])


def test_what_stands_in_an_unfinished_block_leaves_no_trace_in_others() -> None:
    q, pooled = random(3, 4, 32, seed=11), random(SCORE_BLOCKS, 32, seed=12)
    expected = score_blocks(q, pooled)[:, :100]
    for garbage in (float("nan"), float("inf"), 1e38):
        dirty = pooled.clone()
        dirty[100:] = garbage
        assert torch.equal(score_blocks(q, dirty)[:, :100], expected)


def ranked(scores: list[float], count: int) -> list[int]:
    """The blocks chosen in the total order, ascending: score descending, then block ascending."""
    return sorted(sorted(range(len(scores)), key=lambda block: (-scores[block], block))[:count])


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    # few values: nearly every cut falls among equals
    rows=st.lists(
        st.lists(st.sampled_from([0.0, -0.0, 0.5, 1.0, 2.5]), min_size=20, max_size=20),
        min_size=1,
        max_size=4,
    ),
    missing=st.integers(0, 12),
    count=st.integers(1, 8),
)
def test_blocks_are_chosen_in_the_total_order(rows: list[list[float]], missing: int, count: int) -> None:
    scores = torch.tensor(rows)
    scores[:, 20 - missing :] = -torch.inf
    assert top_blocks(scores, count).tolist() == [ranked(row, count) for row in scores.tolist()]


def test_all_equal_scores_choose_the_first_blocks() -> None:
    for blocks in (512, 1000, 4096):
        assert top_blocks(torch.zeros(2, blocks), 300).tolist() == [list(range(300))] * 2


def test_as_many_blocks_as_there_are_may_be_chosen() -> None:
    assert top_blocks(random(2, 9, seed=13), 9).tolist() == [list(range(9))] * 2


def test_the_choice_of_a_row_is_its_own() -> None:
    table = (random(24, 64, seed=14) * 1.5).round()
    assert_rows_are_their_own(lambda index: top_blocks(table[index], 9))


def test_a_choice_among_many_distinct_scores_is_the_sorted_one() -> None:
    scores = random(3, 4096, seed=15)
    assert top_blocks(scores, 512).tolist() == [ranked(row, 512) for row in scores.tolist()]
