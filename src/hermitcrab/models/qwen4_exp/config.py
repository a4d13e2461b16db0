"""The shape of a `qwen4_exp` text model: config.json, checked, every number under its own name."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from hermitcrab.errors import CheckpointError
from hermitcrab.kernels.attention import CHUNK_KEYS
from hermitcrab.models.qwen4_exp.fields import CONFIG_FILE, GENERATION_FILE, Fields, either, read_json
from hermitcrab.models.qwen4_exp.hashing import NgramHash, derive_hash

MODEL_TYPES = ("qwen4_exp", "qwen4_exp_text")

# the three names public code gives the same layer: attention over the tokens that the indexer selects
ATTENTION_NAMES = ("full_attention", "indexed_attention", "deepseek_sparse_attention")
LINEAR_NAME = "linear_attention"


class LayerKind(Enum):
    """What mixes tokens in a layer."""

    DELTANET = "gated deltanet"
    ATTENTION = "sparse attention"


class OutputGate(Enum):
    """The activation of DeltaNet's output gate."""

    SIGMOID = "sigmoid"
    SILU = "silu"


@dataclass(frozen=True, slots=True)
class AttentionConfig:
    """Grouped-query attention whose `q_proj` gives, per head, `head_dim` of query then `head_dim` of gate.

    Rotary embedding turns the first `rotary_dim` of each head. `mrope_section` counts rotary pairs for
    time, height and width; for text the three positions are equal, so it has no effect.
    """

    query_heads: int
    kv_heads: int
    head_dim: int
    rotary_dim: int
    rope_theta: float
    mrope_section: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class IndexerConfig:
    """Selects up to `budget_tokens` past tokens a query, in blocks of `block_tokens`, by one key head."""

    query_heads: int
    head_dim: int
    budget_tokens: int
    block_tokens: int

    @property
    def budget_blocks(self) -> int:
        """The most finished blocks that a query may read."""
        return self.budget_tokens // self.block_tokens


@dataclass(frozen=True, slots=True)
class DeltaNetConfig:
    """Gated DeltaNet: `value_heads` states of [key_dim, value_dim], a causal convolution over q, k and v."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    conv_kernel: int
    output_gate: OutputGate

    @property
    def key_width(self) -> int:
        """All key heads side by side."""
        return self.key_heads * self.key_dim

    @property
    def value_width(self) -> int:
        """All value heads side by side."""
        return self.value_heads * self.value_dim

    @property
    def conv_channels(self) -> int:
        """The convolution's channels: q, k, v."""
        return 2 * self.key_width + self.value_width


@dataclass(frozen=True, slots=True)
class MoeConfig:
    """`experts_per_token` of `experts` routed experts, and a shared expert behind a gate, in every layer."""

    experts: int
    experts_per_token: int
    expert_width: int
    shared_width: int
    is_normalised: bool


@dataclass(frozen=True, slots=True)
class StreamsConfig:
    """Hyper-connections: `count` residual streams, read through a low-rank mixer of `mixer_rank`."""

    count: int
    mixer_rank: int


@dataclass(frozen=True, slots=True)
class NgramConfig:
    """The n-gram embedding (PLE) of one layer, zero-based `layer`.

    Token n-grams of 2 up to `ngram_tokens` are hashed by `heads_per_ngram` heads each; every head gives
    a row of `head_width`, concatenated to `embed_width`. `reset_token` ends a segment: n-grams never
    reach across it. The convolution has `conv_kernel` taps, `conv_dilation` tokens apart.
    """

    layer: int
    ngram_tokens: int
    heads_per_ngram: int
    embed_width: int
    conv_kernel: int
    reset_token: int
    hash: NgramHash

    @property
    def heads(self) -> int:
        """Rows looked up a token."""
        return (self.ngram_tokens - 1) * self.heads_per_ngram

    @property
    def head_width(self) -> int:
        """Width of one table row."""
        return self.embed_width // self.heads

    @property
    def conv_dilation(self) -> int:
        """Tokens between two taps of the convolution."""
        return self.ngram_tokens

    @property
    def conv_tail_tokens(self) -> int:
        """Past tokens that the convolution needs."""
        return (self.conv_kernel - 1) * self.conv_dilation


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """One model's shape. `mtp_layers` is 0 or 1; `eos_ids` unites config.json and generation_config.json."""

    vocab_tokens: int
    context_tokens: int
    hidden: int
    layers: tuple[LayerKind, ...]
    norm_eps: float
    is_head_tied: bool
    attention: AttentionConfig
    indexer: IndexerConfig
    deltanet: DeltaNetConfig
    moe: MoeConfig
    streams: StreamsConfig
    ngram: NgramConfig | None
    mtp_layers: int
    eos_ids: frozenset[int]

    @property
    def streams_width(self) -> int:
        """All residual streams side by side."""
        return self.streams.count * self.hidden

    def without_mtp(self) -> "ModelConfig":
        """The same model with no draft head."""
        return replace(self, mtp_layers=0)


def read_config(directory: Path) -> ModelConfig:
    """The checked shape of the model in `directory`.

    Raises CheckpointError, naming file, field, value and what is allowed.
    """
    generation_path = directory / GENERATION_FILE
    generation = read_json(generation_path) if generation_path.is_file() else {}
    return parse_config(read_json(directory / CONFIG_FILE), generation)


def parse_config(raw: Mapping[str, object], generation: Mapping[str, object] | None = None) -> ModelConfig:
    """The checked shape from config.json's object, text-only or with a nested `text_config`.

    Raises CheckpointError, naming field, value and what is allowed.
    """
    whole = Fields(raw)
    whole.choice("model_type", None, MODEL_TYPES)
    text = whole.group("text_config") if "text_config" in raw else whole
    hidden = text.count("hidden_size", 2048)
    vocab_tokens = text.count("vocab_size", 248320)
    layers = _layers(text)
    text.choice("hidden_act", "silu", ("silu",))
    text.choice("attention_bias", False, (False,))
    text.choice("mamba_ssm_dtype", "float32", ("float32",))
    config_eos = _token_ids(text if text.has("eos_token_id") else whole, CONFIG_FILE, vocab_tokens)
    generation_eos = _token_ids(Fields(generation or {}, GENERATION_FILE), GENERATION_FILE, vocab_tokens)
    attention = _attention(text)
    tied = whole if whole.has("tie_word_embeddings") else text
    return ModelConfig(
        vocab_tokens=vocab_tokens,
        context_tokens=text.count("max_position_embeddings", 32768),
        hidden=hidden,
        layers=layers,
        norm_eps=text.positive("rms_norm_eps", 1e-6),
        is_head_tied=bool(tied.choice("tie_word_embeddings", False, (False, True))),
        attention=attention,
        indexer=_indexer(text, attention),
        deltanet=_deltanet(text),
        moe=_moe(text),
        streams=StreamsConfig(
            count=text.count("hc_count", 4, least=2), mixer_rank=text.count("hc_lowrank", 320)
        ),
        ngram=_ngram(text, layers, hidden=hidden, vocab_tokens=vocab_tokens, eos_ids=config_eos),
        mtp_layers=_mtp_layers(text, attention),
        eos_ids=frozenset(config_eos + generation_eos),
    )


def _layers(text: Fields) -> tuple[LayerKind, ...]:
    layer_count = text.count("num_hidden_layers", 40)
    if not text.has("layer_types"):
        interval = text.count("full_attention_interval", 4)
        return tuple(
            LayerKind.DELTANET if (index + 1) % interval else LayerKind.ATTENTION
            for index in range(layer_count)
        )
    names = text.get("layer_types", [])
    if not isinstance(names, list) or len(names) != layer_count:
        raise text.refusal("layer_types", f"it must list one name for each of the {layer_count} layers")
    for name in names:
        if name != LINEAR_NAME and name not in ATTENTION_NAMES:
            raise CheckpointError(
                f"{CONFIG_FILE}: layer_types has {name!r}, but this server reads only "
                f"{either((LINEAR_NAME, *ATTENTION_NAMES))}."
            )
    return tuple(LayerKind.DELTANET if name == LINEAR_NAME else LayerKind.ATTENTION for name in names)


def _attention(text: Fields) -> AttentionConfig:
    query_heads = text.count("num_attention_heads", 16)
    kv_heads = text.count("num_key_value_heads", 2)
    head_dim = text.count("head_dim", 256)
    if query_heads % kv_heads:
        raise text.refusal("num_key_value_heads", f"it must divide num_attention_heads, {query_heads}")
    rope = text
    for name in ("rope_parameters", "rope_scaling"):
        if text.has(name):
            rope = text.group(name)
            break
    kind = "rope_type" if rope.has("rope_type") or not rope.has("type") else "type"
    rope.choice(kind, "default", ("default",))
    theta = rope if rope.has("rope_theta") else text
    partial = rope if rope.has("partial_rotary_factor") else text
    factor = partial.positive("partial_rotary_factor", 1.0)
    rotary_dim = int(head_dim * factor)
    if factor > 1 or rotary_dim < 2 or rotary_dim % 2:
        raise partial.refusal(
            "partial_rotary_factor",
            f"it must make an even number of at least 2 of the {head_dim} dims of a head",
        )
    section = rope.counts("mrope_section")
    if section and sum(section) != rotary_dim // 2:
        raise rope.refusal("mrope_section", f"it must add up to {rotary_dim // 2}, half of the rotary dims")
    return AttentionConfig(
        query_heads=query_heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        rotary_dim=rotary_dim,
        rope_theta=theta.positive("rope_theta", 10000.0),
        mrope_section=section,
    )


def _indexer(text: Fields, attention: AttentionConfig) -> IndexerConfig:
    text.choice("indexer_kv_heads", None, (1,))
    block_tokens = text.count("indexer_compress_ratio", None, least=2)
    budget_tokens = text.count("indexer_budget", None)
    head_dim = text.count("indexer_head_dim", None)
    if CHUNK_KEYS % block_tokens:
        raise text.refusal(
            "indexer_compress_ratio", f"it must divide {CHUNK_KEYS}, the keys that attention reads at once"
        )
    if budget_tokens % block_tokens:
        raise text.refusal(
            "indexer_budget", f"it must be a multiple of indexer_compress_ratio, {block_tokens}"
        )
    if attention.rotary_dim > head_dim:
        raise text.refusal("indexer_head_dim", f"it must hold the {attention.rotary_dim} rotary dims")
    return IndexerConfig(
        query_heads=text.count("indexer_n_heads", None),
        head_dim=head_dim,
        budget_tokens=budget_tokens,
        block_tokens=block_tokens,
    )


def _deltanet(text: Fields) -> DeltaNetConfig:
    key_heads = text.count("linear_num_key_heads", 16)
    value_heads = text.count("linear_num_value_heads", 32)
    if value_heads % key_heads:
        raise text.refusal(
            "linear_num_value_heads", f"it must be a multiple of linear_num_key_heads, {key_heads}"
        )
    gate = text.choice("output_gate_type", "silu", tuple(gate.value for gate in OutputGate))
    return DeltaNetConfig(
        key_heads=key_heads,
        value_heads=value_heads,
        key_dim=text.count("linear_key_head_dim", 128),
        value_dim=text.count("linear_value_head_dim", 128),
        conv_kernel=text.count("linear_conv_kernel_dim", 4, least=2),
        output_gate=OutputGate(gate),
    )


def _moe(text: Fields) -> MoeConfig:
    experts = text.count("num_experts", 512)
    experts_per_token = text.count("num_experts_per_tok", 10)
    if experts_per_token > experts:
        raise text.refusal("num_experts_per_tok", f"it must be at most num_experts, {experts}")
    return MoeConfig(
        experts=experts,
        experts_per_token=experts_per_token,
        expert_width=text.count("moe_intermediate_size", 512),
        shared_width=text.count("shared_expert_intermediate_size", 512),
        is_normalised=bool(text.choice("norm_topk_prob", True, (False, True))),
    )


def _ngram(
    text: Fields, layers: tuple[LayerKind, ...], *, hidden: int, vocab_tokens: int, eos_ids: tuple[int, ...]
) -> NgramConfig | None:
    ids = sorted(set(text.counts("ple_layer_ids")))
    if not ids:
        return None
    if len(ids) > 1:
        raise text.refusal("ple_layer_ids", "this server reads models with one n-gram layer at most")
    if ids[0] > len(layers) or layers[ids[0] - 1] is not LayerKind.DELTANET:
        raise text.refusal("ple_layer_ids", "it must count a linear_attention layer, the first layer being 1")
    ngram_tokens = text.count("ngram_size", 3, least=2)
    heads_per_ngram = text.count("heads_per_ngram", 8)
    embed_width = text.count("ple_embed_dim", hidden)
    heads = (ngram_tokens - 1) * heads_per_ngram
    if embed_width % heads:
        raise text.refusal("ple_embed_dim", f"it must be a multiple of the {heads} n-gram heads")
    if not eos_ids:
        raise CheckpointError(f"{CONFIG_FILE}: eos_token_id is missing; the n-gram embedding needs it.")
    return NgramConfig(
        layer=ids[0] - 1,
        ngram_tokens=ngram_tokens,
        heads_per_ngram=heads_per_ngram,
        embed_width=embed_width,
        conv_kernel=text.count("ple_conv_kernel_size", 4, least=2),
        reset_token=eos_ids[0],
        hash=derive_hash(
            vocab_tokens=vocab_tokens,
            ngram_tokens=ngram_tokens,
            heads=heads,
            base_rows=text.count("ngram_vocab_size_base", 20_000_000),
            rows_multiple=text.count("make_ngram_vocab_size_divisible_by", 128),
            seed=text.count("seed", 1234, least=0),
        ),
    )


def _mtp_layers(text: Fields, attention: AttentionConfig) -> int:
    """Absent means 1, the family's number: a checkpoint that lacks the tensors then has no draft head."""
    layers = text.count("mtp_num_hidden_layers", 1, least=0)
    if layers > 1:
        raise text.refusal("mtp_num_hidden_layers", "this server reads one draft layer at most")
    if layers and text.has("mtp"):
        head = text.group("mtp")
        names = head.get("layer_types", ["full_attention"])
        if not isinstance(names, list) or len(names) != 1 or names[0] not in ATTENTION_NAMES:
            raise head.refusal("layer_types", "a draft head has one full_attention layer")
        if head.positive("rope_theta", attention.rope_theta) != attention.rope_theta:
            raise head.refusal("rope_theta", f"it must equal the model's, {attention.rope_theta}")
    return layers


def _token_ids(fields: Fields, where: str, vocab_tokens: int) -> tuple[int, ...]:
    """`eos_token_id` as a tuple, in the file's order; empty where it is absent."""
    value = fields.get("eos_token_id", [])
    ids = value if isinstance(value, list) else [value]
    for item in ids:
        if not isinstance(item, int) or isinstance(item, bool) or not 0 <= item < vocab_tokens:
            raise CheckpointError(
                f"{where}: eos_token_id has {item!r}, but a token id is from 0 to {vocab_tokens - 1}."
            )
    return tuple(ids)
