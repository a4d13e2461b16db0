"""Bytes of a model's weights, from its shape and headers alone: as stored, as the CPU engine holds them.

Nothing here reads a weight, so that a model which cannot fit is refused before it costs a minute of disk.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path

import torch

from hermitcrab.errors import CheckpointError
from hermitcrab.kernels.attention import CHUNK_KEYS
from hermitcrab.models.qwen4_exp import names
from hermitcrab.models.qwen4_exp.config import LayerKind, ModelConfig
from hermitcrab.models.qwen4_exp.names import Half, Shape
from hermitcrab.models.qwen4_exp.stored import Part, check_model, survey
from hermitcrab.weights.affine import AffineFormat
from hermitcrab.weights.load import StoredWeight
from hermitcrab.weights.table import RESIDENT_BYTES

_FLOAT32_BYTES = 4
# scales and biases of a group, as MLX stores them
_GROUP_BYTES = 2 * 2


@dataclass(frozen=True, slots=True)
class StoredBytes:
    """A text model's weights in their files, the vision tower left out.

    `body_bytes` is everything but the n-gram table, whose bytes are `ngram_bytes`; `joined_bytes` is what the
    loader copies because experts, or gate and up, are stored apart.
    """

    config: ModelConfig
    body_bytes: int
    ngram_bytes: int
    joined_bytes: int


def stored_bytes(directory: Path) -> StoredBytes:
    """The stored bytes of a model directory, from its headers. Raises CheckpointError for one not whole."""
    model = survey(directory)
    check_model(model)
    table = None if model.config.ngram is None else names.ngram_table(model.config.ngram)
    sizes = {
        target: sum(weight.size_bytes for weight in parts.values()) for target, parts in model.weights.items()
    }
    return StoredBytes(
        config=model.config,
        body_bytes=sum(count for target, count in sizes.items() if target != table),
        ngram_bytes=sum(count for target, count in sizes.items() if target == table),
        joined_bytes=sum(_joined_bytes(parts) for target, parts in model.weights.items() if target != table),
    )


def assumed_bytes(config: ModelConfig, stored: AffineFormat | None) -> StoredBytes:
    """The bytes a model of this shape would have in a format, as MLX converts: None is bfloat16 throughout.

    Matrices, stacks of experts, embedding and n-gram rows are quantized, routers, vectors and convolutions
    stay bfloat16. Raises CheckpointError for a group that does not divide a row.
    """
    sizes = {name: _assumed(name, shape, stored) for name, shape in names.expected_tensors(config).items()}
    ngram = 0 if config.ngram is None else sizes.pop(names.ngram_table(config.ngram))
    fused = sum(count for name, count in sizes.items() if name.endswith(".experts.gate_up_proj"))
    return StoredBytes(config, sum(sizes.values()), ngram, joined_bytes=0 if stored is None else fused)


def arranged_bytes(config: ModelConfig, dtype: torch.dtype) -> int:
    """What the CPU engine's arranged weights take in `dtype`, the n-gram table left out.

    Norm gains, routers, convolution taps and DeltaNet's vectors are float32; a tied head is a second, packed
    copy of the embedding.
    """
    shapes = names.expected_tensors(config)
    if config.ngram is not None:
        del shapes[names.ngram_table(config.ngram)]
    if config.is_head_tied:
        shapes["lm_head.weight"] = shapes["embed_tokens.weight"]
    return sum(
        prod(shape) * (_FLOAT32_BYTES if _is_wide(name) else dtype.itemsize) for name, shape in shapes.items()
    )


def held_ngram_bytes(config: ModelConfig) -> int:
    """Bytes of an n-gram table small enough to be held in float32; 0 for one that stays in its file."""
    if config.ngram is None:
        return 0
    held = config.ngram.hash.table_rows * config.ngram.head_width * _FLOAT32_BYTES
    return held if held <= RESIDENT_BYTES else 0


def arranging_bytes(config: ModelConfig, dtype: torch.dtype) -> int:
    """The most that arranging one weight takes beside the arranged ones: dequantized, and joined in order."""
    moe = config.moe
    experts = 3 * moe.experts * moe.expert_width * config.hidden
    # gate and up stand dequantized beside their halved copy, down beside both
    return max(experts + 2 * experts // 3, config.vocab_tokens * config.hidden) * dtype.itemsize


def rope_bytes(config: ModelConfig, rows: int, dtype: torch.dtype) -> int:
    """Tables of cosines and sines for so many positions."""
    return rows * config.attention.rotary_dim * dtype.itemsize


def prompt_work_bytes(config: ModelConfig, rows: int, dtype: torch.dtype) -> int:
    """The most one chunk of a prompt takes in passing, at the end of a session of so many rows.

    Attention over the whole session at once leads: a copy of queries and of partial sums for every chunk of
    keys, keys and values in float32, scores twice.
    """
    attention, indexer = config.attention, config.indexer
    width = -(-rows // CHUNK_KEYS) * CHUNK_KEYS
    key_copies = 2 if dtype.itemsize == _FLOAT32_BYTES else 3
    keys = key_copies * attention.kv_heads * attention.head_dim
    partial = 2 * attention.query_heads * attention.head_dim
    scores = 2 * attention.query_heads * CHUNK_KEYS
    index = (2 * indexer.query_heads * CHUNK_KEYS + indexer.head_dim) // indexer.block_tokens
    masks = 3 * CHUNK_KEYS
    return (
        width * (_FLOAT32_BYTES * (keys + partial + scores + index) + masks) + _row_bytes(config) * CHUNK_KEYS
    )


def round_work_bytes(config: ModelConfig, windows: int, longest: int, rows: int, dtype: torch.dtype) -> int:
    """The most a round takes until its keeps: windows of up to `longest` rows, `rows` rows in all.

    States after every row of every window lead, padded to the longest; then attention's gathered keys, and
    logits in float32.
    """
    net, attention = config.deltanet, config.attention
    layers = config.layers.count(LayerKind.DELTANET)
    state = net.value_heads * net.key_dim * net.value_dim * _FLOAT32_BYTES
    history = (longest + net.conv_kernel - 1) * net.conv_channels * dtype.itemsize
    # a window of one row leaves nothing: its state is committed layer by layer
    kept_layers = layers if longest > 1 else 1
    kept = kept_layers * windows * (longest * state + history)
    listed = -(-(config.indexer.budget_tokens + config.indexer.block_tokens) // CHUNK_KEYS) * CHUNK_KEYS
    gathered = 2 * attention.kv_heads * attention.head_dim * (_FLOAT32_BYTES + dtype.itemsize)
    scores = 2 * attention.query_heads * _FLOAT32_BYTES
    partial = 2 * attention.query_heads * attention.head_dim * _FLOAT32_BYTES // CHUNK_KEYS
    logits = config.vocab_tokens * (_FLOAT32_BYTES + dtype.itemsize)
    return kept + rows * (listed * (gathered + scores + partial) + logits + _row_bytes(config))


def _row_bytes(config: ModelConfig) -> int:
    """Residual streams of a row and their copies, and its experts' inner rows, in float32."""
    moe = config.moe
    inner = 3 * (moe.experts * moe.expert_width + moe.shared_width)
    return _FLOAT32_BYTES * (6 * config.streams_width + inner)


def _is_wide(name: str) -> bool:
    return (
        names.is_centred_norm(name)
        or "conv1d" in name
        or name.endswith((".linear_attn.norm.weight", ".A_log", ".dt_bias", ".mlp.gate.weight"))
    )


def _joined_bytes(parts: Mapping[Part, StoredWeight]) -> int:
    """Bytes that the loader copies to make one tensor of these parts; in one format they keep it."""
    if len(parts) == 1 or any(part.row_shard is not None for part in parts):
        return 0
    is_apart = any(part.expert is not None or part.half is not Half.WHOLE for part in parts)
    if not is_apart:
        return 0
    if len({weight.format for weight in parts.values()}) == 1:
        return sum(weight.size_bytes for weight in parts.values())
    return _plain_bytes(parts.values())


def _plain_bytes(weights: Iterable[StoredWeight]) -> int:
    return sum(weight.params * (weight.scales or weight.weight).dtype.itemsize for weight in weights)


def _assumed(name: str, shape: Shape, stored: AffineFormat | None) -> int:
    count = prod(shape)
    if stored is None or len(shape) < 2 or "conv1d" in name or name.endswith(".mlp.gate.weight"):
        return count * torch.bfloat16.itemsize
    if shape[-1] % stored.group_size:
        raise CheckpointError(
            f"{name} has rows of {shape[-1]}, which groups of {stored.group_size} do not divide."
        )
    return count * stored.bits // 8 + count // stored.group_size * _GROUP_BYTES
