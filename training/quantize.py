"""Affine 6-bit groups of 32, as MLX makes and packs them: w = scale * q + bias."""

from typing import NamedTuple

import torch
from torch import Tensor

from training.shape import BITS, GROUP_WEIGHTS

TOP = 2**BITS - 1
SMALLEST_SCALE = 1e-7


class Groups(NamedTuple):
    """A quantized matrix: q [..., in] uint8; scales and biases [..., in / 32] bf16."""

    q: Tensor
    scales: Tensor
    biases: Tensor


def quantize(weight: Tensor) -> Groups:
    """Round groups of 32 along the last axis; the edge farther from zero is kept exactly, and so is zero."""
    groups = weight.float().unflatten(-1, (-1, GROUP_WEIGHTS))
    low, high = groups.amin(-1), groups.amax(-1)
    negative = low.abs() > high.abs()
    scales = ((high - low) / TOP).clamp_min(SMALLEST_SCALE)
    scales = torch.where(negative, scales, -scales)
    edge = torch.where(negative, low, high)
    steps = torch.round(edge / scales)
    scales = torch.where(steps != 0, edge / torch.where(steps != 0, steps, 1.0), scales).bfloat16()
    biases = torch.where(steps != 0, edge, 0.0).bfloat16()
    q = torch.round((groups - biases.float().unsqueeze(-1)) / scales.float().unsqueeze(-1)).clamp(0, TOP)
    return Groups(q.to(torch.uint8).flatten(-2), scales, biases)


def dequantize(groups: Groups) -> Tensor:
    """The weights a reader sees, fp32."""
    q = groups.q.unflatten(-1, (-1, GROUP_WEIGHTS)).float()
    return (q * groups.scales.float().unsqueeze(-1) + groups.biases.float().unsqueeze(-1)).flatten(-2)


def rounded(weight: Tensor) -> Tensor:
    """The weights as they read back after quantization, in the weight's dtype."""
    return dequantize(quantize(weight)).to(weight.dtype)


def pack(q: Tensor) -> Tensor:
    """Pack q [..., in] to uint32 words [..., in * 6 / 32]: a bit stream a row, low bits first."""
    four = q.unflatten(-1, (-1, 4)).int()
    stream = four[..., 0] | four[..., 1] << 6 | four[..., 2] << 12 | four[..., 3] << 18
    parts = torch.stack((stream & 255, stream >> 8 & 255, stream >> 16 & 255), dim=-1)
    return parts.to(torch.uint8).flatten(-2).contiguous().view(torch.uint32)


def unpack(words: Tensor) -> Tensor:
    """The q [..., in] uint8 that `pack` packed."""
    parts = words.contiguous().view(torch.uint8).unflatten(-1, (-1, 3)).int()
    stream = parts[..., 0] | parts[..., 1] << 8 | parts[..., 2] << 16
    four = torch.stack([stream >> shift & TOP for shift in (0, 6, 12, 18)], dim=-1)
    return four.to(torch.uint8).flatten(-2)
