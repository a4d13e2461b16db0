"""Rotary position embedding."""

import math

import pytest
import torch
from kernel_bench import DTYPES, assert_near, assert_rows_are_their_own, random

from hermitcrab.kernels.rope import rope_tables, rotate


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("dim", "rotary"), [(32, 16), (64, 16), (32, 32), (40, 2)])
def test_a_row_is_its_own(dtype: torch.dtype, dim: int, rotary: int) -> None:
    table = random(24, 3, dim, seed=1, dtype=dtype)
    cos, sin = rope_tables(24, rotary, 1e4, dtype)
    assert_rows_are_their_own(lambda index: rotate(table[index], cos[index], sin[index]))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_halves_are_turned_as_complex_numbers(dtype: torch.dtype) -> None:
    x = random(9, 3, 40, seed=2, dtype=dtype)
    cos, sin = rope_tables(9, 16, 1e4, dtype)
    turned = rotate(x.clone(), cos, sin)
    number = torch.complex(x[..., :8].double(), x[..., 8:16].double())
    number = number * torch.complex(cos.double(), sin.double()).unsqueeze(1)
    assert turned.dtype == dtype
    assert_near(turned[..., :16], torch.cat((number.real, number.imag), dim=-1), dtype)
    assert torch.equal(turned[..., 16:], x[..., 16:])


def test_position_zero_turns_nothing() -> None:
    x = random(1, 2, 32, seed=3)
    cos, sin = rope_tables(1, 32, 1e7, torch.float32)
    assert torch.equal(rotate(x.clone(), cos, sin), x)


def test_tables_are_cosines_and_sines_of_position_over_wavelength() -> None:
    cos, sin = rope_tables(300, 8, 100.0, torch.float32)
    for position in (0, 1, 17, 299):
        for place in range(4):
            angle = position * 100.0 ** (-2 * place / 8)
            assert float(cos[position, place]) == pytest.approx(math.cos(angle), abs=1e-4)
            assert float(sin[position, place]) == pytest.approx(math.sin(angle), abs=1e-4)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_longer_table_begins_with_the_shorter_one(dtype: torch.dtype) -> None:
    """A position turns alike in sessions of every size."""
    longest = rope_tables(4097, 64, 1e7, dtype)
    for rows in (1, 7, 64, 1000, 4096):
        for part, whole in zip(rope_tables(rows, 64, 1e7, dtype), longest, strict=True):
            assert torch.equal(part, whole[:rows])
