"""Root-mean-square and Euclidean norms."""

import pytest
import torch
from kernel_bench import DTYPES, assert_near, assert_rows_are_their_own, random

from hermitcrab.kernels.norm import l2_norm, rms_norm

WIDTHS = (16, 32, 100, 128, 513, 2560)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("width", WIDTHS)
def test_a_row_is_its_own(dtype: torch.dtype, width: int) -> None:
    table, gain = random(24, width, seed=1, dtype=dtype), random(width, seed=2)
    assert_rows_are_their_own(lambda index: (rms_norm(table[index], gain, 1e-6), l2_norm(table[index])))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_row_of_several_heads_is_its_own(dtype: torch.dtype) -> None:
    table, gain = random(24, 5, 48, seed=3, dtype=dtype), random(5, 48, seed=4)
    assert_rows_are_their_own(lambda index: (rms_norm(table[index], gain, 1e-6), l2_norm(table[index])))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("width", WIDTHS)
def test_values_are_the_oracles(dtype: torch.dtype, width: int) -> None:
    x, gain = random(6, width, seed=5, dtype=dtype), random(width, seed=6)
    wide = x.double()
    normed = wide / (wide.square().mean(-1, keepdim=True) + 1e-3).sqrt()
    assert rms_norm(x, gain, 1e-3).dtype == torch.float32
    assert_near(rms_norm(x, gain, 1e-3), normed * gain.double())
    assert_near(rms_norm(x, None, 1e-3), normed)
    assert_near(l2_norm(x), wide / (wide.square().sum(-1, keepdim=True) + 1e-6).sqrt())


def test_epsilon_stands_inside_the_sum() -> None:
    tiny = torch.full((1, 4), 1e-4)
    assert_near(rms_norm(tiny, None, 1e-6), (tiny.double() / (1e-8 + 1e-6) ** 0.5))
    assert_near(l2_norm(tiny), tiny.double() / (4e-8 + 1e-6) ** 0.5)


def test_a_row_of_zeros_stays_zero() -> None:
    zeros = torch.zeros(2, 64)
    assert torch.equal(rms_norm(zeros, None, 1e-6), zeros)
    assert torch.equal(l2_norm(zeros), zeros)


def test_large_rows_do_not_overflow() -> None:
    large = random(3, 128, seed=7) * 1e16
    assert_near(rms_norm(large, None, 1e-6), rms_norm(large / 1e16, None, 1e-6).double())


def test_an_input_is_left_as_it_was() -> None:
    x = random(4, 64, seed=8)
    before = x.clone()
    rms_norm(x, random(64, seed=9), 1e-6)
    l2_norm(x)
    assert torch.equal(x, before)


def test_rows_cut_out_of_a_wider_table_give_what_their_copy_gives() -> None:
    wide = random(6, 300, seed=10)
    piece = wide[:, 100:228]
    assert torch.equal(rms_norm(piece, None, 1e-6), rms_norm(piece.clone(), None, 1e-6))
    assert torch.equal(l2_norm(piece), l2_norm(piece.clone()))
