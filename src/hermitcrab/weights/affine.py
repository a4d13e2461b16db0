"""Affine quantization in groups along the input, MLX's layout: value = scale * q + bias, low bits first.

A row of `in` values is one little-endian stream of `bits`-wide numbers in uint32 words: 5-bit puts 8 values
into 5 bytes, 6-bit 4 into 3, 4- and 8-bit one into a half or whole byte. Each group of `group_size` values
shares a scale and a bias. Shapes: words [..., out, in * bits / 32] uint32, scales and biases [..., out, in
/ group_size] floating.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import gcd, prod

import torch
from torch import Tensor

BITS = (4, 5, 6, 8)
GROUP_SIZES = (32, 64, 128)

# dequantizing works in pieces of about this many values, so that temporaries stay in cache and small
CHUNK_VALUES = 1 << 20


@dataclass(frozen=True, slots=True)
class AffineFormat:
    """How a quantized weight is stored."""

    bits: int
    group_size: int

    def words_in_row(self, width: int) -> int:
        """uint32 words of a row of `width` values, a multiple of the group size."""
        return width * self.bits // 32

    def groups_in_row(self, width: int) -> int:
        """Scales, and biases, of a row."""
        return width // self.group_size


@dataclass(frozen=True, slots=True)
class AffineWeight:
    """A quantized weight; leading dimensions (experts) are allowed. The words keep their uint32 type."""

    words: Tensor
    scales: Tensor
    biases: Tensor
    bits: int
    group_size: int

    def __post_init__(self) -> None:
        assert self.words.dtype == torch.uint32
        assert self.words.shape[:-1] == self.scales.shape[:-1]
        assert self.scales.shape == self.biases.shape
        assert self.words.shape[-1] * 32 == self.shape[-1] * self.bits

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the values, [..., out, in]."""
        return (*self.scales.shape[:-1], self.scales.shape[-1] * self.group_size)

    @property
    def format(self) -> AffineFormat:
        """Bits and group size."""
        return AffineFormat(self.bits, self.group_size)

    @property
    def size_bytes(self) -> int:
        """Bytes of words, scales and biases."""
        return sum(part.numel() * part.element_size() for part in (self.words, self.scales, self.biases))

    def dequantize(self, dtype: torch.dtype) -> Tensor:
        """All values, [..., out, in]: computed in fp32, multiply then add, and rounded once to `dtype`."""
        width = self.shape[-1]
        words, scales, biases = (
            part.reshape(-1, part.shape[-1]) for part in (self.words, self.scales, self.biases)
        )
        rows = words.shape[0]
        values = torch.empty(rows, width, dtype=dtype)
        step = max(1, CHUNK_VALUES // width)
        for start in range(0, rows, step):
            piece = slice(start, start + step)
            values[piece] = dequantize_rows(words[piece], scales[piece], biases[piece], self.format)
        return values.reshape(self.shape)

    def rows(self, index: Tensor, dtype: torch.dtype) -> Tensor:
        """Values of rows `index` (int64 [n]) of a matrix, [n, in], with the bits that `dequantize` gives."""
        assert self.words.dim() == 2
        picked = self.map(lambda part: part.index_select(0, index))
        return dequantize_rows(picked.words, picked.scales, picked.biases, self.format).to(dtype)

    def map(self, change: Callable[[Tensor], Tensor]) -> "AffineWeight":
        """One change (a slice of rows or experts, a move to a device) made to words, scales and biases."""
        return AffineWeight(
            change(self.words), change(self.scales), change(self.biases), self.bits, self.group_size
        )


def dequantize_rows(words: Tensor, scales: Tensor, biases: Tensor, stored: AffineFormat) -> Tensor:
    """fp32 values [n, in] of rows from words [n, in * bits / 32], scales and biases [n, in / group_size]."""
    # two operations: a fused multiply-add rounds otherwise in vector tails, so a row's bits would vary
    grouped = unpack(words, stored.bits).to(torch.float32).view(*scales.shape, stored.group_size)
    grouped *= scales.to(torch.float32).unsqueeze(-1)
    grouped += biases.to(torch.float32).unsqueeze(-1)
    return grouped.flatten(-2)


def unpack(words: Tensor, bits: int) -> Tensor:
    """The numbers in packed rows: words [..., n * bits / 32] uint32 to uint8 [..., n]."""
    stored = words.contiguous().view(torch.uint8)
    if bits == 8:
        return stored
    values, size = _pack_of(bits)
    columns = stored.view(*stored.shape[:-1], stored.shape[-1] // size, size).unbind(-1)
    numbers = []
    for slot in range(values):
        byte, shift = divmod(slot * bits, 8)
        number = columns[byte] >> shift
        if shift + bits > 8:
            number |= columns[byte + 1] << (8 - shift)
        numbers.append(number)
    return torch.stack(numbers, -1).bitwise_and_((1 << bits) - 1).flatten(-2)


def pack(numbers: Tensor, bits: int) -> Tensor:
    """The inverse of `unpack`: uint8 [..., n], each below 2**bits, n * bits a multiple of 32, to words."""
    assert numbers.shape[-1] * bits % 32 == 0
    values, size = _pack_of(bits)
    packs = numbers.reshape(*numbers.shape[:-1], numbers.shape[-1] // values, values)
    stored = torch.zeros(*packs.shape[:-1], size, dtype=torch.uint8)
    for slot in range(values):
        byte, shift = divmod(slot * bits, 8)
        stored[..., byte] |= packs[..., slot] << shift
        if shift + bits > 8:
            stored[..., byte + 1] |= packs[..., slot] >> (8 - shift)
    return stored.flatten(-2).view(torch.uint32)


def _pack_of(bits: int) -> tuple[int, int]:
    """The smallest run of numbers that fills whole bytes: how many numbers, how many bytes."""
    return 8 // gcd(bits, 8), bits // gcd(bits, 8)


def quantize(
    weight: Tensor, *, bits: int, group_size: int, scale_dtype: torch.dtype = torch.bfloat16
) -> AffineWeight:
    """An affine weight near `weight` [..., out, in], with scales and biases rounded to `scale_dtype`.

    The bias is the group's value of largest magnitude and zero lies on the grid (up to the rounding of
    both), as MLX's converter arranges it.
    """
    width = weight.shape[-1]
    assert bits in BITS
    assert width % group_size == 0
    rows = weight.to(torch.float32).reshape(-1, width)
    words, scales, biases = [], [], []
    step = max(1, CHUNK_VALUES // width)
    for start in range(0, prod(weight.shape[:-1]), step):
        groups = rows[start : start + step].view(-1, width // group_size, group_size)
        scale, bias = _fit(groups, bits=bits)
        scale, bias = scale.to(scale_dtype), bias.to(scale_dtype)
        numbers = (groups - bias.to(torch.float32)) / scale.to(torch.float32)
        numbers = numbers.round().clamp(0, (1 << bits) - 1).to(torch.uint8)
        words.append(pack(numbers.flatten(-2), bits))
        scales.append(scale.squeeze(-1))
        biases.append(bias.squeeze(-1))
    lead = weight.shape[:-1]
    return AffineWeight(
        words=torch.cat(words).reshape(*lead, -1),
        scales=torch.cat(scales).reshape(*lead, -1),
        biases=torch.cat(biases).reshape(*lead, -1),
        bits=bits,
        group_size=group_size,
    )


def _fit(groups: Tensor, *, bits: int) -> tuple[Tensor, Tensor]:
    """Scale and bias [..., 1] of groups [..., group_size]: from the larger magnitude's end to the other."""
    low = groups.amin(-1, keepdim=True)
    high = groups.amax(-1, keepdim=True)
    is_low_edge = low.abs() > high.abs()
    edge = torch.where(is_low_edge, low, high)
    # a group of equal values still needs a scale to divide by
    scale = ((high - low) / ((1 << bits) - 1)).clamp_min(1e-7)
    scale = torch.where(is_low_edge, scale, -scale)
    steps_to_zero = (edge / scale).round()
    has_zero = steps_to_zero != 0
    scale = torch.where(has_zero, edge / torch.where(has_zero, steps_to_zero, 1), scale)
    return scale, torch.where(has_zero, edge, 0)
