"""Row-wise pieces: norms, shifted rows, depthwise convolutions, rotary positions."""

import torch
from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Normalise the last axis in fp32 and multiply by 1 + weight; returns x's dtype."""
    wide = x.float()
    wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (wide * (1.0 + weight.float())).to(x.dtype)


def stream_norm(streams: Tensor, weight: Tensor, eps: float, hidden_size: int) -> Tensor:
    """Normalise each residual stream of [N, S * D] on its own."""
    count = streams.shape[-1] // hidden_size
    split = streams.unflatten(-1, (count, hidden_size))
    return rms_norm(split, weight.view(count, hidden_size), eps).flatten(-2)


def earlier(x: Tensor, place: Tensor, shift_rows: int) -> Tensor:
    """Row n holds row n - shift of the same sequence, or zeros where that sequence had not begun."""
    if shift_rows == 0:
        return x
    moved = torch.roll(x, shift_rows, dims=0)
    return torch.where(
        (place >= shift_rows).unsqueeze(-1), moved, torch.zeros((), dtype=x.dtype, device=x.device)
    )


def causal_conv(x: Tensor, weight: Tensor, place: Tensor, dilation: int) -> Tensor:
    """Depthwise causal convolution of [N, channels] by [channels, taps], the last tap on the row itself."""
    taps = weight.shape[-1]
    total = x * weight[:, taps - 1]
    for tap in range(taps - 1):
        total = total + earlier(x, place, (taps - 1 - tap) * dilation) * weight[:, tap]
    return total


def rotary_tables(positions: Tensor, rotary_dim: int, theta: float) -> Tensor:
    """Cosines and sines [N, 2, rotary_dim / 2] fp32 of each row's position."""
    exponents = torch.arange(0, rotary_dim, 2, dtype=torch.float32, device=positions.device) / rotary_dim
    angles = positions.float().unsqueeze(-1) / theta**exponents
    return torch.stack((angles.cos(), angles.sin()), dim=-2)


def rotate(x: Tensor, tables: Tensor) -> Tensor:
    """Rotate the first values of each head of [..., H, dim], in x's dtype; `tables` [..., 2, rotary / 2]."""
    half = tables.shape[-1]
    cos, sin = tables[..., 0, :].unsqueeze(-2), tables[..., 1, :].unsqueeze(-2)
    wide = x.float()
    first, second, rest = wide[..., :half], wide[..., half : 2 * half], wide[..., 2 * half :]
    turned = (first * cos - second * sin, second * cos + first * sin, rest)
    return torch.cat(turned, dim=-1).to(x.dtype)
