"""Causal depthwise convolution, its taps summed oldest first."""

import torch
from torch import Tensor


def causal_conv(history: Tensor, taps: Tensor, dilation: int = 1) -> Tensor:
    """Convolve windows that stand behind their past rows.

    history [windows, past + rows, channels] float32, past = (kernel - 1) * dilation; taps [kernel,
    channels] float32, oldest first; returns [windows, rows, channels].
    """
    kernel = taps.shape[0]
    rows = history.shape[1] - (kernel - 1) * dilation
    out = history[:, :rows] * taps[0]
    for tap in range(1, kernel):
        out = torch.addcmul(out, history[:, tap * dilation : tap * dilation + rows], taps[tap])
    return out
