"""A directory is described from its config and headers alone."""

from math import prod
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from hermitcrab.errors import CheckpointError
from hermitcrab.models.qwen4_exp.checkpoint import describe_checkpoint
from hermitcrab.models.qwen4_exp.config import parse_config
from hermitcrab.models.qwen4_exp.names import expected_tensors
from hermitcrab.models.qwen4_exp.tiny import Layout, tiny_config, write_tiny


def expected_params() -> dict[str, int]:
    counts = {"body": 0, "ngram": 0, "mtp": 0}
    for name, shape in expected_tensors(parse_config(tiny_config())).items():
        kind = "mtp" if name.startswith("mtp.") else "ngram" if "ngram_embedding" in name else "body"
        counts[kind] += prod(shape)
    return counts


@pytest.mark.parametrize(
    ("layout", "bits"),
    [(Layout.ORIGINAL, None), (Layout.PER_EXPERT, None), (Layout.MLX, None), (Layout.MLX, 6)],
)
def test_parameters_are_counted_the_same_in_every_layout(
    tmp_path: Path, layout: Layout, bits: int | None
) -> None:
    write_tiny(tmp_path, layout=layout, bits=bits)
    info = describe_checkpoint(tmp_path)
    counted = {"body": info.body_params, "ngram": info.ngram_params, "mtp": info.mtp_params}
    assert counted == expected_params()


@pytest.mark.parametrize(
    ("layout", "word"), [(Layout.ORIGINAL, "original"), (Layout.PER_EXPERT, "original"), (Layout.MLX, "MLX")]
)
def test_the_layout_is_named(tmp_path: Path, layout: Layout, word: str) -> None:
    write_tiny(tmp_path, layout=layout)
    assert describe_checkpoint(tmp_path).layout == word


def test_the_models_numbers_are_told(tmp_path: Path) -> None:
    write_tiny(tmp_path)
    info = describe_checkpoint(tmp_path)
    assert info.layers == {"gated deltanet": 3, "sparse attention": 1}
    assert (info.experts, info.experts_per_token) == (8, 2)
    assert (info.vocab_tokens, info.context_tokens, info.eos_ids) == (512, 4096, (2, 3))


def test_bytes_on_disk_are_those_of_the_weight_files(tmp_path: Path) -> None:
    write_tiny(tmp_path, shards=3)
    files = sum(path.stat().st_size for path in tmp_path.glob("*.safetensors"))
    assert describe_checkpoint(tmp_path).disk_bytes == files


def test_formats_are_listed_with_parameters_and_bytes(tmp_path: Path) -> None:
    write_tiny(tmp_path, layout=Layout.MLX, bits=6, dtype=torch.bfloat16)
    shares = {share.kind: share for share in describe_checkpoint(tmp_path).formats}
    assert set(shares) == {"6-bit in groups of 32", "8-bit in groups of 32", "bfloat16"}
    six = shares["6-bit in groups of 32"]
    # 6 bits, and 32 of scale and bias for 32 values: 7 bits a value
    assert six.size_bytes == six.params * 7 // 8


def test_a_whole_checkpoint_has_no_problem(tmp_path: Path) -> None:
    write_tiny(tmp_path)
    info = describe_checkpoint(tmp_path)
    assert (info.has_draft_head, info.missing, info.problem) == (True, (), None)


def test_a_checkpoint_without_draft_tensors_says_so(tmp_path: Path) -> None:
    write_tiny(tmp_path, mtp=False)
    info = describe_checkpoint(tmp_path)
    assert (info.has_draft_head, info.mtp_params, info.problem) == (False, 0, None)


def test_what_is_missing_is_listed_and_is_the_problem(tmp_path: Path) -> None:
    write_tiny(tmp_path)
    stored = load_file(tmp_path / "model.safetensors")
    del stored["lm_head.weight"]
    save_file(stored, tmp_path / "model.safetensors")
    info = describe_checkpoint(tmp_path)
    assert info.missing == ("lm_head.weight",)
    assert info.problem == (
        f"{tmp_path} lacks tensors of the model that its config describes: lm_head.weight."
    )


def test_the_vision_tower_is_counted_apart(tmp_path: Path) -> None:
    write_tiny(tmp_path)
    stored = load_file(tmp_path / "model.safetensors")
    stored["model.visual.patch_embed.proj.weight"] = torch.ones(4, 6)
    save_file(stored, tmp_path / "model.safetensors")
    info = describe_checkpoint(tmp_path)
    assert (info.vision_params, info.body_params) == (24, expected_params()["body"])


def test_a_quantized_vision_tower_is_counted_by_its_values(tmp_path: Path) -> None:
    write_tiny(tmp_path, layout=Layout.MLX, bits=6)
    stored = load_file(tmp_path / "model.safetensors")
    stored["vision_tower.proj.weight"] = torch.ones(4, 12, dtype=torch.uint32)
    stored["vision_tower.proj.scales"] = torch.ones(4, 2)
    stored["vision_tower.proj.biases"] = torch.ones(4, 2)
    save_file(stored, tmp_path / "model.safetensors")
    assert describe_checkpoint(tmp_path).vision_params == 4 * 64


def test_a_directory_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="so it is not a model directory"):
        describe_checkpoint(tmp_path)
