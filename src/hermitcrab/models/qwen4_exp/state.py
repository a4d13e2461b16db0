"""The tensors of all sessions: arenas of cache rows cut into sessions, and pools of fixed-size states.

A session's cache rows lie in one stretch of each arena, so that one gather serves rows of many sessions; what
does not grow with the context (DeltaNet states, convolution tails) lies in pools indexed by slot. The draft
head's attention layer is the last of the attention layers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from hermitcrab.kernels.attention import CHUNK_KEYS
from hermitcrab.kernels.indexer import SCORE_BLOCKS
from hermitcrab.models.qwen4_exp.config import LayerKind, ModelConfig


@dataclass(frozen=True, slots=True)
class SessionShape:
    """Sizes of one session's parts that do not depend on its capacity, and bytes of those that do."""

    attention_layers: int
    deltanet_layers: int
    row_items: int
    block_items: int
    state_items: int
    tail_items: int


def session_shape(config: ModelConfig) -> SessionShape:
    """Counts of numbers: a row over all attention layers, a pooled block, fixed fp32 states, fixed tails."""
    attention, net = config.attention, config.deltanet
    attention_layers = config.layers.count(LayerKind.ATTENTION) + config.mtp_layers
    deltanet_layers = config.layers.count(LayerKind.DELTANET)
    row = 2 * attention.kv_heads * attention.head_dim + config.indexer.head_dim
    tail = deltanet_layers * (net.conv_kernel - 1) * net.conv_channels
    if config.ngram is not None:
        tail += config.ngram.conv_tail_tokens * config.streams_width
    return SessionShape(
        attention_layers=attention_layers,
        deltanet_layers=deltanet_layers,
        row_items=attention_layers * row,
        block_items=attention_layers * config.indexer.head_dim,
        state_items=deltanet_layers * net.value_heads * net.key_dim * net.value_dim,
        tail_items=tail,
    )


def session_bytes(config: ModelConfig, rows: int, dtype: torch.dtype) -> int:
    """Bytes that a session of so many rows takes: caches and tails in `dtype`, states in float32."""
    shape = session_shape(config)
    blocks = _padded_blocks(rows, config)
    items = _padded(rows, CHUNK_KEYS) * shape.row_items + blocks * shape.block_items + shape.tail_items
    return items * dtype.itemsize + shape.state_items * 4


@dataclass(frozen=True, slots=True)
class SessionRows:
    """A copy of a session's rows `start .. end` in every attention layer, and the block before them.

    The draft head is a row behind: what the copy up to `start` lacks of it is in that block.
    keys, values [layers, kv_heads, rows, dim]; raw [layers, rows, dim]; pooled [layers, blocks, dim].
    """

    start: int
    end: int
    keys: Tensor
    values: Tensor
    raw: Tensor
    pooled: Tensor

    @property
    def bytes(self) -> int:
        """What it takes."""
        return sum(part.nbytes for part in (self.keys, self.values, self.raw, self.pooled))


@dataclass(frozen=True, slots=True)
class SessionEnd:
    """A copy of what a session has beside its rows.

    states [deltanet layers, heads, key_dim, value_dim] float32; conv_tails [deltanet layers, kernel - 1,
    channels]; ngram_tail [tail, streams * hidden].
    """

    states: Tensor
    conv_tails: Tensor
    ngram_tail: Tensor
    history: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """What its tensors take."""
        return sum(part.nbytes for part in (self.states, self.conv_tails, self.ngram_tail))


class Sessions:
    """All sessions' tensors; allocated once, never grown.

    A slot's cache rows start at `bases[slot]`, block `key_block_bases[slot]` of the arena, its pooled keys at
    `block_bases[slot]`.

    keys, values [attention layers, kv_heads, rows, dim]; raw [attention layers, rows, index dim]; pooled
    [attention layers, blocks, index dim]; states [deltanet layers, slots, heads, key_dim, value_dim] float32;
    conv_tails [deltanet layers, slots, kernel - 1, channels]; ngram_tails [slots, tail, streams * hidden].
    """

    def __init__(self, config: ModelConfig, session_rows: Sequence[int], dtype: torch.dtype) -> None:
        shape, attention, net = session_shape(config), config.attention, config.deltanet
        padded = [_padded(rows, CHUNK_KEYS) for rows in session_rows]
        blocks = [_padded_blocks(rows, config) for rows in session_rows]
        self.rows = tuple(session_rows)
        self.bases = tuple(accumulate(padded[:-1], initial=0))
        self.block_bases = tuple(accumulate(blocks[:-1], initial=0))
        layers, slots = shape.attention_layers, len(session_rows)
        self.keys = torch.empty(layers, attention.kv_heads, sum(padded), attention.head_dim, dtype=dtype)
        self.values = torch.empty_like(self.keys)
        self.raw = torch.empty(layers, sum(padded), config.indexer.head_dim, dtype=dtype)
        self.pooled = torch.empty(layers, sum(blocks), config.indexer.head_dim, dtype=dtype)
        self.states = torch.zeros(shape.deltanet_layers, slots, net.value_heads, net.key_dim, net.value_dim)
        self.conv_tails = torch.zeros(
            shape.deltanet_layers, slots, net.conv_kernel - 1, net.conv_channels, dtype=dtype
        )
        tail_tokens = 0 if config.ngram is None else config.ngram.conv_tail_tokens
        self.ngram_tails = torch.zeros(slots, tail_tokens, config.streams_width, dtype=dtype)
        self._block_tokens = config.indexer.block_tokens
        self.key_block_bases = tuple(base // self._block_tokens for base in self.bases)
        self._blank_history = (
            () if config.ngram is None else (config.ngram.reset_token,) * (config.ngram.ngram_tokens - 1)
        )
        self.histories = [self._blank_history for _ in session_rows]

    def clear(self, slot: int) -> None:
        """Make a slot's session empty: states as before the first token. Cache rows need no clearing."""
        for pool in (self.states, self.conv_tails):
            pool[:, slot] = 0
        self.ngram_tails[slot] = 0
        self.histories[slot] = self._blank_history

    def move(self, source: int, target: int, rows: int) -> None:
        """Copy every part of a settled session of `rows` rows to another slot, bit for bit."""
        here, there = self.bases[source], self.bases[target]
        # attention reads whole blocks: behind the last row, too, there must stand numbers
        whole = _padded(rows, self._block_tokens)
        for arena in (self.keys, self.values):
            arena[:, :, there : there + whole] = arena[:, :, here : here + whole]
        self.raw[:, there : there + rows] = self.raw[:, here : here + rows]
        blocks = rows // self._block_tokens
        here, there = self.block_bases[source], self.block_bases[target]
        self.pooled[:, there : there + blocks] = self.pooled[:, here : here + blocks]
        for pool in (self.states, self.conv_tails):
            pool[:, target] = pool[:, source]
        self.ngram_tails[target] = self.ngram_tails[source]
        self.histories[target] = self.histories[source]

    def copy_rows(self, slot: int, start: int, end: int) -> SessionRows:
        """A copy of a settled session's rows; `start` and `end` are multiples of the indexer's blocks."""
        first = max(0, start - self._block_tokens)
        rows = slice(self.bases[slot] + first, self.bases[slot] + end)
        return SessionRows(
            start=start,
            end=end,
            keys=self.keys[:, :, rows].clone(),
            values=self.values[:, :, rows].clone(),
            raw=self.raw[:, rows].clone(),
            pooled=self.pooled[:, self._blocks(slot, first, end)].clone(),
        )

    def paste_rows(self, slot: int, piece: SessionRows) -> None:
        """Write copied rows into a session, in the places they had in theirs."""
        first = max(0, piece.start - self._block_tokens)
        rows = slice(self.bases[slot] + first, self.bases[slot] + piece.end)
        self.keys[:, :, rows] = piece.keys
        self.values[:, :, rows] = piece.values
        self.raw[:, rows] = piece.raw
        self.pooled[:, self._blocks(slot, first, piece.end)] = piece.pooled

    def copy_end(self, slot: int) -> SessionEnd:
        """A copy of what a settled session has beside its rows."""
        return SessionEnd(
            states=self.states[:, slot].clone(),
            conv_tails=self.conv_tails[:, slot].clone(),
            ngram_tail=self.ngram_tails[slot].clone(),
            history=self.histories[slot],
        )

    def paste_end(self, slot: int, piece: SessionEnd) -> None:
        """Give a session what another one had beside its rows."""
        self.states[:, slot] = piece.states
        self.conv_tails[:, slot] = piece.conv_tails
        self.ngram_tails[slot] = piece.ngram_tail
        self.histories[slot] = piece.history

    def _blocks(self, slot: int, first: int, end: int) -> slice:
        base = self.block_bases[slot]
        return slice(base + first // self._block_tokens, base + end // self._block_tokens)


def _padded(rows: int, multiple: int) -> int:
    return -(-rows // multiple) * multiple


def _padded_blocks(rows: int, config: ModelConfig) -> int:
    return _padded(-(-rows // config.indexer.block_tokens), SCORE_BLOCKS)
