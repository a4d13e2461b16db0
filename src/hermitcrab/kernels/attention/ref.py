"""Grouped-query attention whose order of summation is fixed: chunks of CHUNK_KEYS keys, merged in order.

An empty chunk adds exact zeros, so a row's bits do not depend on how many chunks its neighbours need. Scores,
softmax and sums are float32. Keys and values lie in arenas [kv_heads, arena_rows, dim].
"""

import torch
from torch import Tensor

CHUNK_KEYS = 64

# stands for minus infinity where a chunk is empty: its difference to a real maximum still underflows to 0
_LOWEST = -1e30


def attend_listed(
    q: Tensor, keys: Tensor, values: Tensor, listed: Tensor, is_real: Tensor, *, is_chunked: bool = True
) -> Tensor:
    """Each row attends to its own listed blocks of keys.

    q [rows, kv_heads, group, dim] float32, already scaled; listed int64 [rows, chunks, blocks of a chunk]
    blocks of the arena, in position order, real ones first; is_real bool [rows, chunks, CHUNK_KEYS]. All
    listed blocks hold finite numbers, also where no key is real. Returns [rows, kv_heads, group, dim]
    float32. `is_chunked` False is the plain form, one sum over all chunks.
    """
    rows, kv_heads, group, dim = q.shape
    chunks, chunk_blocks = listed.shape[1:]
    block_items = CHUNK_KEYS // chunk_blocks * dim
    arena_blocks = keys.shape[1] * dim // block_items
    offsets = torch.arange(0, kv_heads * arena_blocks, arena_blocks).view(1, 1, kv_heads, 1)
    index = (listed.unsqueeze(2) + offsets).view(-1)
    shape = (rows * chunks * kv_heads, CHUNK_KEYS, dim)
    chunk_keys = keys.view(-1, block_items).index_select(0, index).view(shape).float()
    chunk_values = values.view(-1, block_items).index_select(0, index).view(shape).float()
    queries = q.unsqueeze(1).expand(rows, chunks, kv_heads, group, dim).reshape(-1, group, dim)
    scores = torch.bmm(queries, chunk_keys.transpose(1, 2)).view(rows, chunks, kv_heads, group, CHUNK_KEYS)
    scores.masked_fill_(~is_real.view(rows, chunks, 1, 1, CHUNK_KEYS), -torch.inf)
    if not is_chunked:
        return _attend_at_once(scores, chunk_values.view(rows, chunks, kv_heads, CHUNK_KEYS, dim))
    highest = scores.amax(-1, keepdim=True).clamp_min_(_LOWEST)
    weights = scores.sub_(highest).exp_()
    sums = weights.sum(-1, keepdim=True)
    partial = torch.bmm(weights.view(-1, group, CHUNK_KEYS), chunk_values)
    return _merge(partial.view(rows, chunks, kv_heads, group, dim), sums, highest)


def _attend_at_once(scores: Tensor, values: Tensor) -> Tensor:
    rows, _, kv_heads, group, _ = scores.shape
    weights = scores.permute(0, 2, 3, 1, 4).reshape(rows * kv_heads, group, -1).softmax(-1)
    values = values.transpose(1, 2).reshape(rows * kv_heads, -1, values.shape[-1])
    return torch.bmm(weights, values).view(rows, kv_heads, group, -1)


def attend_prompt(q: Tensor, keys: Tensor, values: Tensor, visible: Tensor) -> Tensor:
    """A chunk of prompt rows attends to the keys of its own session up to its end, in absolute chunks.

    q [CHUNK_KEYS, heads, dim] float32, already scaled, padded to full height; keys and values [kv_heads,
    chunks * CHUNK_KEYS, dim] from the session's first row on; visible bool [CHUNK_KEYS, chunks * CHUNK_KEYS],
    which must be False for rows that were never written. Returns [CHUNK_KEYS, heads, dim] float32.
    """
    rows, heads, dim = q.shape
    kv_heads, key_rows, _ = keys.shape
    group, chunks = heads // kv_heads, key_rows // CHUNK_KEYS
    queries = q.view(rows, kv_heads, group, dim).permute(1, 2, 0, 3).reshape(kv_heads, 1, group * rows, dim)
    queries = queries.expand(kv_heads, chunks, group * rows, dim).reshape(-1, group * rows, dim)
    # a row that was never written may hold NaN, and 0 * NaN is NaN
    written = visible.any(0).view(1, chunks, CHUNK_KEYS, 1)
    shape = (kv_heads, chunks, CHUNK_KEYS, dim)
    chunk_keys = torch.where(written, keys.view(shape).float(), 0.0).view(-1, CHUNK_KEYS, dim)
    chunk_values = torch.where(written, values.view(shape).float(), 0.0).view(-1, CHUNK_KEYS, dim)
    scores = torch.bmm(queries, chunk_keys.transpose(1, 2)).view(kv_heads, chunks, group, rows, CHUNK_KEYS)
    mask = visible.view(rows, chunks, CHUNK_KEYS).permute(1, 0, 2).view(1, chunks, 1, rows, CHUNK_KEYS)
    scores = scores.masked_fill_(~mask, -torch.inf)
    highest = scores.amax(-1, keepdim=True).clamp_min_(_LOWEST)
    weights = scores.sub_(highest).exp_()
    sums = weights.sum(-1, keepdim=True)
    partial = torch.bmm(weights.view(-1, group * rows, CHUNK_KEYS), chunk_values)
    merged = _merge(partial.view(kv_heads, chunks, group, rows, dim), sums, highest)
    return merged.permute(2, 0, 1, 3).reshape(rows, heads, dim)


def _merge(partial: Tensor, sums: Tensor, highest: Tensor) -> Tensor:
    """Merge chunks along dim 1, in order: partial weighted values, sums of weights, highest scores."""
    scale = (highest - highest.amax(1, keepdim=True)).exp_()
    sums = sums.mul_(scale)
    value, total = partial[:, 0] * scale[:, 0], sums[:, 0]
    for chunk in range(1, partial.shape[1]):
        value = torch.addcmul(value, partial[:, chunk], scale[:, chunk])
        total = total + sums[:, chunk]
    return value.div_(total)
