"""Activations written from `exp`, which torch computes alike at every place of a buffer.

torch's own sigmoid, silu and softplus use one formula in the vector body and another in the tail, so that in
float32 a value depends on where it stands. All work in float32 and return it.
"""

import torch
from torch import Tensor


def sigmoid(x: Tensor) -> Tensor:
    """1 / (1 + exp(-x)), any shape, float32 out."""
    return torch.neg(x.float()).exp_().add_(1.0).reciprocal_()


def silu(x: Tensor) -> Tensor:
    """x * sigmoid(x), any shape, float32 out."""
    return sigmoid(x).mul_(x)


def softplus(x: Tensor) -> Tensor:
    """log(1 + exp(x)), any shape, float32 out; x itself above 20, where the two agree in float32."""
    wide = x.float()
    return torch.where(wide > 20.0, wide, wide.exp().add_(1.0).log_())
