"""What cannot be read is refused in one sentence that names the tensor or field."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from hermitcrab.errors import CheckpointError
from hermitcrab.models.qwen4_exp.checkpoint import load_checkpoint
from hermitcrab.models.qwen4_exp.tiny import Layout, write_tiny
from hermitcrab.models.registry import family_of

PREFIX = "model.language_model."
MLX = "language_model.model."
OUT_PROJ = "layers.0.linear_attn.out_proj.weight"
HASH = "layers.1.ple.ple_embedding."
Stored = dict[str, Tensor]


def change(directory: Path, edit: Callable[[Stored], object]) -> None:
    stored = load_file(directory / "model.safetensors")
    edit(stored)
    save_file({name: value.contiguous() for name, value in stored.items()}, directory / "model.safetensors")


def change_config(directory: Path, edit: Callable[[dict[str, dict[str, object]]], object]) -> None:
    config = json.loads((directory / "config.json").read_text())
    edit(config)
    (directory / "config.json").write_text(json.dumps(config))


def refusal(directory: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(directory)
    return str(caught.value)


def test_an_unknown_model_type_is_refused_with_those_known(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(CheckpointError) as caught:
        family_of(tmp_path)
    assert str(caught.value) == (
        "config.json: model_type is 'llama', but this server reads only 'qwen4_exp' or 'qwen4_exp_text'."
    )


@pytest.mark.parametrize("layout", [Layout.ORIGINAL, Layout.PER_EXPERT])
def test_the_registry_finds_the_family_of_both_model_types(tmp_path: Path, layout: Layout) -> None:
    write_tiny(tmp_path, layout=layout)
    assert family_of(tmp_path).name == "qwen4_exp"


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    write_tiny(tmp_path)
    change(tmp_path, lambda stored: stored.pop(PREFIX + OUT_PROJ))
    assert refusal(tmp_path) == (
        f"{tmp_path} lacks tensors of the model that its config describes: {OUT_PROJ}."
    )


def test_of_many_missing_tensors_three_are_named_and_the_rest_counted(tmp_path: Path) -> None:
    write_tiny(tmp_path)

    def drop_norms(stored: Stored) -> None:
        for name in [name for name in stored if name.endswith("attn_hyper_connection.hc_norm.weight")]:
            del stored[name]

    change(tmp_path, drop_norms)
    norms = [f"layers.{layer}.attn_hyper_connection.hc_norm.weight" for layer in range(3)]
    assert refusal(tmp_path).endswith(f"describes: {', '.join(norms)} and 2 more.")


def test_a_missing_expert_is_named(tmp_path: Path) -> None:
    write_tiny(tmp_path, layout=Layout.PER_EXPERT)
    change(tmp_path, lambda stored: stored.pop("model.layers.0.mlp.experts.5.up_proj.weight"))
    assert refusal(tmp_path).endswith("describes: layers.0.mlp.experts.gate_up_proj (expert 5 up).")


def test_a_missing_ngram_shard_is_named(tmp_path: Path) -> None:
    write_tiny(tmp_path)
    change(tmp_path, lambda stored: stored.pop(f"{PREFIX}{HASH}ngram_embedding.shard_1.weight"))
    assert refusal(tmp_path).endswith(f"describes: {HASH}ngram_embedding.weight (shard 1).")


def test_an_ngram_table_that_is_too_short_is_refused(tmp_path: Path) -> None:
    write_tiny(tmp_path)
    change(tmp_path, lambda stored: stored.pop(f"{PREFIX}{HASH}ngram_embedding.shard_3.weight"))
    assert refusal(tmp_path) == (
        f"{HASH}ngram_embedding.weight has 672 rows over 3 shards, but it must have 896."
    )


def test_ngram_shards_of_different_types_are_refused(tmp_path: Path) -> None:
    write_tiny(tmp_path)
    name = f"{PREFIX}{HASH}ngram_embedding.shard_"
    change(tmp_path, lambda stored: stored.update({f"{name}2.weight": stored[f"{name}2.weight"].bfloat16()}))
    assert refusal(tmp_path) == f"{name}2.weight is stored in another format than {name}0.weight."


def test_a_misshapen_tensor_is_refused_with_both_shapes(tmp_path: Path) -> None:
    write_tiny(tmp_path)
    change(tmp_path, lambda stored: stored.update({PREFIX + OUT_PROJ: torch.ones(128, 64)}))
    assert refusal(tmp_path) == (
        f"model.safetensors: {PREFIX}{OUT_PROJ} has the shape [128, 64], but it must be [128, 128]."
    )


def test_a_tensor_of_another_type_is_refused(tmp_path: Path) -> None:
    write_tiny(tmp_path)
    change(
        tmp_path, lambda stored: stored.update({PREFIX + OUT_PROJ: torch.ones(128, 128, dtype=torch.int8)})
    )
    assert refusal(tmp_path) == (
        f"model.safetensors: {PREFIX}{OUT_PROJ} is int8, but it must be bfloat16 or float16 or float32."
    )


def test_a_tensor_that_the_config_does_not_account_for_is_refused(tmp_path: Path) -> None:
    write_tiny(tmp_path)
    change(
        tmp_path,
        lambda stored: stored.update({f"{PREFIX}layers.0.linear_attn.out_proj.bias": torch.ones(128)}),
    )
    assert refusal(tmp_path) == (
        f"{tmp_path} has tensors that its config does not account for: layers.0.linear_attn.out_proj.bias."
    )


def test_a_tensor_under_two_names_is_refused(tmp_path: Path) -> None:
    write_tiny(tmp_path)
    change(tmp_path, lambda stored: stored.update({f"model.{OUT_PROJ}": torch.ones(128, 128)}))
    assert refusal(tmp_path) == (f"{tmp_path} holds a tensor twice: {PREFIX}{OUT_PROJ} and model.{OUT_PROJ}.")


def test_experts_stored_both_fused_and_apart_are_refused(tmp_path: Path) -> None:
    write_tiny(tmp_path)
    apart = f"{PREFIX}layers.0.mlp.experts.0.down_proj.weight"
    change(tmp_path, lambda stored: stored.update({apart: torch.ones(128, 64)}))
    assert "has no place in layers.0.mlp.experts.down_proj" in refusal(tmp_path)


def test_a_partial_draft_head_is_refused(tmp_path: Path) -> None:
    write_tiny(tmp_path)
    change(tmp_path, lambda stored: stored.pop("mtp.fc_embedding.weight"))
    assert refusal(tmp_path) == (
        f"{tmp_path} holds only a part of its draft head (mtp.*); missing: mtp.fc_embedding.weight."
    )


@pytest.mark.parametrize("constant", ["layer_multipliers", "ngram_heads_vocab_sizes", "ngram_heads_offsets"])
def test_a_hash_constant_that_differs_is_refused_by_its_name(tmp_path: Path, constant: str) -> None:
    write_tiny(tmp_path)
    name = f"{PREFIX}{HASH}{constant}"
    change(tmp_path, lambda stored: stored[name].__setitem__(0, 5))
    sentence = refusal(tmp_path)
    assert sentence.startswith(f"{name} is [5, ")
    assert sentence.endswith("n-grams would be looked up in the wrong rows.")


def test_hash_constants_of_another_seed_are_refused(tmp_path: Path) -> None:
    write_tiny(tmp_path)
    change_config(tmp_path, lambda config: config["text_config"].update(seed=7))
    assert refusal(tmp_path).startswith(f"{PREFIX}{HASH}layer_multipliers is [4295158889763781, ")


def test_a_quantized_weight_without_an_entry_is_refused(tmp_path: Path) -> None:
    write_tiny(tmp_path, layout=Layout.MLX, bits=6)
    change_config(tmp_path, lambda config: [config.pop("quantization"), config.pop("quantization_config")])
    assert refusal(tmp_path).endswith("has scales or biases, but config.json says that it is not quantized.")


def test_an_entry_for_a_weight_that_is_not_quantized_is_refused(tmp_path: Path) -> None:
    write_tiny(tmp_path, layout=Layout.MLX, bits=6)
    entry = {f"{MLX}layers.0.mlp.gate": {"bits": 8, "group_size": 64}}
    change_config(tmp_path, lambda config: config["quantization"].update(entry))
    assert refusal(tmp_path) == (
        "config.json: quantization has an entry for layers.0.mlp.gate, but it has no scales."
    )


def test_other_bits_than_the_weights_have_are_refused_by_the_shape(tmp_path: Path) -> None:
    write_tiny(tmp_path, layout=Layout.MLX, bits=6)
    change_config(tmp_path, lambda config: config["quantization"].update(bits=4))
    assert refusal(tmp_path) == (
        "model.safetensors: language_model.model.embed_tokens.weight has the shape [512, 24], "
        "but it must be [512, 16] for 4 bits in groups of 32."
    )


def test_groups_that_do_not_divide_the_inputs_are_refused(tmp_path: Path) -> None:
    write_tiny(tmp_path, layout=Layout.MLX, bits=6)
    module = f"{MLX}layers.0.attn_hyper_connection.input_mix_weight_up"
    change_config(tmp_path, lambda config: config["quantization"].update({module: {"group_size": 64}}))
    assert refusal(tmp_path) == (
        f"{module}.weight is quantized in groups of 64, which do not divide its 32 inputs."
    )


def test_a_quantized_vector_is_refused(tmp_path: Path) -> None:
    write_tiny(tmp_path, layout=Layout.MLX, bits=8)
    module = f"{MLX}layers.0.attn_hyper_connection.hc_norm"
    triple = {
        "weight": torch.ones(128, dtype=torch.uint32),
        "scales": torch.ones(16),
        "biases": torch.ones(16),
    }
    change(
        tmp_path, lambda stored: stored.update({f"{module}.{name}": field for name, field in triple.items()})
    )
    assert refusal(tmp_path) == f"{module}.weight is quantized, but a vector must be stored plain."


@pytest.mark.parametrize(("dropped", "kept"), [("scales", "biases"), ("biases", "scales")])
def test_a_quantized_weight_without_scales_or_biases_is_refused(
    tmp_path: Path, dropped: str, kept: str
) -> None:
    write_tiny(tmp_path, layout=Layout.MLX, bits=6)
    change(tmp_path, lambda stored: stored.pop(f"{MLX}embed_tokens.{dropped}"))
    assert refusal(tmp_path) == f"{MLX}embed_tokens.weight is quantized, but its {dropped} are missing."


def test_scales_without_their_weight_are_refused(tmp_path: Path) -> None:
    write_tiny(tmp_path, layout=Layout.MLX, bits=6)
    change(tmp_path, lambda stored: stored.pop(f"{MLX}embed_tokens.weight"))
    assert refusal(tmp_path).endswith("is stored, but the weight that it belongs to is not.")


def test_scales_of_the_wrong_shape_are_refused(tmp_path: Path) -> None:
    write_tiny(tmp_path, layout=Layout.MLX, bits=6)
    name = f"{MLX}embed_tokens.scales"
    change(tmp_path, lambda stored: stored.update({name: torch.ones(512, 2)}))
    assert refusal(tmp_path) == (
        f"model.safetensors: {name} has the shape [512, 2], "
        "but it must be [512, 4] for 6 bits in groups of 32."
    )


def test_words_of_another_type_are_refused(tmp_path: Path) -> None:
    write_tiny(tmp_path, layout=Layout.MLX, bits=6)
    name = f"{MLX}embed_tokens.weight"
    change(tmp_path, lambda stored: stored.update({name: torch.ones(512, 24)}))
    assert refusal(tmp_path) == (
        f"model.safetensors: {name} is float32, but it must be uint32 for 6 bits in groups of 32."
    )
