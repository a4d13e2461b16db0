"""config.json to a checked shape: aliases, defaults, and one sentence for every rule that is broken."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from hermitcrab.errors import CheckpointError
from hermitcrab.models.qwen4_exp.config import LayerKind, ModelConfig, OutputGate, parse_config, read_config
from hermitcrab.models.qwen4_exp.tiny import tiny_config

ROPE = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}


def parsed(**overrides: object) -> ModelConfig:
    return parse_config(tiny_config(**overrides))


def refusal(**overrides: object) -> str:
    with pytest.raises(CheckpointError) as caught:
        parsed(**overrides)
    return str(caught.value)


def test_a_nested_text_config_gives_the_same_shape_as_a_text_only_one() -> None:
    nested = {"model_type": "qwen4_exp", "text_config": tiny_config()}
    assert parse_config(nested) == parse_config(tiny_config())


@pytest.mark.parametrize("name", ["full_attention", "indexed_attention", "deepseek_sparse_attention"])
def test_attention_layers_go_by_three_names(name: str) -> None:
    layers = parsed(layer_types=["linear_attention"] * 3 + [name]).layers
    assert layers == (LayerKind.DELTANET,) * 3 + (LayerKind.ATTENTION,)


def test_without_layer_types_every_fourth_layer_is_attention() -> None:
    layers = parsed(layer_types=None, num_hidden_layers=8).layers
    assert [index for index, kind in enumerate(layers) if kind is LayerKind.ATTENTION] == [3, 7]


def test_the_rotary_dims_are_a_part_of_a_head() -> None:
    assert parsed(rope_parameters=ROPE | {"partial_rotary_factor": 0.25}).attention.rotary_dim == 8


def test_rope_fields_may_stand_beside_the_others() -> None:
    beside = parsed(rope_parameters=None, rope_theta=5e5, partial_rotary_factor=0.5).attention
    assert (beside.rope_theta, beside.rotary_dim) == (5e5, 16)


def test_the_output_gate_is_silu_unless_the_config_says_otherwise() -> None:
    gates = [parsed(output_gate_type=gate).deltanet.output_gate for gate in (None, "silu", "sigmoid")]
    assert gates == [OutputGate.SILU, OutputGate.SILU, OutputGate.SIGMOID]


def test_a_model_without_ngram_layers_has_no_ngram_embedding() -> None:
    assert parsed(ple_layer_ids=[], eos_token_id=None).ngram is None


def test_the_ngram_layer_is_counted_from_one_in_the_file_and_from_zero_here() -> None:
    ngram = parsed(ple_layer_ids=[2]).ngram
    assert ngram is not None
    assert ngram.layer == 1


def test_the_first_eos_of_the_text_config_resets_ngrams() -> None:
    nested = {"model_type": "qwen4_exp", "eos_token_id": 9, "text_config": tiny_config(eos_token_id=[5, 2])}
    ngram = parse_config(nested).ngram
    assert ngram is not None
    assert ngram.reset_token == 5


def test_eos_ids_of_both_files_are_united() -> None:
    assert parse_config(tiny_config(eos_token_id=2), {"eos_token_id": [7, 2]}).eos_ids == {2, 7}


def test_a_single_eos_id_in_the_generation_config_counts() -> None:
    assert parse_config(tiny_config(eos_token_id=[2, 4]), {"eos_token_id": 7}).eos_ids == {2, 4, 7}


def test_a_config_that_says_nothing_of_mtp_allows_one_layer() -> None:
    assert parsed(mtp_num_hidden_layers=None).mtp_layers == 1


def test_a_head_is_tied_when_either_level_of_the_config_says_so() -> None:
    nested = {"model_type": "qwen4_exp", "tie_word_embeddings": True, "text_config": tiny_config()}
    assert parse_config(nested).is_head_tied
    assert parsed(tie_word_embeddings=True).is_head_tied


def test_without_mtp_changes_nothing_else() -> None:
    config = parsed()
    assert replace(config.without_mtp(), mtp_layers=1) == config


def test_the_real_models_ngram_table_has_its_published_height() -> None:
    ngram = parsed(
        vocab_size=248320,
        ple_embed_dim=2560,
        heads_per_ngram=8,
        ngram_vocab_size_base=20_000_000,
        make_ngram_vocab_size_divisible_by=128,
    ).ngram
    assert ngram is not None
    assert (ngram.hash.table_rows, ngram.heads, ngram.head_width, ngram.conv_tail_tokens) == (
        320_001_536,
        16,
        160,
        9,
    )


SENTENCES = [
    (
        {"model_type": "llama"},
        "model_type is 'llama', but this server reads only 'qwen4_exp' or 'qwen4_exp_text'.",
    ),
    ({"model_type": None}, "model_type is missing; it must be 'qwen4_exp' or 'qwen4_exp_text'."),
    ({"hidden_size": 0}, "hidden_size is 0, but it must be a whole number of at least 1."),
    ({"hidden_size": "128"}, "hidden_size is '128', but it must be a whole number of at least 1."),
    ({"hidden_size": True}, "hidden_size is True, but it must be a whole number of at least 1."),
    ({"rms_norm_eps": 0}, "rms_norm_eps is 0, but it must be a number above 0."),
    ({"rms_norm_eps": float("nan")}, "rms_norm_eps is nan, but it must be a number above 0."),
    ({"hidden_act": "gelu"}, "hidden_act is 'gelu', but this server reads only 'silu'."),
    ({"attention_bias": True}, "attention_bias is True, but this server reads only False."),
    (
        {"layer_types": ["linear_attention"] * 3 + ["sliding_attention"]},
        "layer_types has 'sliding_attention', but this server reads only 'linear_attention' "
        "or 'full_attention' or 'indexed_attention' or 'deepseek_sparse_attention'.",
    ),
    (
        {"layer_types": ["linear_attention"]},
        "layer_types is ['linear_attention'], but it must list one name for each of the 4 layers.",
    ),
    ({"hc_count": 1}, "hc_count is 1, but it must be a whole number of at least 2."),
    ({"num_key_value_heads": 3}, "num_key_value_heads is 3, but it must divide num_attention_heads, 4."),
    (
        {"linear_num_value_heads": 3},
        "linear_num_value_heads is 3, but it must be a multiple of linear_num_key_heads, 2.",
    ),
    (
        {"output_gate_type": "relu"},
        "output_gate_type is 'relu', but this server reads only 'sigmoid' or 'silu'.",
    ),
    ({"num_experts_per_tok": 9}, "num_experts_per_tok is 9, but it must be at most num_experts, 8."),
    ({"norm_topk_prob": 2}, "norm_topk_prob is 2, but this server reads only False or True."),
    ({"indexer_kv_heads": 2}, "indexer_kv_heads is 2, but this server reads only 1."),
    ({"indexer_kv_heads": None}, "indexer_kv_heads is missing; it must be 1."),
    ({"indexer_n_heads": None}, "indexer_n_heads is missing; it must be a whole number of at least 1."),
    ({"indexer_budget": 18}, "indexer_budget is 18, but it must be a multiple of indexer_compress_ratio, 4."),
    ({"indexer_head_dim": 8}, "indexer_head_dim is 8, but it must hold the 16 rotary dims."),
    ({"ple_layer_ids": [0]}, "ple_layer_ids is [0], but it must be a list of whole numbers above 0."),
    (
        {"ple_layer_ids": [4]},
        "ple_layer_ids is [4], but it must count a linear_attention layer, the first layer being 1.",
    ),
    (
        {"ple_layer_ids": [5]},
        "ple_layer_ids is [5], but it must count a linear_attention layer, the first layer being 1.",
    ),
    (
        {"ple_layer_ids": [1, 2]},
        "ple_layer_ids is [1, 2], but this server reads models with one n-gram layer at most.",
    ),
    ({"ple_embed_dim": 130}, "ple_embed_dim is 130, but it must be a multiple of the 4 n-gram heads."),
    ({"eos_token_id": None}, "eos_token_id is missing; the n-gram embedding needs it."),
    ({"eos_token_id": 512}, "eos_token_id has 512, but a token id is from 0 to 511."),
    ({"eos_token_id": [2, "x"]}, "eos_token_id has 'x', but a token id is from 0 to 511."),
    (
        {"mtp_num_hidden_layers": 2},
        "mtp_num_hidden_layers is 2, but this server reads one draft layer at most.",
    ),
]


@pytest.mark.parametrize(("overrides", "sentence"), SENTENCES, ids=lambda case: str(case)[:60])
def test_a_broken_rule_is_refused_by_field_value_and_what_is_allowed(
    overrides: dict[str, object], sentence: str
) -> None:
    assert refusal(**overrides) == f"config.json: {sentence}"


ROPE_SENTENCES = [
    ({"rope_type": "yarn"}, "rope_type is 'yarn', but this server reads only 'default'."),
    (
        {"partial_rotary_factor": 0.1},
        "partial_rotary_factor is 0.1, "
        "but it must make an even number of at least 2 of the 32 dims of a head.",
    ),
    (
        {"mrope_section": [4, 4, 4]},
        "mrope_section is [4, 4, 4], but it must add up to 8, half of the rotary dims.",
    ),
    ({"rope_theta": -1}, "rope_theta is -1, but it must be a number above 0."),
]


@pytest.mark.parametrize(("overrides", "sentence"), ROPE_SENTENCES, ids=lambda case: str(case)[:60])
def test_a_broken_rope_rule_is_refused(overrides: dict[str, object], sentence: str) -> None:
    assert refusal(rope_parameters=ROPE | overrides) == f"config.json rope_parameters: {sentence}"


def test_the_older_type_field_of_rope_scaling_is_checked_too() -> None:
    assert refusal(rope_parameters=None, rope_scaling={"type": "yarn"}) == (
        "config.json rope_scaling: type is 'yarn', but this server reads only 'default'."
    )


def test_a_draft_head_with_another_rotation_is_refused() -> None:
    assert refusal(mtp={"rope_theta": 5.0}) == (
        "config.json mtp: rope_theta is 5.0, but it must equal the model's, 10000.0."
    )


def test_a_draft_head_with_another_layer_is_refused() -> None:
    assert refusal(mtp={"layer_types": ["linear_attention"]}) == (
        "config.json mtp: layer_types is ['linear_attention'], but a draft head has one full_attention layer."
    )


def test_an_eos_of_the_generation_config_outside_the_vocabulary_is_refused_by_its_file() -> None:
    with pytest.raises(CheckpointError) as caught:
        parse_config(tiny_config(), {"eos_token_id": -1})
    assert (
        str(caught.value) == "generation_config.json: eos_token_id has -1, but a token id is from 0 to 511."
    )


def test_a_text_config_that_is_no_object_is_refused() -> None:
    with pytest.raises(CheckpointError) as caught:
        parse_config({"model_type": "qwen4_exp", "text_config": 3})
    assert str(caught.value) == "config.json: text_config is 3, but it must be a JSON object."


def test_a_directory_without_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError) as caught:
        read_config(tmp_path)
    assert str(caught.value) == f"{tmp_path} has no config.json, so it is not a model directory."


def test_a_missing_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError) as caught:
        read_config(tmp_path / "none")
    assert str(caught.value) == f"There is no directory {tmp_path / 'none'}."


@pytest.mark.parametrize("text", ["{", "\xff"])
def test_a_config_that_is_no_json_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text, encoding="latin-1")
    with pytest.raises(CheckpointError, match=r"config\.json cannot be read as JSON"):
        read_config(tmp_path)


def test_a_config_that_is_no_object_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps([1]))
    with pytest.raises(CheckpointError, match=r"config\.json must hold a JSON object, not list"):
        read_config(tmp_path)
