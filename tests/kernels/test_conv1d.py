"""Causal depthwise convolution over windows."""

import pytest
import torch
import torch.nn.functional as F
from kernel_bench import assert_near, assert_rows_are_their_own, random
from torch import Tensor

from hermitcrab.kernels.conv1d import causal_conv

# DeltaNet's kernel, the n-gram layer's dilated one, and small ones
FORMS = ((4, 1), (4, 3), (2, 1), (3, 4))


@pytest.mark.parametrize(("kernel", "dilation"), FORMS)
@pytest.mark.parametrize("rows", [1, 4])
def test_a_window_is_its_own(kernel: int, dilation: int, rows: int) -> None:
    windows = random(24, (kernel - 1) * dilation + rows, 37, seed=1)
    taps = random(kernel, 37, seed=2)
    assert_rows_are_their_own(lambda index: causal_conv(windows[index], taps, dilation))


@pytest.mark.parametrize(("kernel", "dilation"), FORMS)
def test_a_row_has_the_bits_it_has_in_a_window_of_its_own(kernel: int, dilation: int) -> None:
    past = (kernel - 1) * dilation
    history, taps = random(2, past + 70, 37, seed=3), random(kernel, 37, seed=4)
    whole = causal_conv(history, taps, dilation)
    for row in range(70):
        alone = causal_conv(history[:, row : row + past + 1], taps, dilation)
        assert torch.equal(alone, whole[:, row : row + 1])


@pytest.mark.parametrize(("kernel", "dilation"), FORMS)
@pytest.mark.parametrize("rows", [1, 2, 9])
def test_values_are_the_oracles(kernel: int, dilation: int, rows: int) -> None:
    history, taps = random(3, (kernel - 1) * dilation + rows, 20, seed=5), random(kernel, 20, seed=6)
    expected = F.conv1d(
        history.double().transpose(1, 2), taps.double().T.unsqueeze(1), groups=20, dilation=dilation
    )
    assert_near(causal_conv(history, taps, dilation), expected.transpose(1, 2))


@pytest.mark.parametrize("rows", [1, 3])
def test_the_history_is_left_as_it_was(rows: int) -> None:
    history = random(2, 3 + rows, 8, seed=7)
    before = history.clone()
    causal_conv(history, random(4, 8, seed=8))
    assert torch.equal(history, before)


def test_the_newest_row_meets_the_last_tap() -> None:
    history: Tensor = torch.zeros(1, 4, 1)
    history[0, 3] = 1.0
    taps = torch.tensor([[1.0], [2.0], [3.0], [4.0]])
    assert causal_conv(history, taps).tolist() == [[[4.0]]]
