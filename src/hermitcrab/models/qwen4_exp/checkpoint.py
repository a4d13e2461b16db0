"""A checkpoint directory, original or MLX, to canonical tensors; and what a directory holds, without reading its weights."""

import logging
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from hermitcrab.errors import CheckpointError
from hermitcrab.models.qwen4_exp import names
from hermitcrab.models.qwen4_exp.config import ModelConfig
from hermitcrab.models.qwen4_exp.names import Shape
from hermitcrab.models.qwen4_exp.stored import Part, StoredModel, check_model, survey
from hermitcrab.weights.affine import AffineWeight
from hermitcrab.weights.load import StoredWeight, Weight, join_rows, read_stored, stack
from hermitcrab.weights.shards import Shards
from hermitcrab.weights.table import RowTable

log = logging.getLogger(__name__)

# gains around 1 have means near 1, centred ones near 0: public loaders tell them apart at this median of means
AROUND_ONE = 0.75

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model's weights by canonical name, most of them views of mapped files.

    Norms multiply by 1 + weight (DeltaNet's gated norm by the weight itself). The n-gram table is `ngram`, not in `tensors`; a
    tied `lm_head.weight` is the embedding itself. `config.mtp_layers` is 0 where no draft head is stored.
    """

    config: ModelConfig
    tensors: Mapping[str, Weight]
    ngram: RowTable | None

    @property
    def eos_ids(self) -> frozenset[int]:
        """Tokens that end a reply, from config.json and generation_config.json."""
        return self.config.eos_ids


def load_checkpoint(directory: Path, *, progress: Progress | None = None) -> Checkpoint:
    """The model in `directory`, checked whole; `progress` is told bytes done and bytes in all, after every tensor.

    Fused experts that are stored apart are joined in memory (dequantized if their formats differ) and a small n-gram table
    is held there; everything else stays mapped.
    Raises CheckpointError, naming file, tensor or field, for what cannot be read.
    """
    model = survey(directory)
    check_model(model)
    _check_constants(model)
    total = model.size_bytes
    done = 0
    table_name = names.ngram_table(model.config.ngram) if model.config.ngram is not None else None
    tensors: dict[str, Weight] = {}
    ngram: RowTable | None = None
    for target, shape in names.expected_tensors(model.config).items():
        parts = model.weights[target]
        if target == table_name:
            ngram = _read_table(model.shards, parts, shape)
        else:
            tensors[target] = _read_parts(model.shards, parts, shape)
        done += sum(weight.size_bytes for weight in parts.values())
        if progress is not None:
            progress(done, total)
    _centre_norms(tensors, directory)
    if model.config.is_head_tied:
        tensors["lm_head.weight"] = tensors["embed_tokens.weight"]
    return Checkpoint(model.config, tensors, ngram)


def _read_parts(shards: Shards, parts: Mapping[Part, StoredWeight], shape: Shape) -> Weight:
    """Join a tensor's parts, which come in order: experts are stacked, gate lies above up."""
    halves: dict[int, list[Weight]] = {}
    for part, stored in parts.items():
        halves.setdefault(part.half, []).append(read_stored(shards, stored, part.shape_in(shape)))
    is_apart = any(part.expert >= 0 for part in parts)
    joined = [stack(experts) if is_apart else experts[0] for experts in halves.values()]
    return joined[0] if len(joined) == 1 else join_rows(joined)


def _read_table(shards: Shards, parts: Mapping[Part, StoredWeight], shape: Shape) -> RowTable:
    width = shape[1]
    return RowTable(
        [read_stored(shards, stored, (stored.weight.shape[0], width)) for stored in parts.values()],
        resident=True,
    )


def _check_constants(model: StoredModel) -> None:
    if model.config.ngram is None:
        return
    derived = model.config.ngram.hash
    values = (derived.multipliers, derived.head_rows, derived.head_offsets)
    for name, expected in zip(names.HASH_CONSTANTS, values, strict=True):
        if name not in model.constants:
            continue
        stored = model.shards.read(model.constants[name].name).tolist()
        if stored != list(expected):
            raise CheckpointError(
                f"{model.constants[name].name} is {stored}, but the config gives {list(expected)}: "
                "n-grams would be looked up in the wrong rows."
            )


def _centre_norms(tensors: dict[str, Weight], directory: Path) -> None:
    """Make norms that are stored as gains around 1 (as some MLX conversions do) centred on 0, in fp32."""
    means = [
        float(_tensor(tensors, name).to(torch.float32).mean())
        for name in tensors
        if name.endswith("hc_norm.weight")
    ]
    if statistics.median(means) <= AROUND_ONE:
        return
    log.info("%s stores norm gains around 1; they are read as 1 + weight", directory)
    for name in tensors:
        if names.is_centred_norm(name):
            tensors[name] = _tensor(tensors, name).to(torch.float32) - 1.0


def _tensor(tensors: Mapping[str, Weight], name: str) -> Tensor:
    weight = tensors[name]
    if isinstance(weight, AffineWeight):
        raise CheckpointError(f"{name} is quantized, but a norm must be stored plain.")
    return weight
