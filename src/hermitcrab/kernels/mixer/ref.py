"""Hyper-connections over `streams` residual streams of width `hidden`; rows are [rows, streams, hidden].

read:  n = norm(h) per stream;  mix = sigmoid(up(silu(down(n) / streams)))
       row = mean over streams of mix * n
write: h = h + (2 * sigmoid(inject(n) / streams)) * output, one factor a stream

The activations take halved inputs. Those halves, sigmoid's own and the divisions by `streams` are folded into
the norm's gain, so that n stands for n / (2 * streams) below.
"""

import torch
from torch import Tensor

from hermitcrab.kernels.activations import activations_of
from hermitcrab.kernels.linear import Linear
from hermitcrab.kernels.measures import Measures
from hermitcrab.kernels.norm import rms_norm


class Mixer:
    """One block's hyper-connection; without an inject weight it can only read.

    `gain` [streams, hidden] float32 (1 + the stored weight), `down` [rank, streams * hidden], `up` [streams *
    hidden, rank], `inject` [streams, streams * hidden].
    """

    def __init__(
        self, gain: Tensor, down: Tensor, up: Tensor, inject: Tensor | None, *, eps: float, measures: Measures
    ) -> None:
        self._gain = gain * (0.5 / gain.shape[0])
        self._eps, self._dtype, self._rank = eps, down.dtype, down.shape[0]
        self._activations = activations_of(measures)
        # down and inject share their input; so one product serves both
        self._into = Linear(down if inject is None else torch.cat((down, inject)), measures.products)
        self._up = Linear(up * 0.5, measures.products)

    def read(self, streams: Tensor) -> tuple[Tensor, Tensor]:
        """The block's input [rows, hidden] and the factors [rows, streams, 1] for `write` (float32)."""
        normed = rms_norm(streams, self._gain, self._eps)
        into = self._into(normed.flatten(1).to(self._dtype))
        hidden = self._activations.silu_of_half(into[:, : self._rank])
        mix = self._activations.twice_sigmoid_of_half(self._up(hidden.to(self._dtype)))
        row = mix.view_as(normed).mul_(normed).sum(1)
        factors = self._activations.twice_sigmoid_of_half(into[:, self._rank :])
        return row.to(self._dtype), factors.unsqueeze(-1)

    def write(self, streams: Tensor, output: Tensor, factors: Tensor) -> Tensor:
        """Add a block's output [rows, hidden] to every stream, times its factor."""
        return torch.addcmul(streams, factors.to(streams.dtype), output.unsqueeze(1).to(streams.dtype))
