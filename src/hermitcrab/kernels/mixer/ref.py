"""Hyper-connections over `streams` residual streams of width `hidden`; rows are [rows, streams, hidden].

read:  n = norm(h) per stream;  mix = sigmoid(up(silu(down(n) / streams)))
       row = mean over streams of mix * n
write: h = h + (2 * sigmoid(inject(n) / streams)) * output, one factor a stream

The activations take halved inputs: the halves and the divisions by `streams` are folded into the weights.
"""

import torch
from torch import Tensor

from hermitcrab.kernels.activations import silu_of_half, twice_sigmoid_of_half
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
        streams, self._rank = gain.shape[0], down.shape[0]
        # down and inject share their input; so one product serves both
        into = down if inject is None else torch.cat((down, inject))
        self._into = Linear(into * (0.5 / streams), path)
        self._up = Linear(up * 0.5, path)
        # the mean's division, and the half that twice_sigmoid leaves out
        self._scale = 0.5 / streams
        self._dtype = down.dtype

    def read(self, streams: Tensor) -> tuple[Tensor, Tensor]:
        """The block's input [rows, hidden] and the factors [rows, streams, 1] for `write` (float32)."""
        normed = rms_norm(streams, self._gain, self._eps)
        into = self._into(normed.flatten(1).to(self._dtype))
        mix = twice_sigmoid_of_half(self._up(silu_of_half(into[:, : self._rank]).to(self._dtype)))
        row = mix.view_as(normed).mul_(normed).sum(1).mul_(self._scale)
        return row.to(self._dtype), twice_sigmoid_of_half(into[:, self._rank :]).unsqueeze(-1)

    def write(self, streams: Tensor, output: Tensor, factors: Tensor) -> Tensor:
        """Add a block's output [rows, hidden] to every stream, times its factor."""
        return torch.addcmul(streams, factors.to(streams.dtype), output.unsqueeze(1).to(streams.dtype))
