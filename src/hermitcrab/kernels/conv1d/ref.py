"""Causal depthwise convolution, its taps summed oldest first."""

from torch import Tensor


def causal_conv(history: Tensor, taps: Tensor, dilation: int = 1) -> Tensor:
    """Convolve windows that stand behind their past rows.

    history [windows, past + rows, channels] float32, past = (kernel - 1) * dilation; taps [kernel,
    channels] float32, oldest first; returns [windows, rows, channels].
    """
    kernel = taps.shape[0]
    rows = history.shape[1] - (kernel - 1) * dilation
    if rows == 1:
        # one call for all slices: the common case of a round
        lines = [line.unsqueeze(1) for line in history.unbind(1)[::dilation]]
    else:
        lines = [history[:, tap * dilation : tap * dilation + rows] for tap in range(kernel)]
    out = lines[0] * taps[0]
    for line, tap_weights in zip(lines[1:], taps.unbind(0)[1:], strict=True):
        out.addcmul_(line, tap_weights)
    return out
