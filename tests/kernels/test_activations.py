"""Activations: a value is a function of its input, wherever it stands."""

import math

import pytest
import torch
from kernel_bench import DTYPES, assert_near, assert_rows_are_their_own, random, sigmoid, silu
from torch import Tensor

from hermitcrab.kernels.activations import silu_of_half, softplus, twice_sigmoid_of_half

FUNCTIONS = {
    twice_sigmoid_of_half: lambda half: 2.0 * sigmoid(2.0 * half),
    silu_of_half: lambda half: silu(2.0 * half),
    softplus: lambda x: torch.log1p(torch.exp(x)),
}


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
# around the vector widths of 8 and 16, and tails of every kind
@pytest.mark.parametrize("width", [1, 3, 4, 8, 15, 17, 33])
def test_a_row_of_any_width_is_its_own(function: object, dtype: torch.dtype, width: int) -> None:
    assert callable(function)
    table = random(24, width, seed=1, dtype=dtype) * 4.0
    assert_rows_are_their_own(lambda index: function(table[index]))


@pytest.mark.parametrize("function", FUNCTIONS)
def test_every_bfloat16_number_gives_the_same_value_at_every_place(function: object) -> None:
    assert callable(function)
    numbers = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int16).view(torch.bfloat16)
    numbers = numbers[numbers.isfinite()]
    at_once = function(numbers)
    for shift in range(1, 20):
        assert torch.equal(function(torch.cat((numbers[-shift:], numbers)))[shift:], at_once)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_slice_of_a_wider_table_gives_what_a_copy_of_it_gives(function: object) -> None:
    assert callable(function)
    table = random(9, 70, seed=2)
    for low, high in ((0, 33), (1, 34), (37, 70), (5, 6)):
        assert torch.equal(function(table[:, low:high]), function(table[:, low:high].clone()))


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_values_are_the_oracles(function: object, dtype: torch.dtype) -> None:
    assert callable(function)
    x = (random(4000, seed=3) * 6.0).to(dtype)
    # inputs are widened, never results narrowed
    assert function(x).dtype == torch.float32
    assert_near(function(x), FUNCTIONS[function](x.double()))


@pytest.mark.parametrize("function", FUNCTIONS)
def test_an_input_is_left_as_it_was(function: object) -> None:
    assert callable(function)
    x = random(40, seed=4)
    before = x.clone()
    function(x)
    assert torch.equal(x, before)


def test_the_far_ends_are_the_limits() -> None:
    ends: Tensor = torch.tensor([-1e30, -1e4, -60.0, 0.0, 60.0, 1e4])
    assert twice_sigmoid_of_half(ends).tolist() == [0.0, 0.0, 0.0, 1.0, 2.0, 2.0]
    assert silu_of_half(ends).tolist() == [0.0, 0.0, 0.0, 0.0, 120.0, 2e4]
    assert softplus(torch.tensor([-1e30, -200.0])).tolist() == [0.0, 0.0]


def test_softplus_of_anything_above_80_is_its_value_at_80() -> None:
    values = softplus(torch.tensor([80.0, 80.5, 100.0, 1e30]))
    assert values.tolist() == [pytest.approx(80.0)] * 4
    assert math.isfinite(float(softplus(torch.tensor(1e38))))
