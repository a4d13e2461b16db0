"""Small random checkpoints in every layout; no weight is all zeros or ones, so that every part shows."""

import json
from collections.abc import Mapping
from enum import Enum
from math import sqrt
from pathlib import Path
from types import MappingProxyType

import torch
from safetensors.torch import save_file
from torch import Tensor

from hermitcrab.models.qwen4_exp import names
from hermitcrab.models.qwen4_exp.config import ModelConfig, parse_config
from hermitcrab.models.qwen4_exp.fields import CONFIG_FILE, GENERATION_FILE
from hermitcrab.weights.affine import GROUP_SIZES, AffineFormat, quantize
from hermitcrab.weights.shards import DTYPES, INDEX_FILE

# overrides of `tiny_config` that reach other branches of the same forward
SHAPES: Mapping[str, Mapping[str, object]] = MappingProxyType(
    {
        "default": {},
        # every quantized width is a multiple of 128, a few are not powers of two
        "wide": {
            "hidden_size": 256,
            "num_attention_heads": 6,
            "head_dim": 64,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 1e7,
                "partial_rotary_factor": 0.25,
                "mrope_section": [3, 3, 2],
                "mrope_interleaved": True,
            },
            "linear_num_key_heads": 4,
            "linear_num_value_heads": 12,
            "hc_count": 2,
            "hc_lowrank": 128,
            "moe_intermediate_size": 128,
            "shared_expert_intermediate_size": 128,
            "num_experts_per_tok": 5,
            "ple_embed_dim": 512,
            "indexer_head_dim": 64,
        },
        # two attention layers, as many value heads as key heads, 4-grams, a silu gate, unnormalised experts
        "deep": {
            "num_hidden_layers": 8,
            "layer_types": [*["linear_attention"] * 3, "full_attention"] * 2,
            "num_key_value_heads": 1,
            "linear_num_key_heads": 4,
            "output_gate_type": "silu",
            "norm_topk_prob": False,
            "num_experts": 5,
            "num_experts_per_tok": 3,
            "ple_layer_ids": [6],
            "ple_embed_dim": 96,
            "ple_conv_kernel_size": 3,
            "ngram_size": 4,
            "heads_per_ngram": 1,
            "split_ngram_parts": 3,
            "indexer_n_heads": 16,
            "indexer_budget": 24,
            "indexer_compress_ratio": 8,
        },
        # no n-gram embedding, no draft head, the head tied to the embedding
        "bare": {"ple_layer_ids": [], "mtp_num_hidden_layers": 0, "tie_word_embeddings": True},
    }
)


class Layout(Enum):
    """How a checkpoint stores its tensors."""

    ORIGINAL = "fused experts, a nested text_config"
    PER_EXPERT = "a tensor an expert and a text-only config, as transformers saves"
    MLX = "stacked gate and up apart, affine or plain"


def tiny_config(**overrides: object) -> dict[str, object]:
    """A text-only config.json: 3 DeltaNet layers, the second with n-gram embedding, and an attention layer.

    `overrides` replace whole fields; `SHAPES` has sets of them.
    """
    config: dict[str, object] = {
        "model_type": "qwen4_exp_text",
        "architectures": ["Qwen4ExpForCausalLM"],
        "vocab_size": 512,
        "hidden_size": 128,
        "num_hidden_layers": 4,
        "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"],
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-6,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "partial_rotary_factor": 0.5,
            "mrope_section": [4, 2, 2],
            "mrope_interleaved": True,
        },
        "indexer_n_heads": 4,
        "indexer_kv_heads": 1,
        "indexer_head_dim": 32,
        "indexer_budget": 16,
        "indexer_compress_ratio": 4,
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 16,
        "linear_value_head_dim": 32,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "output_gate_type": "sigmoid",
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 64,
        "shared_expert_intermediate_size": 64,
        "norm_topk_prob": True,
        "hc_count": 4,
        "hc_lowrank": 32,
        "ple_layer_ids": [2],
        "ple_embed_dim": 128,
        "ple_conv_kernel_size": 4,
        "ngram_size": 3,
        "heads_per_ngram": 2,
        "ngram_vocab_size_base": 200,
        "make_ngram_vocab_size_divisible_by": 64,
        "split_ngram_parts": 4,
        "seed": 1234,
        "mtp_num_hidden_layers": 1,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
    }
    return config | overrides


def tiny_tensors(config: ModelConfig, *, seed: int) -> dict[str, Tensor]:
    """Random fp32 values for every canonical tensor of a model of this shape."""
    generator = torch.Generator().manual_seed(seed)
    return {name: _random(name, shape, generator) for name, shape in names.expected_tensors(config).items()}


def write_tiny(
    directory: Path,
    *,
    layout: Layout = Layout.ORIGINAL,
    config: Mapping[str, object] | None = None,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    shards: int = 1,
    mtp: bool = True,
    bits: int | None = None,
    group_size: int = 32,
    is_norm_around_one: bool = False,
) -> dict[str, Tensor]:
    """Write a random checkpoint and return its canonical values, before rounding to `dtype` and quantization.

    `shards` is the number of weight files; with `mtp` False the draft head's tensors are left out.
    `bits` (MLX only) quantizes every linear weight, embedding and n-gram row: those whose width
    `group_size` does not divide in the largest group that does, and the shared expert's gate in 8 bits.
    `is_norm_around_one` stores 1 + weight for norms.
    """
    assert bits is None or layout is Layout.MLX
    text = dict(tiny_config() if config is None else config)
    parsed = parse_config(text)
    values = tiny_tensors(parsed if mtp else parsed.without_mtp(), seed=seed)
    stored = {
        name: (value + 1.0 if is_norm_around_one and names.is_centred_norm(name) else value).to(dtype)
        for name, value in values.items()
    }
    quantization: dict[str, object] = {}
    match layout:
        case Layout.MLX:
            tensors = _mlx(stored, parsed, text)
            if bits is not None:
                tensors, quantization = _quantize(tensors, AffineFormat(bits, group_size))
        case Layout.ORIGINAL:
            tensors = _original(stored, parsed, text)
        case Layout.PER_EXPERT:
            tensors = _per_expert(_original(stored, parsed, text))
    if layout is not Layout.PER_EXPERT:
        text = {
            "model_type": "qwen4_exp",
            "architectures": ["Qwen4ExpForConditionalGeneration"],
            "text_config": text,
            "tie_word_embeddings": parsed.is_head_tied,
        }
    directory.mkdir(parents=True, exist_ok=True)
    _write_json(directory / CONFIG_FILE, text | quantization)
    _write_json(directory / GENERATION_FILE, {"eos_token_id": [3, 2]})
    _write_tensors(directory, tensors, shards, "mlx" if layout is Layout.MLX else "pt")
    return values


def write_hollow(directory: Path, config: Mapping[str, object], *, bits: int, group_size: int) -> None:
    """Write an MLX checkpoint of any size that has true headers and no values: a file with a hole in it.

    It takes no room on a file system that knows holes; what reads its weights reads zeros. Without the n-gram
    hash's constants, which are values.
    """
    text = dict(config)
    parsed = parse_config(text)
    shapes = names.expected_tensors(parsed)
    hollow = {name: torch.empty(shape, dtype=torch.bfloat16, device="meta") for name, shape in shapes.items()}
    tensors = _mlx(hollow, parsed, text)
    default = AffineFormat(bits, group_size)
    table: dict[str, object] = {"bits": bits, "group_size": group_size, "mode": "affine"}
    header: dict[str, object] = {}
    end = 0
    for name, value in tensors.items():
        if not value.is_meta:
            continue
        module = name.removesuffix(".weight")
        stored = _format_of(module, value, default)
        fields = {name: ("BF16", value.shape)}
        if stored is not None:
            *lead, width = value.shape
            groups = ("BF16", torch.Size((*lead, stored.groups_in_row(width))))
            words = ("U32", torch.Size((*lead, stored.words_in_row(width))))
            fields = {f"{module}.weight": words, f"{module}.scales": groups, f"{module}.biases": groups}
            if stored != default:
                table[module] = {"bits": stored.bits, "group_size": stored.group_size}
        for field, (kind, shape) in fields.items():
            start, end = end, end + shape.numel() * DTYPES[kind].itemsize
            header[field] = {"dtype": kind, "shape": list(shape), "data_offsets": [start, end]}
    directory.mkdir(parents=True, exist_ok=True)
    _write_json(directory / CONFIG_FILE, text | {"quantization": table})
    encoded = json.dumps(header).encode()
    with (directory / "model.safetensors").open("wb") as file:
        file.write(len(encoded).to_bytes(8, "little") + encoded)
        file.truncate(8 + len(encoded) + end)


def _random(name: str, shape: names.Shape, generator: torch.Generator) -> Tensor:
    noise = torch.randn(shape, generator=generator)
    if names.is_centred_norm(name):
        return 0.2 * noise
    if name.endswith("linear_attn.norm.weight"):
        return 1.0 + 0.2 * noise
    if name.endswith("A_log"):
        return torch.empty(shape).uniform_(0.5, 4.0, generator=generator).log()
    if name.endswith("dt_bias") or "conv1d" in name:
        return 0.5 * noise
    if name.endswith("ngram_embedding.weight"):
        return noise
    return noise / sqrt(shape[-1])


def _original(
    tensors: Mapping[str, Tensor], config: ModelConfig, text: Mapping[str, object]
) -> dict[str, Tensor]:
    named: dict[str, Tensor] = {}
    for name, value in tensors.items():
        outer = name if name.startswith(("lm_head.", names.MTP_PREFIX)) else f"model.language_model.{name}"
        named.update(_split_table(outer, value, text))
    named.update(_constants(config, "model.language_model."))
    return named


def _per_expert(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    named: dict[str, Tensor] = {}
    for stored, value in tensors.items():
        name = stored.replace("model.language_model.", "model.")
        if name.endswith(".experts.gate_up_proj"):
            module = name.removesuffix(".gate_up_proj")
            for expert, fused in enumerate(value):
                gate, up = fused.chunk(2)
                named[f"{module}.{expert}.gate_proj.weight"] = gate
                named[f"{module}.{expert}.up_proj.weight"] = up
        elif name.endswith(".experts.down_proj"):
            module = name.removesuffix(".down_proj")
            named.update({f"{module}.{expert}.down_proj.weight": down for expert, down in enumerate(value)})
        else:
            named[name] = value
    return named


def _mlx(tensors: Mapping[str, Tensor], config: ModelConfig, text: Mapping[str, object]) -> dict[str, Tensor]:
    named: dict[str, Tensor] = {}
    for name, value in tensors.items():
        inner = name if name.startswith(("lm_head.", names.MTP_PREFIX)) else f"model.{name}"
        outer = f"language_model.{inner}".replace(".mlp.experts.", ".mlp.switch_mlp.")
        if outer.endswith("switch_mlp.gate_up_proj"):
            gate, up = value.chunk(2, dim=-2)
            named[outer.replace("gate_up_proj", "gate_proj.weight")] = gate
            named[outer.replace("gate_up_proj", "up_proj.weight")] = up
        elif outer.endswith("switch_mlp.down_proj"):
            named[f"{outer}.weight"] = value
        elif "conv1d" in outer:
            named[outer] = value.transpose(-1, -2)
        else:
            named.update(_split_table(outer, value, text))
    named.update(_constants(config, "language_model.model."))
    return named


def _split_table(name: str, value: Tensor, text: Mapping[str, object]) -> dict[str, Tensor]:
    if not name.endswith(".ngram_embedding.weight"):
        return {name: value}
    parts = text.get("split_ngram_parts", 1)
    assert isinstance(parts, int)
    module = name.removesuffix(".weight")
    return {f"{module}.shard_{index}.weight": part for index, part in enumerate(value.tensor_split(parts))}


def _constants(config: ModelConfig, prefix: str) -> dict[str, Tensor]:
    if config.ngram is None:
        return {}
    derived = config.ngram.hash
    values = (derived.multipliers, derived.head_rows, derived.head_offsets)
    module = prefix + names.ngram_module(config.ngram)
    return {
        f"{module}.{name}": torch.tensor(value)
        for name, value in zip(names.HASH_CONSTANTS, values, strict=True)
    }


def _quantize(
    tensors: Mapping[str, Tensor], default: AffineFormat
) -> tuple[dict[str, Tensor], dict[str, object]]:
    """Quantized triples for matrices and stacks of them, and config.json's `quantization`."""
    table: dict[str, object] = {"bits": default.bits, "group_size": default.group_size, "mode": "affine"}
    named: dict[str, Tensor] = {}
    for name, value in tensors.items():
        module = name.removesuffix(".weight")
        stored = _format_of(module, value, default)
        if stored is None:
            named[name] = value
            continue
        weight = quantize(value, bits=stored.bits, group_size=stored.group_size)
        named[f"{module}.weight"] = weight.words
        named[f"{module}.scales"] = weight.scales
        named[f"{module}.biases"] = weight.biases
        if stored != default:
            table[module] = {"bits": stored.bits, "group_size": stored.group_size}
    return named, {"quantization": table, "quantization_config": table}


def _format_of(module: str, value: Tensor, default: AffineFormat) -> AffineFormat | None:
    is_router = module.endswith("mlp.gate")
    if value.dim() < 2 or "conv1d" in module or is_router or not value.is_floating_point():
        return None
    dividing = [size for size in GROUP_SIZES if size <= default.group_size and value.shape[-1] % size == 0]
    if not dividing:
        return None
    return AffineFormat(8 if module.endswith("shared_expert_gate") else default.bits, max(dividing))


def _write_tensors(directory: Path, tensors: Mapping[str, Tensor], shards: int, made_by: str) -> None:
    if shards == 1:
        _save(directory / "model.safetensors", tensors, made_by)
        return
    ordered = sorted(tensors)
    weight_map: dict[str, str] = {}
    for shard in range(shards):
        file_name = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        held = ordered[shard::shards]
        _save(directory / file_name, {name: tensors[name] for name in held}, made_by)
        weight_map.update(dict.fromkeys(held, file_name))
    size_bytes = sum(value.numel() * value.element_size() for value in tensors.values())
    _write_json(directory / INDEX_FILE, {"metadata": {"total_size": size_bytes}, "weight_map": weight_map})


def _save(path: Path, tensors: Mapping[str, Tensor], made_by: str) -> None:
    save_file(
        {name: value.contiguous() for name, value in tensors.items()}, path, metadata={"format": made_by}
    )


def _write_json(path: Path, value: Mapping[str, object]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
