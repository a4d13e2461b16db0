"""A checkpoint directory, original or MLX, to canonical tensors; or, from its headers, to what it holds."""

import logging
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from hermitcrab.errors import CheckpointError
from hermitcrab.models.qwen4_exp import names
from hermitcrab.models.qwen4_exp.config import LayerKind, ModelConfig
from hermitcrab.models.qwen4_exp.names import Half, Shape
from hermitcrab.models.qwen4_exp.stored import Part, StoredModel, check_model, survey
from hermitcrab.weights.load import StoredWeight, Weight, join_rows, read_stored, stack
from hermitcrab.weights.shards import Shards
from hermitcrab.weights.table import RowTable

log = logging.getLogger(__name__)

# gains around 1 have means near 1, centred ones near 0: public loaders tell them apart at this median of
# means
AROUND_ONE = 0.75

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class FormatShare:
    """How much of a text model is stored in one format, such as `bfloat16` or `6-bit in groups of 32`."""

    kind: str
    params: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class CheckpointInfo:
    """What a model directory holds. `layers` counts them by kind; `formats` leaves the vision tower out.

    `missing` names tensors that the config asks for; `problem` says why the directory cannot be served,
    None if it can.
    """

    family: str
    layout: str
    body_params: int
    ngram_params: int
    mtp_params: int
    vision_params: int
    disk_bytes: int
    formats: tuple[FormatShare, ...]
    layers: Mapping[str, int]
    experts: int
    experts_per_token: int
    vocab_tokens: int
    context_tokens: int
    eos_ids: tuple[int, ...]
    has_draft_head: bool
    missing: tuple[str, ...]
    problem: str | None


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model's weights by canonical name, most of them views of mapped files.

    Norms multiply by 1 + weight (DeltaNet's gated norm by the weight itself). The n-gram table is
    `ngram`, not in `tensors`; a tied `lm_head.weight` is the embedding itself. `config.mtp_layers` is 0
    where no draft head is stored.
    """

    config: ModelConfig
    tensors: Mapping[str, Weight]
    ngram: RowTable | None
    formats: tuple[FormatShare, ...]

    @property
    def eos_ids(self) -> frozenset[int]:
        """Tokens that end a reply, from config.json and generation_config.json."""
        return self.config.eos_ids


def load_checkpoint(directory: Path, progress: Progress | None = None) -> Checkpoint:
    """The model in `directory`, checked whole; `progress` is told bytes done and bytes in all.

    Fused experts that are stored apart are joined in memory (dequantized if their formats differ) and a
    small n-gram table is held there; everything else stays mapped.
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
    return Checkpoint(model.config, tensors, ngram, _format_shares(model))


def describe_checkpoint(directory: Path) -> CheckpointInfo:
    """What `directory` holds, from its config and headers: no weights are read.

    Raises CheckpointError if config, headers or quantization table cannot be read; what else keeps it
    from being served is `problem`.
    """
    model = survey(directory)
    config = model.config
    params = {target: sum(part.params for part in parts.values()) for target, parts in model.weights.items()}
    table_name = names.ngram_table(config.ngram) if config.ngram is not None else None
    ngram_params = sum(count for target, count in params.items() if target == table_name)
    mtp_params = sum(count for target, count in params.items() if target.startswith(names.MTP_PREFIX))
    return CheckpointInfo(
        family="qwen4_exp",
        layout="MLX" if model.is_mlx else "original",
        body_params=sum(params.values()) - ngram_params - mtp_params,
        ngram_params=ngram_params,
        mtp_params=mtp_params,
        vision_params=model.vision_params,
        disk_bytes=model.shards.size_bytes,
        formats=_format_shares(model),
        layers={kind.value: config.layers.count(kind) for kind in LayerKind},
        experts=config.moe.experts,
        experts_per_token=config.moe.experts_per_token,
        vocab_tokens=config.vocab_tokens,
        context_tokens=config.context_tokens,
        eos_ids=tuple(sorted(config.eos_ids)),
        has_draft_head=config.mtp_layers > 0,
        missing=model.missing,
        problem=_problem(model),
    )


def _problem(model: StoredModel) -> str | None:
    try:
        check_model(model)
        _check_constants(model)
    except CheckpointError as error:
        return str(error)
    return None


def _format_shares(model: StoredModel) -> tuple[FormatShare, ...]:
    """The formats in use, the one that holds most parameters first."""
    shares: dict[str, FormatShare] = {}
    for parts in model.weights.values():
        for weight in parts.values():
            share = shares.get(weight.kind, FormatShare(weight.kind, 0, 0))
            shares[weight.kind] = FormatShare(
                weight.kind, share.params + weight.params, share.size_bytes + weight.size_bytes
            )
    return tuple(sorted(shares.values(), key=lambda share: -share.params))


def _read_parts(shards: Shards, parts: Mapping[Part, StoredWeight], shape: Shape) -> Weight:
    """Join a tensor's parts, which come in order: experts are stacked, gate lies above up."""
    halves: dict[Half, list[Weight]] = {}
    for part, stored in parts.items():
        halves.setdefault(part.half, []).append(read_stored(shards, stored, part.shape_in(shape)))
    is_apart = any(part.expert is not None for part in parts)
    joined = [stack(experts) if is_apart else experts[0] for experts in halves.values()]
    return joined[0] if len(joined) == 1 else join_rows(joined)


def _read_table(shards: Shards, parts: Mapping[Part, StoredWeight], shape: Shape) -> RowTable:
    shards_of_rows = [
        read_stored(shards, stored, (stored.weight.shape[0], shape[1]), is_scattered=True)
        for stored in parts.values()
    ]
    return RowTable(shards_of_rows, resident=True)


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
    assert isinstance(weight, Tensor)
    return weight
