"""Root-mean-square and Euclidean norms over the last dimension, in float32."""

from torch import Tensor

# inside the sum, as the family's training code has it
_L2_EPS = 1e-6


def rms_norm(x: Tensor, gain: Tensor | None, eps: float) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * gain over the last dimension, float32 out; `gain` float32, broadcast."""
    wide = x.float()
    normed = wide * (wide * wide).mean(-1, keepdim=True).add_(eps).rsqrt_()
    return normed if gain is None else normed.mul_(gain)


def l2_norm(x: Tensor) -> Tensor:
    """x / sqrt(sum(x^2) + 1e-6) over the last dimension, float32 out."""
    wide = x.float()
    return wide * (wide * wide).sum(-1, keepdim=True).add_(_L2_EPS).rsqrt_()
