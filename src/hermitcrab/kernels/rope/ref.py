"""Rotary position embedding on the first dimensions of a head, halves paired (x[i] with x[i + dim / 2]).

For text the three axes of M-RoPE hold the same position, so the interleaving of its sections has no effect.
"""

import torch
from torch import Tensor


def rope_tables(rows: int, rotary_dim: int, theta: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosines and sines [rows, rotary_dim / 2] of position * theta^(-2i / rotary_dim), rounded to `dtype`."""
    frequency = 1.0 / (theta ** (torch.arange(0, rotary_dim, 2, dtype=torch.float32) / rotary_dim))
    angle = torch.arange(rows, dtype=torch.float32).unsqueeze(1) * frequency
    return angle.cos().to(dtype), angle.sin().to(dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn, in place, the first dimensions of x [rows, heads, dim] by tables [rows, rotary_dim / 2]."""
    half = cos.shape[-1]
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    low, high = x[..., :half], x[..., half : 2 * half]
    crossed = low * sin
    low.mul_(cos).addcmul_(high, sin, value=-1.0)
    high.mul_(cos).add_(crossed)
    return x
