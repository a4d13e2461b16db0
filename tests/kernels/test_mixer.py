"""Hyper-connections: reading and writing the residual streams."""

import pytest
import torch
from kernel_bench import DTYPES, assert_near, assert_rows_are_their_own, measures, random, sigmoid, silu
from torch import Tensor

from hermitcrab.kernels.mixer import Mixer

HIDDEN, RANK, EPS = 96, 20, 1e-6


class Weights:
    """One hyper-connection's weights."""

    def __init__(self, streams: int, dtype: torch.dtype) -> None:
        width = streams * HIDDEN
        self.dtype = dtype
        self.gain = 1.0 + 0.2 * random(streams, HIDDEN, seed=1)
        self.down = (random(RANK, width, seed=2) * width**-0.5).to(dtype)
        self.up = (random(width, RANK, seed=3) * RANK**-0.5).to(dtype)
        self.inject = (random(streams, width, seed=4) * width**-0.5).to(dtype)

    def mixer(self, *, injects: bool = True) -> Mixer:
        return Mixer(
            self.gain,
            self.down,
            self.up,
            self.inject if injects else None,
            eps=EPS,
            measures=measures(self.dtype),
        )

    def read(self, streams: Tensor) -> tuple[Tensor, Tensor]:
        """The equations in float64: the row read, and the factors of the write."""
        count, wide = streams.shape[1], streams.double()
        normed = wide / (wide.square().mean(-1, keepdim=True) + EPS).sqrt() * self.gain.double()
        flat = normed.flatten(1)
        mix = sigmoid(silu(flat @ self.down.double().T / count) @ self.up.double().T)
        factors = 2.0 * sigmoid(flat @ self.inject.double().T / count)
        return (mix.view_as(normed) * normed).mean(1), factors.unsqueeze(-1)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("count", [2, 4])
def test_a_row_read_and_written_is_its_own(dtype: torch.dtype, count: int) -> None:
    mixer = Weights(count, dtype).mixer()
    streams, output = random(24, count, HIDDEN, seed=5, dtype=dtype), random(24, HIDDEN, seed=6, dtype=dtype)

    def run(index: Tensor) -> tuple[Tensor, ...]:
        row, factors = mixer.read(streams[index])
        return row, factors, mixer.write(streams[index], output[index], factors)

    assert_rows_are_their_own(run)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("count", [2, 3, 4])
def test_reads_and_writes_are_the_oracles(dtype: torch.dtype, count: int) -> None:
    weights = Weights(count, dtype)
    mixer = weights.mixer()
    streams, output = random(7, count, HIDDEN, seed=7, dtype=dtype), random(7, HIDDEN, seed=8, dtype=dtype)
    row, factors = mixer.read(streams)
    expected_row, expected_factors = weights.read(streams)
    assert row.dtype == dtype
    assert_near(row, expected_row, dtype)
    assert_near(factors, expected_factors, dtype)
    written = mixer.write(streams, output, factors)
    assert written.dtype == dtype
    expected = streams.double() + expected_factors * output.double().unsqueeze(1)
    assert_near(written, expected, dtype)


def test_a_mixer_without_inject_reads_the_same_row() -> None:
    weights = Weights(4, torch.float32)
    streams = random(7, 4, HIDDEN, seed=9)
    assert_near(weights.mixer(injects=False).read(streams)[0], weights.read(streams)[0])


def test_the_streams_are_left_as_they_were() -> None:
    mixer = Weights(4, torch.float32).mixer()
    streams, output = random(3, 4, HIDDEN, seed=10), random(3, HIDDEN, seed=11)
    before = streams.clone()
    mixer.write(streams, output, mixer.read(streams)[1])
    assert torch.equal(streams, before)


def test_streams_that_share_memory_are_read_as_if_apart() -> None:
    """The first layer gets the embedding, expanded into every stream."""
    mixer = Weights(4, torch.float32).mixer()
    expanded = random(5, HIDDEN, seed=12).unsqueeze(1).expand(-1, 4, -1)
    row, factors = mixer.read(expanded)
    row_apart, factors_apart = mixer.read(expanded.clone())
    assert torch.equal(row, row_apart)
    output = random(5, HIDDEN, seed=13)
    assert torch.equal(
        mixer.write(expanded, output, factors), mixer.write(expanded.clone(), output, factors_apart)
    )
