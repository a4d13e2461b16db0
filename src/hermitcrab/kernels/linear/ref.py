"""Row-invariant products on a CPU: oneDNN's packed weights where a proof holds, else tiles of fixed height.

A plain `F.linear` picks another kernel, and so another order of the sum, for another number of rows. oneDNN's
packed product was found to give one row the same bits whatever its company, on every CPU tried, but for a
single row with a long sum, which is therefore given a companion. The call is private to torch: `choose_path`
proves it on this machine before it is used.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from hermitcrab.kernels.measures import ProductPath

# one height for all calls: each height is a class of bits of its own
TILE_ROWS = 16

# above this length of the sum a single row takes a kernel of its own
_LONGEST_ALONE = 1024

# shapes [out, in] of the proof: narrow and wide, short and long sums, not multiples of the vector width
_PROOF_SHAPES = ((8, 128), (36, 1024), (768, 256), (256, 1088), (130, 320), (2177, 256))
_PROOF_ROWS = (1, 2, 3, 4, 5, 8, 11, 16, 31, 32, 64)


class Linear:
    """A weight [out, in], arranged once for products `rows @ weight.T`; rows [rows, in] -> [rows, out]."""

    def __init__(self, weight: Tensor, path: ProductPath) -> None:
        self.out_width, self.in_width = weight.shape
        self._path = path
        self._weight = _pack(weight) if path is ProductPath.PACKED else weight.contiguous()

    def __call__(self, rows: Tensor) -> Tensor:
        if self._path is ProductPath.PACKED:
            return _packed(rows, self._weight)
        if self._path is ProductPath.TILED:
            return _tiled(rows, self._weight)
        return F.linear(rows, self._weight)


def choose_path(dtype: torch.dtype) -> ProductPath:
    """The packed product if this machine passes the proof with as many threads as are set now, else tiles."""
    generator = torch.Generator().manual_seed(1)
    for out_width, in_width in _PROOF_SHAPES:
        weight = torch.randn(out_width, in_width, generator=generator).to(dtype)
        rows = torch.randn(max(_PROOF_ROWS), in_width, generator=generator).to(dtype)
        try:
            packed = _pack(weight)
            whole = _packed(rows, packed)
            pieces = [_packed(rows[:count].contiguous(), packed) for count in _PROOF_ROWS]
        except (RuntimeError, AttributeError):
            return ProductPath.TILED
        if not all(torch.equal(piece, whole[: piece.shape[0]]) for piece in pieces):
            return ProductPath.TILED
        if not torch.equal(_packed(rows, _pack(weight[: out_width // 2])), whole[:, : out_width // 2]):
            return ProductPath.TILED
    return ProductPath.PACKED


def _pack(weight: Tensor) -> Tensor:
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), 8)
    return packed


def _packed(rows: Tensor, packed: Tensor) -> Tensor:
    if rows.shape[0] == 1 and rows.shape[1] > _LONGEST_ALONE:
        return _packed(rows.expand(2, -1).contiguous(), packed)[:1]
    product: Tensor = torch.ops.mkldnn._linear_pointwise(rows, packed, None, "none", [], "")
    return product


def _tiled(rows: Tensor, weight: Tensor) -> Tensor:
    count = rows.shape[0]
    padded = F.pad(rows, (0, 0, 0, -count % TILE_ROWS))
    tiles = [F.linear(tile, weight) for tile in torch.split(padded, TILE_ROWS)]
    return tiles[0][:count] if len(tiles) == 1 else torch.cat(tiles)[:count]
