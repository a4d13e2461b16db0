"""Hyper-connections: how a block reads from and writes to the residual streams."""

import torch
from torch import Tensor, nn
from torch.nn import functional as fn

from training.nets.rows import stream_norm
from training.shape import Shape


class HyperConnection(nn.Module):
    """A learned read of the streams and, where a block follows, the weight of its write to each stream."""

    def __init__(self, shape: Shape, *, writes: bool = True) -> None:
        super().__init__()
        self.shape = shape
        width = shape.stream_width
        self.hc_norm = nn.Parameter(torch.zeros(width))
        self.input_mix_weight_down = nn.Linear(width, shape.hc_lowrank, bias=False)
        self.input_mix_weight_up = nn.Linear(shape.hc_lowrank, width, bias=False)
        self.block_inject_weight = nn.Linear(width, shape.hc_count, bias=False) if writes else None

    def read(self, streams: Tensor) -> tuple[Tensor, Tensor | None]:
        """The block's input [N, D] and its write weights [N, S] (None for a final mixer)."""
        count, hidden = self.shape.hc_count, self.shape.hidden_size
        normed = stream_norm(streams, self.hc_norm, self.shape.rms_norm_eps, hidden)
        low = fn.silu(self.input_mix_weight_down(normed) / count)
        mix = torch.sigmoid(self.input_mix_weight_up(low))
        mixed = (mix * normed).unflatten(-1, (count, hidden)).mean(-2)
        if self.block_inject_weight is None:
            return mixed, None
        return mixed, 2 * torch.sigmoid(self.block_inject_weight(normed) / count)

    def write(self, streams: Tensor, output: Tensor, weights: Tensor) -> Tensor:
        """Add the block's output [N, D] to each stream, scaled by that stream's weight."""
        return streams + (output.unsqueeze(-2) * weights.unsqueeze(-1)).flatten(-2)
