"""What a directory holds, from headers alone: every stored tensor under the canonical one it is part of."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

import torch

from hermitcrab.errors import CheckpointError
from hermitcrab.models.qwen4_exp import names
from hermitcrab.models.qwen4_exp.config import ModelConfig, read_config
from hermitcrab.models.qwen4_exp.fields import CONFIG_FILE, read_json
from hermitcrab.models.qwen4_exp.names import Field, Half, Shape
from hermitcrab.weights.load import StoredWeight, check_stored
from hermitcrab.weights.quantization import QuantizationTable, read_quantization
from hermitcrab.weights.shards import Shards, StoredTensor

# a refusal names this many tensors, then says how many more there are
NAMED_TENSORS = 3


@dataclass(frozen=True, slots=True)
class Part:
    """Which part of a canonical tensor: an expert or row shard (None: all), a half of a fused gate and up."""

    expert: int | None
    row_shard: int | None
    half: Half

    @property
    def order(self) -> tuple[int, int, int]:
        """Parts in this order make the whole."""
        return self.expert or 0, self.row_shard or 0, self.half.value

    def shape_in(self, whole: Shape) -> Shape:
        """The part's shape; a row shard may have any number of rows, so it has the whole's here."""
        shape = whole if self.expert is None else whole[1:]
        if self.half is Half.WHOLE:
            return shape
        return (*shape[:-2], shape[-2] // 2, shape[-1])

    def __str__(self) -> str:
        words = [] if self.expert is None else [f"expert {self.expert}"]
        words += [] if self.row_shard is None else [f"shard {self.row_shard}"]
        words += [] if self.half is Half.WHOLE else [self.half.name.lower()]
        return " ".join(words)


WHOLE = Part(None, None, Half.WHOLE)


@dataclass(frozen=True, slots=True)
class StoredModel:
    """A surveyed directory. `config` has no MTP layer where no MTP tensor is stored.

    `weights` lists each canonical tensor's parts in order, `constants` the stored hash constants by
    canonical name, `missing` and `unknown` in words what the model lacks and what it has no use for.
    """

    config: ModelConfig
    shards: Shards
    is_mlx: bool
    weights: Mapping[str, Mapping[Part, StoredWeight]]
    constants: Mapping[str, StoredTensor]
    missing: tuple[str, ...]
    unknown: tuple[str, ...]
    vision_params: int

    @property
    def size_bytes(self) -> int:
        """Bytes of the text model's weights in the files."""
        return sum(weight.size_bytes for parts in self.weights.values() for weight in parts.values())


def survey(directory: Path) -> StoredModel:
    """Sort a directory's tensors without reading any.

    Raises CheckpointError for a config, header or quantization entry that cannot be read, and for a
    tensor stored twice.
    """
    config = read_config(directory)
    table = read_quantization(read_json(directory / CONFIG_FILE), names.without_prefix)
    shards = Shards.open(directory)
    sorted_fields = _sort_fields(
        entry
        for name, entry in shards.stored.items()
        if not names.is_vision(name) and not names.is_derived(name)
    )
    for target in [target for target in sorted_fields if _is_superfluous(target, config)]:
        del sorted_fields[target]
    if not any(target.startswith(names.MTP_PREFIX) for target in sorted_fields):
        config = config.without_mtp()
    constants = _take_constants(sorted_fields, config)
    expected = names.expected_tensors(config)
    weights = {
        target: {part: _stored_weight(fields, table) for part, fields in _in_order(parts)}
        for target, parts in sorted_fields.items()
        if target in expected
    }
    return StoredModel(
        config=config,
        shards=shards,
        is_mlx=any(names.is_mlx_name(name) for name in shards.stored),
        weights=weights,
        constants=constants,
        missing=tuple(
            lack
            for target, shape in expected.items()
            for lack in _missing_parts(target, shape, weights.get(target, {}))
        ),
        unknown=tuple(target for target in sorted_fields if target not in expected),
        vision_params=_vision_params(shards, table),
    )


def check_model(model: StoredModel) -> None:
    """Check that a surveyed model is whole and of the right shapes, still from headers alone.

    Raises CheckpointError, naming the first tensors at fault.
    """
    where = model.shards.directory
    if model.missing:
        if model.config.mtp_layers and all(name.startswith(names.MTP_PREFIX) for name in model.missing):
            raise CheckpointError(
                f"{where} holds only a part of its draft head (mtp.*); missing: {_list(model.missing)}."
            )
        raise CheckpointError(
            f"{where} lacks tensors of the model that its config describes: {_list(model.missing)}."
        )
    if model.unknown:
        raise CheckpointError(
            f"{where} has tensors that its config does not account for: {_list(model.unknown)}."
        )
    for target, shape in names.expected_tensors(model.config).items():
        parts = model.weights[target]
        if any(part.row_shard is not None for part in parts):
            _check_row_shards(target, shape, parts)
            continue
        for part, weight in parts.items():
            check_stored(weight, part.shape_in(shape))


_Fields = dict[Field, StoredTensor]


def _sort_fields(entries: Iterable[StoredTensor]) -> dict[str, dict[Part, _Fields]]:
    targets: dict[str, dict[Part, _Fields]] = {}
    for entry in entries:
        piece = names.read_name(entry.name)
        fields = targets.setdefault(piece.target, {}).setdefault(
            Part(piece.expert, piece.row_shard, piece.half), {}
        )
        if piece.field in fields:
            raise CheckpointError(
                f"{entry.file.parent} holds a tensor twice: {fields[piece.field].name} and {entry.name}."
            )
        fields[piece.field] = entry
    return targets


def _vision_params(shards: Shards, table: QuantizationTable) -> int:
    """The vision tower's parameters; a quantized weight's are counted by its scales."""
    group_size = table.default.group_size if table.default is not None else 1
    return sum(
        prod(entry.shape) * (group_size if name.endswith(".scales") else 1)
        for name, entry in shards.stored.items()
        if names.is_vision(name) and not name.endswith(".biases") and entry.dtype != torch.uint32
    )


def _in_order(parts: Mapping[Part, _Fields]) -> list[tuple[Part, _Fields]]:
    return sorted(parts.items(), key=lambda item: item[0].order)


def _is_superfluous(target: str, config: ModelConfig) -> bool:
    """True for a stored tensor that the config says the model does without."""
    if target.startswith(names.MTP_PREFIX):
        return config.mtp_layers == 0
    return config.is_head_tied and target == "lm_head.weight"


def _take_constants(
    sorted_fields: dict[str, dict[Part, _Fields]], config: ModelConfig
) -> dict[str, StoredTensor]:
    """Remove and return the stored hash constants."""
    if config.ngram is None:
        return {}
    constants = {}
    for constant in names.HASH_CONSTANTS:
        target = f"{names.ngram_module(config.ngram)}.{constant}"
        if target in sorted_fields:
            constants[constant] = sorted_fields.pop(target)[WHOLE][Field.WEIGHT]
    return constants


def _stored_weight(fields: _Fields, table: QuantizationTable) -> StoredWeight:
    if Field.WEIGHT not in fields:
        stored = next(iter(fields.values())).name
        raise CheckpointError(f"{stored} is stored, but the weight that it belongs to is not.")
    weight = fields[Field.WEIGHT]
    module = names.without_prefix(weight.name).removesuffix(".weight")
    entry = table.format_of(module)
    if len(fields) == 1:
        if table.overrides.get(module) is not None:
            raise CheckpointError(
                f"{CONFIG_FILE}: quantization has an entry for {module}, but it has no scales."
            )
        return StoredWeight(weight)
    if entry is None:
        raise CheckpointError(
            f"{weight.name} has scales or biases, but {CONFIG_FILE} says that it is not quantized."
        )
    if len(fields) == 2:
        lacking = "scales" if Field.SCALES not in fields else "biases"
        raise CheckpointError(f"{weight.name} is quantized, but its {lacking} are missing.")
    return StoredWeight(weight, fields[Field.SCALES], fields[Field.BIASES], entry)


def _missing_parts(target: str, shape: Shape, parts: Mapping[Part, StoredWeight]) -> list[str]:
    """In words, what lacks of a canonical tensor that has these parts.

    Raises CheckpointError for parts that overlap.
    """
    if not parts:
        return [target]
    row_shards = [part.row_shard for part in parts if part.row_shard is not None]
    halves = [Half.WHOLE] if all(part.half is Half.WHOLE for part in parts) else [Half.GATE, Half.UP]
    needed = [
        Part(expert, row_shard, half)
        for expert in _all_or(any(part.expert is not None for part in parts), shape[0])
        for row_shard in _all_or(bool(row_shards), max(row_shards, default=0) + 1)
        for half in halves
    ]
    surplus = sorted(set(parts) - set(needed), key=lambda part: part.order)
    if surplus:
        stored = parts[surplus[0]].weight.name
        raise CheckpointError(
            f"{stored} has no place in {target}, which is stored in another way or has fewer parts."
        )
    return [target if part == WHOLE else f"{target} ({part})" for part in needed if part not in parts]


def _all_or(is_split: bool, count: int) -> Sequence[int | None]:
    return range(count) if is_split else [None]


def _check_row_shards(target: str, shape: Shape, parts: Mapping[Part, StoredWeight]) -> None:
    rows = 0
    first = next(iter(parts.values()))
    for weight in parts.values():
        if (weight.format, weight.weight.dtype) != (first.format, first.weight.dtype):
            raise CheckpointError(
                f"{weight.weight.name} is stored in another format than {first.weight.name}."
            )
        shard_rows = weight.weight.shape[0] if weight.weight.shape else 0
        check_stored(weight, (shard_rows, shape[1]))
        rows += shard_rows
    if rows != shape[0]:
        raise CheckpointError(
            f"{target} has {rows} rows over {len(parts)} shards, but it must have {shape[0]}."
        )


def _list(items: tuple[str, ...]) -> str:
    listed = ", ".join(items[:NAMED_TENSORS])
    more = len(items) - NAMED_TENSORS
    return f"{listed} and {more} more" if more > 0 else listed
