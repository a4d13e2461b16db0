"""What the recipe packs is what Hermitcrab reads."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from training.quantize import TOP, dequantize, pack, quantize, rounded, unpack
from training.shape import BITS, GROUP_WEIGHTS

from hermitcrab.weights.affine import AffineWeight


def as_read(weight: torch.Tensor) -> torch.Tensor:
    """The values of the packed weight, by the loader's own reading."""
    groups = quantize(weight)
    stored = AffineWeight(pack(groups.q), groups.scales, groups.biases, BITS, GROUP_WEIGHTS)
    return stored.dequantize(torch.float32)


@given(
    seed=st.integers(0, 10_000), rows=st.integers(1, 5), groups=st.integers(1, 4), spread=st.floats(1e-4, 50)
)
def test_the_loader_reads_the_values_that_training_rounded_to(
    seed: int, rows: int, groups: int, spread: float
) -> None:
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(rows, groups * GROUP_WEIGHTS, generator=generator) * spread
    assert torch.equal(as_read(weight), dequantize(quantize(weight)))


def test_experts_keep_their_leading_dimension() -> None:
    weight = torch.randn(3, 4, 64, generator=torch.Generator().manual_seed(1))
    assert torch.equal(as_read(weight), dequantize(quantize(weight)))


def test_packed_numbers_unpack_to_themselves() -> None:
    numbers = torch.arange(4 * 64).remainder(TOP + 1).to(torch.uint8).view(4, 64)
    assert torch.equal(unpack(pack(numbers)), numbers)


@pytest.mark.parametrize("value", [0.0, 1.0, -3.0])
def test_a_group_of_one_value_reads_back_as_that_value(value: float) -> None:
    weight = torch.full((2, GROUP_WEIGHTS), value)
    assert torch.equal(rounded(weight), weight)


def test_no_value_moves_further_than_a_step() -> None:
    weight = torch.randn(16, 8 * GROUP_WEIGHTS, generator=torch.Generator().manual_seed(2))
    groups = weight.unflatten(-1, (-1, GROUP_WEIGHTS))
    step = (groups.amax(-1) - groups.amin(-1)).unsqueeze(-1) / TOP
    moved = (rounded(weight).unflatten(-1, (-1, GROUP_WEIGHTS)) - groups).abs()
    # half a step, and what bf16 scales and biases shift the grid by at its far end
    assert (moved <= step * 1.0).all()
