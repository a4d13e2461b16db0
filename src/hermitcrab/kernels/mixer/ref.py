"""Hyper-connections over `streams` residual streams of width `hidden`; rows are [rows, streams, hidden].

read:  n = norm(h) per stream;  mix = sigmoid(up(silu(down(n) / streams)));  row = mean over streams of mix * n
write: h = h + (2 * sigmoid(inject(n) / streams)) * output, one factor a stream
"""

import torch
from torch import Tensor

from hermitcrab.kernels.activations import sigmoid, silu
from hermitcrab.kernels.linear import Linear, ProductPath
from hermitcrab.kernels.norm import rms_norm


class Mixer:
    """One block's hyper-connection; without an inject weight it can only read.

    `gain` [streams, hidden] float32 (1 + the stored weight), `down` [rank, streams * hidden], `up` [streams *
    hidden, rank], `inject` [streams, streams * hidden].
    """

    def __init__(
        self, gain: Tensor, down: Tensor, up: Tensor, inject: Tensor | None, *, eps: float, path: ProductPath
    ) -> None:
        self._gain = gain
        self._eps = eps
        self._streams, self._rank = gain.shape[0], down.shape[0]
        # down and inject share their input; so one product serves both
        self._into = Linear(down if inject is None else torch.cat((down, inject)), path)
        self._up = Linear(up, path)
        self._dtype = down.dtype

    def read(self, streams: Tensor) -> tuple[Tensor, Tensor]:
        """The block's input [rows, hidden] and the factors [rows, streams, 1] for `write` (float32)."""
        rows = streams.shape[0]
        normed = rms_norm(streams, self._gain, self._eps)
        into = self._into(normed.view(rows, -1).to(self._dtype)).float().mul_(1.0 / self._streams)
        mix = sigmoid(self._up(silu(into[:, : self._rank]).to(self._dtype)))
        mixed = mix.view_as(normed).mul_(normed)
        row = _sum_streams(mixed).mul_(1.0 / self._streams)
        return row.to(self._dtype), sigmoid(into[:, self._rank :]).mul_(2.0).unsqueeze(-1)

    def write(self, streams: Tensor, output: Tensor, factors: Tensor) -> Tensor:
        """Add a block's output [rows, hidden] to every stream, times its factor."""
        return torch.addcmul(streams, factors.to(streams.dtype), output.unsqueeze(1).to(streams.dtype))


def _sum_streams(mixed: Tensor) -> Tensor:
    """Sum over dim 1 in order."""
    total = mixed[:, 0] + mixed[:, 1]
    for stream in range(2, mixed.shape[1]):
        total += mixed[:, stream]
    return total
