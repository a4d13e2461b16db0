"""Activations written from `tanh`, `exp` and `log1p`, which torch computes alike at every place of a buffer.

torch's own sigmoid, silu and softplus use one formula in the vector body and another in the tail, so that in
float32 a value depends on where it stands. With sigmoid(x) = (1 + tanh(x / 2)) / 2 the input comes halved and
sigmoid's factor 1/2 is left out: halving a weight is exact in binary, so both are paid once, at load.
All work in float32 and return it.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from hermitcrab.kernels.measures import Measures

# exp overflows float32 at 88; from here on softplus(x) = x far beyond any decay that leaves a trace
_SOFTPLUS_TOP = 80.0


@dataclass(frozen=True, slots=True)
class Activations:
    """The three functions a forward uses."""

    twice_sigmoid_of_half: Callable[[Tensor], Tensor]
    silu_of_half: Callable[[Tensor], Tensor]
    softplus: Callable[[Tensor], Tensor]


def activations_of(measures: Measures) -> Activations:
    """The exact functions, or torch's own."""
    if measures.activations:
        return Activations(twice_sigmoid_of_half, silu_of_half, softplus)
    return Activations(
        lambda half: torch.sigmoid(half.float() * 2.0).mul_(2.0),
        lambda half: F.silu(half.float() * 2.0),
        lambda x: F.softplus(x.float()),
    )


def twice_sigmoid_of_half(half: Tensor) -> Tensor:
    """2 * sigmoid(x) = 1 + tanh(x / 2) from x / 2, any shape."""
    return torch.tanh(half.float()).add_(1.0)


def silu_of_half(half: Tensor) -> Tensor:
    """silu(x) = x / 2 * (1 + tanh(x / 2)) from x / 2, any shape."""
    wide = half.float()
    return torch.addcmul(wide, wide, torch.tanh(wide))


def softplus(x: Tensor) -> Tensor:
    """log(1 + exp(x)), any shape; the value at 80 for anything above."""
    return x.float().clamp(max=_SOFTPLUS_TOP).exp_().log1p_()
