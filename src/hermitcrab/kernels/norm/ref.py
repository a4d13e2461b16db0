"""Root-mean-square and Euclidean norms over the last dimension, in float32."""

import torch
from torch import Tensor

# inside the sum, as the family's training code has it
_L2_EPS = 1e-6


def rms_norm(x: Tensor, gain: Tensor | None, eps: float) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * gain over the last dimension, float32 out; `gain` float32, broadcast."""
    normed = _scaled(x.float(), weight=1.0 / x.shape[-1], eps=eps)
    return normed if gain is None else normed.mul_(gain)


def l2_norm(x: Tensor) -> Tensor:
    """x / sqrt(sum(x^2) + 1e-6) over the last dimension, float32 out."""
    return _scaled(x.float(), weight=1.0, eps=_L2_EPS)


def _scaled(x: Tensor, *, weight: float, eps: float) -> Tensor:
    # one fused reduction, then operations on a number a row
    length: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    length.mul_(length)
    if weight != 1.0:
        length.mul_(weight)
    return x * length.add_(eps).rsqrt_()
