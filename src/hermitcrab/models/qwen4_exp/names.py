"""Canonical tensor names and shapes, and what each stored name, original or MLX, is a piece of.

Canonical names are transformers' state-dict names without `model.`: `layers.3.self_attn.q_proj.weight`,
`lm_head.weight`, `mtp.…`. Routed experts are fused (`layers.3.mlp.experts.gate_up_proj` [experts, 2 *
width, hidden], gate first), convolutions are [channels, 1, kernel], linear weights [out, in].
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from hermitcrab.models.qwen4_exp.config import LayerKind, ModelConfig, NgramConfig

Shape = tuple[int, ...]

HASH_CONSTANTS = ("layer_multipliers", "ngram_heads_vocab_sizes", "ngram_heads_offsets")
MTP_PREFIX = "mtp."

# longest first: the first that fits is stripped
_PREFIXES = ("model.language_model.", "language_model.model.", "language_model.", "model.")
_VISION = re.compile(r"(model\.)?(visual|vision_tower)\.")
_EXPERT = re.compile(r"(.+\.mlp\.experts)\.(\d+)\.(gate|up|down)_proj\.(weight|scales|biases)")
_SWITCH = re.compile(
    r"(.+\.mlp)\.(?:switch_mlp|experts)\.(gate|up|down|gate_up)_proj(?:\.(weight|scales|biases))?"
)
_NGRAM = re.compile(r"(.+\.ngram_embedding)\.(?:shard_|shards\.)(\d+)\.(weight|scales|biases)")
_QUANTIZED = re.compile(r"(.+)\.(scales|biases)")
# buffers that some tools save and that the config already determines
_DERIVED = re.compile(r"(.+\.)?rotary_emb\.(original_)?inv_freq")


class Half(Enum):
    """Which rows of its canonical tensor a stored tensor holds: all, or one half of a fused gate and up."""

    WHOLE = 0
    GATE = 1
    UP = 2


class Field(Enum):
    """What a stored tensor is to its weight: its values or packed words, or the groups' scales or biases."""

    WEIGHT = "weight"
    SCALES = "scales"
    BIASES = "biases"


@dataclass(frozen=True, slots=True)
class Piece:
    """What a stored tensor is: a field of canonical `target`, or of a half, expert or row shard of it."""

    target: str
    half: Half = Half.WHOLE
    expert: int | None = None
    row_shard: int | None = None
    field: Field = Field.WEIGHT


def is_vision(stored: str) -> bool:
    """True for a tensor of the vision tower, which the text model does without."""
    return _VISION.match(stored) is not None


def is_derived(stored: str) -> bool:
    """True for a saved buffer that the config determines anyway."""
    return _DERIVED.fullmatch(stored) is not None


def is_mlx_name(stored: str) -> bool:
    """True for a name that only MLX conversions use."""
    return (
        stored.startswith("language_model.")
        or ".switch_mlp." in stored
        or stored.endswith((".scales", ".biases"))
    )


def without_prefix(stored: str) -> str:
    """A stored tensor or module name with the outer model's prefix taken off."""
    for prefix in _PREFIXES:
        if stored.startswith(prefix):
            return stored[len(prefix) :]
    return stored


def read_name(stored: str) -> Piece:
    """What the tensor stored under this name is a piece of; a name of no known form is its own target."""
    name = without_prefix(stored)
    if match := _EXPERT.fullmatch(name):
        module, expert, part, field = match.groups()
        target, half = _expert_target(module, part)
        return Piece(target, half, expert=int(expert), field=Field(field))
    if match := _SWITCH.fullmatch(name):
        mlp, part, field = match.groups()
        target, half = _expert_target(f"{mlp}.experts", part)
        return Piece(target, half, field=Field(field or "weight"))
    if match := _NGRAM.fullmatch(name):
        module, shard, field = match.groups()
        return Piece(f"{module}.weight", row_shard=int(shard), field=Field(field))
    if match := _QUANTIZED.fullmatch(name):
        return Piece(f"{match[1]}.weight", field=Field(match[2]))
    return Piece(name)


def _expert_target(experts: str, part: str) -> tuple[str, Half]:
    if part in ("down", "gate_up"):
        return f"{experts}.{part}_proj", Half.WHOLE
    return f"{experts}.gate_up_proj", Half.GATE if part == "gate" else Half.UP


def ngram_module(ngram: NgramConfig) -> str:
    """The canonical module that owns the n-gram table and the stored hash constants."""
    return f"layers.{ngram.layer}.ple.ple_embedding"


def ngram_table(ngram: NgramConfig) -> str:
    """The canonical name of the n-gram table, [table_rows, head_width]."""
    return f"{ngram_module(ngram)}.ngram_embedding.weight"


def is_centred_norm(name: str) -> bool:
    """True for a norm whose gain is 1 + weight; DeltaNet's gated norm multiplies by the weight itself."""
    return name.endswith(_CENTRED_NORMS)


_CENTRED_NORMS = tuple(
    f"{norm}.weight"
    for norm in (
        "hc_norm", "q_norm", "k_norm", "q_layernorm", "k_layernorm", "norm_key", "norm_query", "norm_conv",
        "pre_fc_norm_embedding", "pre_fc_norm_hidden",
    )
)  # fmt: skip


def expected_tensors(config: ModelConfig) -> dict[str, Shape]:
    """Every canonical tensor of a model of this shape, the n-gram table included, the hash constants not."""
    tensors: dict[str, Shape] = {"embed_tokens.weight": (config.vocab_tokens, config.hidden)}
    for index, kind in enumerate(config.layers):
        tensors.update(_layer(config, f"layers.{index}", kind))
    if config.ngram is not None:
        tensors.update(_ngram(config, config.ngram))
    tensors.update(_mixer(config, "hyper_connection_mixer"))
    if not config.is_head_tied:
        tensors["lm_head.weight"] = (config.vocab_tokens, config.hidden)
    if config.mtp_layers:
        tensors.update(_mtp(config))
    return tensors


def _layer(config: ModelConfig, layer: str, kind: LayerKind) -> Iterator[tuple[str, Shape]]:
    for place in ("attn", "mlp"):
        module = f"{layer}.{place}_hyper_connection"
        yield from _mixer(config, module)
        yield f"{module}.block_inject_weight.weight", (config.streams.count, config.streams_width)
    if kind is LayerKind.DELTANET:
        yield from _deltanet(config, f"{layer}.linear_attn")
    else:
        yield from _attention(config, f"{layer}.self_attn")
    yield from _moe(config, f"{layer}.mlp")


def _mixer(config: ModelConfig, module: str) -> Iterator[tuple[str, Shape]]:
    width, rank = config.streams_width, config.streams.mixer_rank
    yield f"{module}.hc_norm.weight", (width,)
    yield f"{module}.input_mix_weight_down.weight", (rank, width)
    yield f"{module}.input_mix_weight_up.weight", (width, rank)


def _deltanet(config: ModelConfig, module: str) -> Iterator[tuple[str, Shape]]:
    net, hidden = config.deltanet, config.hidden
    yield f"{module}.in_proj_qkv.weight", (net.conv_channels, hidden)
    yield f"{module}.in_proj_z.weight", (net.value_width, hidden)
    yield f"{module}.in_proj_b.weight", (net.value_heads, hidden)
    yield f"{module}.in_proj_a.weight", (net.value_heads, hidden)
    yield f"{module}.conv1d.weight", (net.conv_channels, 1, net.conv_kernel)
    yield f"{module}.A_log", (net.value_heads,)
    yield f"{module}.dt_bias", (net.value_heads,)
    yield f"{module}.norm.weight", (net.value_dim,)
    yield f"{module}.out_proj.weight", (hidden, net.value_width)


def _attention(config: ModelConfig, module: str) -> Iterator[tuple[str, Shape]]:
    attention, indexer, hidden = config.attention, config.indexer, config.hidden
    query_width = attention.query_heads * attention.head_dim
    kv_width = attention.kv_heads * attention.head_dim
    yield f"{module}.q_proj.weight", (2 * query_width, hidden)
    yield f"{module}.k_proj.weight", (kv_width, hidden)
    yield f"{module}.v_proj.weight", (kv_width, hidden)
    yield f"{module}.o_proj.weight", (hidden, query_width)
    yield f"{module}.q_norm.weight", (attention.head_dim,)
    yield f"{module}.k_norm.weight", (attention.head_dim,)
    yield f"{module}.indexer.index_qk_proj.weight", ((indexer.query_heads + 1) * indexer.head_dim, hidden)
    yield f"{module}.indexer.q_layernorm.weight", (indexer.head_dim,)
    yield f"{module}.indexer.k_layernorm.weight", (indexer.head_dim,)


def _moe(config: ModelConfig, module: str) -> Iterator[tuple[str, Shape]]:
    moe, hidden = config.moe, config.hidden
    yield f"{module}.gate.weight", (moe.experts, hidden)
    yield f"{module}.experts.gate_up_proj", (moe.experts, 2 * moe.expert_width, hidden)
    yield f"{module}.experts.down_proj", (moe.experts, hidden, moe.expert_width)
    yield f"{module}.shared_expert.gate_proj.weight", (moe.shared_width, hidden)
    yield f"{module}.shared_expert.up_proj.weight", (moe.shared_width, hidden)
    yield f"{module}.shared_expert.down_proj.weight", (hidden, moe.shared_width)
    yield f"{module}.shared_expert_gate.weight", (1, hidden)


def _ngram(config: ModelConfig, ngram: NgramConfig) -> Iterator[tuple[str, Shape]]:
    module, width = f"layers.{ngram.layer}.ple", config.streams_width
    yield f"{module}.key_proj.weight", (width, ngram.embed_width)
    yield f"{module}.value_proj.weight", (config.hidden, ngram.embed_width)
    for norm in ("norm_key", "norm_query", "norm_conv"):
        yield f"{module}.{norm}.weight", (width,)
    yield f"{module}.conv1d.weight", (width, 1, ngram.conv_kernel)
    yield ngram_table(ngram), (ngram.hash.table_rows, ngram.head_width)


def _mtp(config: ModelConfig) -> Iterator[tuple[str, Shape]]:
    hidden = config.hidden
    yield "mtp.fc_embedding.weight", (hidden, hidden)
    yield "mtp.fc_hidden.weight", (hidden, hidden)
    yield "mtp.pre_fc_norm_embedding.weight", (hidden,)
    yield "mtp.pre_fc_norm_hidden.weight", (config.streams_width,)
    yield from _layer(config, "mtp.layers.0", LayerKind.ATTENTION)
    yield from _mixer(config, "mtp.hyper_connection_mixer")
