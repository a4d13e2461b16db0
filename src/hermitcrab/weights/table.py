"""The n-gram table: rows gathered from mapped shards, plain or affine, so that it is never copied whole."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from hermitcrab.weights.affine import AffineFormat, AffineWeight, dequantize_rows

# a table of at most this many fp32 bytes may be held dequantized
RESIDENT_BYTES = 64 << 20

RowShard = Tensor | AffineWeight

# items are gathered as plain integers of their size: torch gathers no single uint32
_RAW = {1: torch.uint8, 2: torch.int16, 4: torch.int32}


class RowTable:
    """A tall table [rows, width] stored as consecutive row shards of one format; rows are read by id.

    `gather` of a resident table and of a mapped one give the same bits.
    """

    def __init__(self, shards: Sequence[RowShard], *, resident: bool = False) -> None:
        """All shards plain of one dtype, or affine of one format; `resident` holds a small table in fp32."""
        first = shards[0]
        self.width = first.shape[-1]
        self.rows = sum(shard.shape[0] for shard in shards)
        self.format = first.format if isinstance(first, AffineWeight) else None
        self._parts = _parts_of(shards)
        starts = [0, *accumulate(shard.shape[0] for shard in shards)]
        self._ends = torch.tensor(starts[1:])
        self._held: Tensor | None = None
        if resident and self.rows * self.width * 4 <= RESIDENT_BYTES:
            self._held = self._read(torch.arange(self.rows))

    @property
    def is_resident(self) -> bool:
        """True when all rows are held in memory as fp32."""
        return self._held is not None

    def gather(self, ids: Tensor, dtype: torch.dtype) -> Tensor:
        """Rows `ids` (int64 [n], each from 0 to rows - 1) as [n, width] in `dtype`, rounded once from fp32.

        Raises IndexError for an id outside the table.
        """
        if self._held is not None:
            return self._held.index_select(0, ids).to(dtype)
        return self._read(ids).to(dtype)

    def _read(self, ids: Tensor) -> Tensor:
        if ids.numel() and not 0 <= int(ids.min()) <= int(ids.max()) < self.rows:
            raise IndexError(f"n-gram row ids must be from 0 to {self.rows - 1}")
        shard = torch.bucketize(ids, self._ends, right=True)
        fields = [part.gather(ids, shard) for part in self._parts]
        if self.format is None:
            return fields[0].to(torch.float32)
        words, scales, biases = fields
        return dequantize_rows(words, scales, biases, self.format)


@dataclass(frozen=True, slots=True)
class _Part:
    """One field (values, words, scales or biases) of every shard, readable by address.

    Row r of shard s is the `row_items` items of `items` from `origins[s] + r * row_items` on, r counted
    over the whole table. `keep` holds the shards' memory.
    """

    items: Tensor
    dtype: torch.dtype
    origins: Tensor
    columns: Tensor
    keep: tuple[Tensor, ...]

    def gather(self, ids: Tensor, shard: Tensor) -> Tensor:
        """The field of rows `ids`, one a row, given the shard that each lies in."""
        starts = self.origins.index_select(0, shard) + ids * self.columns.shape[0]
        index = starts.unsqueeze(1) + self.columns
        return self.items.index_select(0, index.view(-1)).view(index.shape).view(self.dtype)


def _parts_of(shards: Sequence[RowShard]) -> tuple[_Part, ...]:
    plain = [shard for shard in shards if isinstance(shard, Tensor)]
    affine = [shard for shard in shards if isinstance(shard, AffineWeight)]
    assert not (plain and affine)
    if plain:
        return (_part(plain),)
    formats: set[AffineFormat] = {shard.format for shard in affine}
    assert len(formats) == 1
    return (
        _part([shard.words for shard in affine]),
        _part([shard.scales for shard in affine]),
        _part([shard.biases for shard in affine]),
    )


def _part(fields: list[Tensor]) -> _Part:
    """Lay one flat view over the address range that spans all fields, which may lie in several mapped files.

    Only addresses inside a field are ever read; a gather over all shards is then one operation instead
    of one a file.
    """
    dtype, width = fields[0].dtype, fields[0].shape[1]
    assert all(field.dtype == dtype and field.shape[1] == width and field.is_contiguous() for field in fields)
    addresses = [field.data_ptr() for field in fields]
    # some writers do not align their files: then only single bytes are reachable by whole offsets
    item_bytes = 1 if any(address % dtype.itemsize for address in addresses) else dtype.itemsize
    row_items = width * dtype.itemsize // item_bytes
    low = min(addresses)
    high = max(field.data_ptr() + field.numel() * dtype.itemsize for field in fields)
    span = (ctypes.c_char * (high - low)).from_address(low)
    firsts = accumulate((field.shape[0] for field in fields[:-1]), initial=0)
    origins = [
        (address - low) // item_bytes - first * row_items
        for address, first in zip(addresses, firsts, strict=True)
    ]
    return _Part(
        items=torch.frombuffer(span, dtype=_RAW[item_bytes]),
        dtype=dtype,
        origins=torch.tensor(origins),
        columns=torch.arange(row_items),
        keep=tuple(fields),
    )
