"""Every layout of one model loads to the same canonical tensors."""

import json
import logging
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from hermitcrab.models.qwen4_exp.checkpoint import Checkpoint, load_checkpoint
from hermitcrab.models.qwen4_exp.names import is_centred_norm, ngram_table
from hermitcrab.models.qwen4_exp.tiny import SHAPES, Layout, tiny_config, write_tiny
from hermitcrab.weights.affine import BITS, AffineFormat, AffineWeight
from hermitcrab.weights.shards import Shards

torch.set_num_threads(1)

TABLE = "layers.1.ple.ple_embedding.ngram_embedding.weight"


def dense(weight: Tensor | AffineWeight) -> Tensor:
    return weight.dequantize(torch.float32) if isinstance(weight, AffineWeight) else weight


def all_values(checkpoint: Checkpoint) -> dict[str, Tensor]:
    values = {name: dense(weight) for name, weight in checkpoint.tensors.items()}
    if checkpoint.ngram is not None:
        assert checkpoint.config.ngram is not None
        rows = torch.arange(checkpoint.ngram.rows)
        values[ngram_table(checkpoint.config.ngram)] = checkpoint.ngram.gather(rows, torch.float32)
    return values


def assert_same(values: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert values.keys() == expected.keys()
    assert [name for name in expected if not torch.equal(values[name], expected[name])] == []


@pytest.mark.parametrize("layout", Layout)
@pytest.mark.parametrize("shards", [1, 3])
def test_a_plain_checkpoint_loads_to_what_was_written(tmp_path: Path, layout: Layout, shards: int) -> None:
    written = write_tiny(tmp_path, layout=layout, shards=shards)
    assert_same(all_values(load_checkpoint(tmp_path)), written)


@pytest.mark.parametrize("layout", Layout)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_tiny_shape_loads_to_what_was_written(tmp_path: Path, layout: Layout, shape: str) -> None:
    written = write_tiny(tmp_path, layout=layout, config=tiny_config(**SHAPES[shape]))
    checkpoint = load_checkpoint(tmp_path)
    if checkpoint.config.is_head_tied:
        written["lm_head.weight"] = written["embed_tokens.weight"]
    assert_same(all_values(checkpoint), written)


def test_a_wide_checkpoint_is_quantized_in_groups_of_128_throughout(tmp_path: Path) -> None:
    config = tiny_config(**SHAPES["wide"])
    write_tiny(tmp_path, layout=Layout.MLX, config=config, bits=8, group_size=128)
    kinds = {share.kind for share in load_checkpoint(tmp_path).formats}
    assert kinds == {"8-bit in groups of 128", "float32"}


@pytest.mark.parametrize("layout", Layout)
def test_bfloat16_is_kept(tmp_path: Path, layout: Layout) -> None:
    write_tiny(tmp_path, layout=layout, dtype=torch.bfloat16)
    assert {dense(weight).dtype for weight in load_checkpoint(tmp_path).tensors.values()} == {torch.bfloat16}


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("group_size", [32, 64, 128])
def test_a_quantized_checkpoint_loads_to_what_was_written_within_two_steps(
    tmp_path: Path, bits: int, group_size: int
) -> None:
    written = write_tiny(tmp_path, layout=Layout.MLX, bits=bits, group_size=group_size)
    values = all_values(load_checkpoint(tmp_path))
    assert values.keys() == written.keys()
    # a group spans at most twice its largest magnitude, over 2**bits - 1 steps; bfloat16 scales add a part
    allowed = 2 * 2 / ((1 << bits) - 1) + 0.02
    far = [
        name
        for name, value in written.items()
        if float((values[name] - value).abs().max()) > allowed * float(value.abs().max())
    ]
    assert far == []


def test_overrides_give_a_module_its_own_format(tmp_path: Path) -> None:
    write_tiny(tmp_path, layout=Layout.MLX, bits=6, group_size=64)
    tensors = load_checkpoint(tmp_path).tensors
    formats = {
        name: weight.format
        for name, weight in tensors.items()
        if name.startswith("layers.0.") and isinstance(weight, AffineWeight)
    }
    assert formats["layers.0.mlp.experts.down_proj"] == AffineFormat(6, 64)
    assert formats["layers.0.mlp.shared_expert_gate.weight"] == AffineFormat(8, 64)
    assert formats["layers.0.attn_hyper_connection.input_mix_weight_up.weight"] == AffineFormat(6, 32)
    assert "layers.0.mlp.gate.weight" not in formats


def test_quantized_gate_and_up_are_joined_and_stay_quantized(tmp_path: Path) -> None:
    write_tiny(tmp_path, layout=Layout.MLX, bits=6)
    fused = load_checkpoint(tmp_path).tensors["layers.0.mlp.experts.gate_up_proj"]
    shards = Shards.open(tmp_path)
    stacks = [
        shards.read(f"language_model.model.layers.0.mlp.switch_mlp.{half}_proj.weight")
        for half in ("gate", "up")
    ]
    assert isinstance(fused, AffineWeight)
    assert fused.shape == (8, 128, 128)
    assert torch.equal(fused.words, torch.cat(stacks, dim=1))


def test_gate_and_up_of_different_formats_are_joined_dequantized(tmp_path: Path) -> None:
    write_tiny(tmp_path / "six", layout=Layout.MLX, bits=6)
    write_tiny(tmp_path / "four", layout=Layout.MLX, bits=4)
    module = "language_model.model.layers.0.mlp.switch_mlp.up_proj"
    stored = load_file(tmp_path / "six" / "model.safetensors")
    other = load_file(tmp_path / "four" / "model.safetensors")
    stored |= {name: value for name, value in other.items() if name.startswith(module)}
    save_file(stored, tmp_path / "six" / "model.safetensors")
    config = json.loads((tmp_path / "six" / "config.json").read_text())
    config["quantization"][module] = {"bits": 4, "group_size": 32}
    (tmp_path / "six" / "config.json").write_text(json.dumps(config))
    name = "layers.0.mlp.experts.gate_up_proj"
    six, four = (dense(load_checkpoint(tmp_path / bits).tensors[name]) for bits in ("six", "four"))
    assert not torch.equal(six[:, 64:], dense(load_checkpoint(tmp_path / "four").tensors[name])[:, :64])
    assert torch.equal(six[:, 64:], four[:, 64:].to(six.dtype))


def test_norms_stored_as_gains_around_one_are_read_centred(tmp_path: Path) -> None:
    written = write_tiny(tmp_path, layout=Layout.MLX, is_norm_around_one=True)
    tensors = load_checkpoint(tmp_path).tensors
    norms = [name for name in written if is_centred_norm(name)]
    # 1 + weight was rounded to fp32 when it was written
    assert all(torch.equal(dense(tensors[name]), (written[name] + 1.0) - 1.0) for name in norms)


def test_deltanets_gated_norm_is_never_shifted(tmp_path: Path) -> None:
    written = write_tiny(tmp_path, layout=Layout.MLX, is_norm_around_one=True)
    name = "layers.0.linear_attn.norm.weight"
    assert torch.equal(dense(load_checkpoint(tmp_path).tensors[name]), written[name])


@pytest.mark.parametrize(("is_norm_around_one", "lines"), [(True, 1), (False, 0)])
def test_shifted_norms_are_said_in_one_log_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_norm_around_one: bool, lines: int
) -> None:
    write_tiny(tmp_path, layout=Layout.MLX, is_norm_around_one=is_norm_around_one)
    with caplog.at_level(logging.INFO):
        load_checkpoint(tmp_path)
    sentence = f"{tmp_path} stores norm gains around 1; they are read as 1 + weight"
    assert caplog.messages == [sentence] * lines


def test_a_checkpoint_without_draft_tensors_has_no_draft_head(tmp_path: Path) -> None:
    written = write_tiny(tmp_path, mtp=False)
    checkpoint = load_checkpoint(tmp_path)
    assert checkpoint.config.mtp_layers == 0
    assert_same(all_values(checkpoint), written)


def test_draft_tensors_that_the_config_rules_out_are_left_alone(tmp_path: Path) -> None:
    write_tiny(tmp_path)
    write_json_field(tmp_path, "mtp_num_hidden_layers", 0)
    checkpoint = load_checkpoint(tmp_path)
    assert not any(name.startswith("mtp.") for name in checkpoint.tensors)


def write_json_field(directory: Path, field: str, value: object) -> None:
    config = json.loads((directory / "config.json").read_text())
    config["text_config"][field] = value
    (directory / "config.json").write_text(json.dumps(config))


def test_vision_tensors_are_left_alone(tmp_path: Path) -> None:
    written = write_tiny(tmp_path)
    stored = load_file(tmp_path / "model.safetensors")
    stored["model.visual.patch_embed.proj.weight"] = torch.ones(4, 4)
    save_file(stored, tmp_path / "model.safetensors")
    assert_same(all_values(load_checkpoint(tmp_path)), written)


def test_a_tied_head_is_the_embedding(tmp_path: Path) -> None:
    write_tiny(tmp_path, config=tiny_config(tie_word_embeddings=True))
    tensors = load_checkpoint(tmp_path).tensors
    assert tensors["lm_head.weight"] is tensors["embed_tokens.weight"]


def test_a_model_without_ngrams_has_no_table(tmp_path: Path) -> None:
    written = write_tiny(tmp_path, config=tiny_config(ple_layer_ids=[]))
    checkpoint = load_checkpoint(tmp_path)
    assert checkpoint.ngram is None
    assert_same(all_values(checkpoint), written)


def test_an_unsplit_ngram_table_is_read_too(tmp_path: Path) -> None:
    written = write_tiny(tmp_path)
    stored = load_file(tmp_path / "model.safetensors")
    shards = [name for name in stored if "ngram_embedding.shard_" in name]
    for name in shards:
        del stored[name]
    stored[f"model.language_model.{TABLE}"] = written[TABLE]
    save_file(stored, tmp_path / "model.safetensors")
    assert_same(all_values(load_checkpoint(tmp_path)), written)


def test_a_checkpoint_without_stored_hash_constants_loads(tmp_path: Path) -> None:
    written = write_tiny(tmp_path)
    stored = load_file(tmp_path / "model.safetensors")
    for name in [name for name in stored if stored[name].dtype == torch.int64]:
        del stored[name]
    save_file(stored, tmp_path / "model.safetensors")
    assert_same(all_values(load_checkpoint(tmp_path)), written)


def test_eos_ids_come_from_both_files(tmp_path: Path) -> None:
    write_tiny(tmp_path)
    assert load_checkpoint(tmp_path).eos_ids == {2, 3}


def test_progress_only_grows_and_ends_at_the_whole(tmp_path: Path) -> None:
    write_tiny(tmp_path, layout=Layout.MLX, bits=6)
    told: list[tuple[int, int]] = []
    load_checkpoint(tmp_path, progress=lambda done, total: told.append((done, total)))
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert told[-1] == (told[0][1], told[0][1])


def test_a_plain_weight_is_a_view_of_its_mapped_file(tmp_path: Path) -> None:
    write_tiny(tmp_path)
    tensors = load_checkpoint(tmp_path).tensors
    stored = Shards.open(tmp_path).stored
    names = ("layers.0.linear_attn.out_proj.weight", "layers.2.mlp.experts.down_proj")
    first, second = (stored[f"model.language_model.{name}"].offset for name in names)
    addresses = [dense(tensors[name]).data_ptr() for name in names]
    assert addresses[1] - addresses[0] == second - first


def test_the_summary_of_formats_names_the_largest_first(tmp_path: Path) -> None:
    write_tiny(tmp_path, layout=Layout.MLX, bits=6, dtype=torch.bfloat16)
    kinds = [share.kind for share in load_checkpoint(tmp_path).formats]
    assert kinds == ["6-bit in groups of 32", "bfloat16", "8-bit in groups of 32"]
