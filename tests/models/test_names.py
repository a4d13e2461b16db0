"""Stored names, original and MLX, to the canonical tensor that each is a piece of."""

import pytest

from hermitcrab.models.qwen4_exp.config import parse_config
from hermitcrab.models.qwen4_exp.names import (
    Field,
    Half,
    Piece,
    expected_tensors,
    is_centred_norm,
    is_derived,
    is_mlx_name,
    is_vision,
    read_name,
)
from hermitcrab.models.qwen4_exp.tiny import tiny_config

EXPERTS = "layers.3.mlp.experts"
TABLE = "layers.1.ple.ple_embedding.ngram_embedding"


@pytest.mark.parametrize(
    ("stored", "piece"),
    [
        ("model.language_model.embed_tokens.weight", Piece("embed_tokens.weight")),
        ("model.embed_tokens.weight", Piece("embed_tokens.weight")),
        ("language_model.model.embed_tokens.weight", Piece("embed_tokens.weight")),
        ("lm_head.weight", Piece("lm_head.weight")),
        ("language_model.lm_head.weight", Piece("lm_head.weight")),
        ("language_model.lm_head.scales", Piece("lm_head.weight", field=Field.SCALES)),
        ("mtp.fc_hidden.weight", Piece("mtp.fc_hidden.weight")),
        ("language_model.mtp.fc_hidden.biases", Piece("mtp.fc_hidden.weight", field=Field.BIASES)),
        ("model.layers.0.linear_attn.A_log", Piece("layers.0.linear_attn.A_log")),
        (f"model.language_model.{EXPERTS}.gate_up_proj", Piece(f"{EXPERTS}.gate_up_proj")),
        (f"model.{EXPERTS}.down_proj", Piece(f"{EXPERTS}.down_proj")),
        (f"model.{EXPERTS}.11.gate_proj.weight", Piece(f"{EXPERTS}.gate_up_proj", Half.GATE, expert=11)),
        (f"model.{EXPERTS}.0.up_proj.weight", Piece(f"{EXPERTS}.gate_up_proj", Half.UP, expert=0)),
        (f"mtp.{EXPERTS}.2.down_proj.weight", Piece(f"mtp.{EXPERTS}.down_proj", expert=2)),
        (
            "language_model.model.layers.3.mlp.switch_mlp.up_proj.scales",
            Piece(f"{EXPERTS}.gate_up_proj", Half.UP, field=Field.SCALES),
        ),
        (
            "language_model.model.layers.3.mlp.switch_mlp.down_proj.weight",
            Piece(f"{EXPERTS}.down_proj"),
        ),
        (f"model.language_model.{TABLE}.shard_127.weight", Piece(f"{TABLE}.weight", row_shard=127)),
        (
            f"language_model.model.{TABLE}.shards.5.biases",
            Piece(f"{TABLE}.weight", row_shard=5, field=Field.BIASES),
        ),
        (
            "model.layers.3.mlp.shared_expert.gate_proj.weight",
            Piece("layers.3.mlp.shared_expert.gate_proj.weight"),
        ),
    ],
)
def test_a_stored_name_is_a_piece_of_its_canonical_tensor(stored: str, piece: Piece) -> None:
    assert read_name(stored) == piece


def test_a_canonical_name_is_a_piece_of_itself() -> None:
    names = expected_tensors(parse_config(tiny_config()))
    assert [read_name(name) for name in names] == [Piece(name) for name in names]


@pytest.mark.parametrize(
    "stored",
    ["model.visual.blocks.0.attn.qkv.weight", "vision_tower.patch_embed.proj.weight", "visual.x.bias"],
)
def test_vision_tensors_are_told_apart(stored: str) -> None:
    assert is_vision(stored)


def test_language_tensors_are_not_vision() -> None:
    assert not is_vision("model.language_model.embed_tokens.weight")


def test_saved_rotary_frequencies_are_derived() -> None:
    assert is_derived("model.language_model.rotary_emb.inv_freq")


@pytest.mark.parametrize(
    ("stored", "is_mlx"),
    [
        ("language_model.lm_head.weight", True),
        ("model.layers.0.mlp.switch_mlp.up_proj.weight", True),
        ("model.layers.0.self_attn.q_proj.scales", True),
        ("model.language_model.layers.0.self_attn.q_proj.weight", False),
        ("mtp.fc_hidden.weight", False),
    ],
)
def test_mlx_names_are_told_from_original_ones(stored: str, is_mlx: bool) -> None:
    assert is_mlx_name(stored) == is_mlx


def test_deltanets_gated_norm_is_the_only_norm_that_is_not_centred() -> None:
    names = expected_tensors(parse_config(tiny_config()))
    # every norm's module is named norm, or has norm in its last part
    norms = {name for name in names if "norm" in name.rsplit(".", 2)[-2]}
    gated = {name for name in norms if name.endswith("linear_attn.norm.weight")}
    assert gated == {f"layers.{layer}.linear_attn.norm.weight" for layer in range(3)}
    assert {name for name in names if is_centred_norm(name)} == norms - gated


def test_the_draft_head_has_its_31_tensors() -> None:
    names = expected_tensors(parse_config(tiny_config()))
    assert len([name for name in names if name.startswith("mtp.")]) == 31


def test_one_fc_hidden_serves_every_residual_stream() -> None:
    assert expected_tensors(parse_config(tiny_config()))["mtp.fc_hidden.weight"] == (128, 128)


def test_a_tied_head_is_not_expected() -> None:
    assert "lm_head.weight" not in expected_tensors(parse_config(tiny_config(tie_word_embeddings=True)))
