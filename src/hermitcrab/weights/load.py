"""Stored pieces to whole weights: plain tensors and affine triples, checked, stacked and joined."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from hermitcrab.errors import CheckpointError
from hermitcrab.weights.affine import AffineFormat, AffineWeight
from hermitcrab.weights.shards import Shards, StoredTensor

Weight = Tensor | AffineWeight

FLOATS = (torch.bfloat16, torch.float16, torch.float32)


@dataclass(frozen=True, slots=True)
class StoredWeight:
    """One weight as stored: plain (`scales` and `biases` None), or an affine triple of `format`."""

    weight: StoredTensor
    scales: StoredTensor | None = None
    biases: StoredTensor | None = None
    format: AffineFormat | None = None

    @property
    def size_bytes(self) -> int:
        """Bytes in the files."""
        return sum(part.size_bytes for part in (self.weight, self.scales, self.biases) if part is not None)

    @property
    def params(self) -> int:
        """Values, quantized or not."""
        if self.format is None or self.scales is None:
            return prod(self.weight.shape)
        return prod(self.scales.shape) * self.format.group_size

    @property
    def kind(self) -> str:
        """How the values are stored, in words: `bfloat16`, or `6-bit in groups of 32`."""
        if self.format is None:
            return str(self.weight.dtype).removeprefix("torch.")
        return f"{self.format.bits}-bit in groups of {self.format.group_size}"


def check_stored(stored: StoredWeight, shape: tuple[int, ...]) -> None:
    """Check a weight whose values should have `shape`; a convolution may be stored [channels, kernel, 1].

    Raises CheckpointError, naming the tensor, what it is and what it must be.
    """
    if stored.format is None or stored.scales is None or stored.biases is None:
        _check_tensor(stored.weight, _allowed_shapes(shape), FLOATS)
        return
    if len(shape) < 2:
        raise CheckpointError(f"{stored.weight.name} is quantized, but a vector must be stored plain.")
    width = shape[-1]
    if width % stored.format.group_size:
        raise CheckpointError(
            f"{stored.weight.name} is quantized in groups of {stored.format.group_size}, "
            f"which do not divide its {width} inputs."
        )
    words = (*shape[:-1], stored.format.words_in_row(width))
    groups = (*shape[:-1], stored.format.groups_in_row(width))
    why = f" for {stored.format.bits} bits in groups of {stored.format.group_size}"
    _check_tensor(stored.weight, [words], (torch.uint32,), why)
    _check_tensor(stored.scales, [groups], FLOATS, why)
    _check_tensor(stored.biases, [groups], (stored.scales.dtype,), why)


def read_stored(
    shards: Shards, stored: StoredWeight, shape: tuple[int, ...], *, is_scattered: bool = False
) -> Weight:
    """A checked weight as views of the mapped files; `is_scattered` where few rows will be read."""
    weight = shards.read(stored.weight.name, is_scattered=is_scattered)
    if stored.format is None or stored.scales is None or stored.biases is None:
        # the one allowed other shape is a convolution's with its last two dimensions exchanged
        return weight if weight.shape == shape else weight.transpose(-1, -2)
    return AffineWeight(
        words=weight,
        scales=shards.read(stored.scales.name, is_scattered=is_scattered),
        biases=shards.read(stored.biases.name, is_scattered=is_scattered),
        bits=stored.format.bits,
        group_size=stored.format.group_size,
    )


def stack(weights: Sequence[Weight]) -> Weight:
    """Weights of equal shape along a new leading dimension; affine ones of one format stay affine."""
    return _combine(weights, lambda parts: torch.stack(list(parts)))


def join_rows(weights: Sequence[Weight]) -> Weight:
    """Weights one below the other along the out dimension; affine ones of one format stay affine."""
    return _combine(weights, lambda parts: torch.cat(list(parts), dim=-2))


def _combine(weights: Sequence[Weight], combine: Callable[[Sequence[Tensor]], Tensor]) -> Weight:
    affine = [weight for weight in weights if isinstance(weight, AffineWeight)]
    if len(affine) == len(weights) and len({(weight.format, weight.scales.dtype) for weight in affine}) == 1:
        return AffineWeight(
            words=combine([weight.words for weight in affine]),
            scales=combine([weight.scales for weight in affine]),
            biases=combine([weight.biases for weight in affine]),
            bits=affine[0].bits,
            group_size=affine[0].group_size,
        )
    return combine([_plain(weight) for weight in weights])


def _plain(weight: Weight) -> Tensor:
    return weight.dequantize(weight.scales.dtype) if isinstance(weight, AffineWeight) else weight


def _allowed_shapes(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    is_convolution = len(shape) == 3 and shape[1] == 1
    return [shape, (shape[0], shape[2], 1)] if is_convolution else [shape]


def _check_tensor(
    stored: StoredTensor, shapes: list[tuple[int, ...]], dtypes: tuple[torch.dtype, ...], why: str = ""
) -> None:
    if stored.shape not in shapes:
        raise CheckpointError(
            f"{stored.file.name}: {stored.name} has the shape {list(stored.shape)}, "
            f"but it must be {list(shapes[0])}{why}."
        )
    if stored.dtype not in dtypes:
        allowed = " or ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
        raise CheckpointError(
            f"{stored.file.name}: {stored.name} is {str(stored.dtype).removeprefix('torch.')}, "
            f"but it must be {allowed}{why}."
        )
