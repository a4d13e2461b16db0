"""Shards list a directory from headers, read views of mapped files, and refuse broken ones in a sentence."""

import json
import re
import struct
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from hermitcrab.errors import CheckpointError
from hermitcrab.weights.shards import INDEX_FILE, Shards


def write_index(directory: Path, weight_map: object) -> None:
    (directory / INDEX_FILE).write_text(json.dumps({"weight_map": weight_map}))


def write_raw(path: Path, header: object, body: bytes = b"") -> None:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def refusal(directory: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        Shards.open(directory)
    return str(caught.value)


@pytest.mark.parametrize(
    "dtype",
    [torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.uint32, torch.uint8, torch.bool],
    ids=str,
)
def test_a_tensor_reads_as_the_safetensors_library_wrote_it(tmp_path: Path, dtype: torch.dtype) -> None:
    value = torch.arange(24).reshape(2, 3, 4).to(dtype)
    save_file({"first": torch.ones(3), "value": value}, tmp_path / "model.safetensors")
    read = Shards.open(tmp_path).read("value")
    assert read.dtype == dtype
    assert torch.equal(read, value)


def test_listing_gives_shape_type_file_and_bytes(tmp_path: Path) -> None:
    save_file({"value": torch.zeros(4, 6, dtype=torch.bfloat16)}, tmp_path / "model.safetensors")
    entry = Shards.open(tmp_path).stored["value"]
    assert (entry.shape, entry.dtype, entry.file.name, entry.size_bytes) == (
        (4, 6),
        torch.bfloat16,
        "model.safetensors",
        48,
    )


def test_scalars_and_empty_tensors_read_too(tmp_path: Path) -> None:
    save_file({"scalar": torch.tensor(7.0), "empty": torch.zeros(0, 5)}, tmp_path / "model.safetensors")
    shards = Shards.open(tmp_path)
    assert shards.read("scalar").item() == 7.0
    assert shards.read("empty").shape == (0, 5)


def test_without_an_index_every_weight_file_is_listed(tmp_path: Path) -> None:
    save_file({"a": torch.ones(1)}, tmp_path / "one.safetensors")
    save_file({"b": torch.ones(1)}, tmp_path / "two.safetensors")
    assert set(Shards.open(tmp_path).stored) == {"a", "b"}


def test_with_an_index_only_its_files_are_listed(tmp_path: Path) -> None:
    save_file({"a": torch.ones(1)}, tmp_path / "one.safetensors")
    save_file({"b": torch.ones(1)}, tmp_path / "other.safetensors")
    write_index(tmp_path, {"a": "one.safetensors"})
    assert set(Shards.open(tmp_path).stored) == {"a"}


def test_two_reads_of_one_tensor_share_the_mapped_bytes(tmp_path: Path) -> None:
    save_file({"value": torch.randn(1000)}, tmp_path / "model.safetensors")
    shards = Shards.open(tmp_path)
    assert shards.read("value").data_ptr() == shards.read("value").data_ptr()


def test_tensors_of_a_file_lie_in_memory_as_far_apart_as_in_the_file(tmp_path: Path) -> None:
    save_file({"a": torch.randn(1000), "b": torch.randn(1000)}, tmp_path / "model.safetensors")
    shards = Shards.open(tmp_path)
    apart = shards.read("b").data_ptr() - shards.read("a").data_ptr()
    assert apart == shards.stored["b"].offset - shards.stored["a"].offset


def test_a_file_larger_than_memory_can_be_read_in_part(tmp_path: Path) -> None:
    size_bytes = 1 << 40
    header = {"value": {"dtype": "U8", "shape": [size_bytes], "data_offsets": [0, size_bytes]}}
    path = tmp_path / "model.safetensors"
    write_raw(path, header)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size + size_bytes)
    assert Shards.open(tmp_path).read("value", is_scattered=True)[size_bytes - 1].item() == 0


def test_writing_to_a_view_leaves_the_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"value": torch.ones(4)}, path)
    before = path.read_bytes()
    Shards.open(tmp_path).read("value").zero_()
    assert path.read_bytes() == before


def test_a_tensor_outlives_the_shards_it_was_read_from(tmp_path: Path) -> None:
    save_file({"value": torch.arange(5.0)}, tmp_path / "model.safetensors")
    value = Shards.open(tmp_path).read("value")
    assert value.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_a_header_of_odd_length_is_read(tmp_path: Path) -> None:
    value = torch.arange(5.0)
    text = json.dumps({"value": {"dtype": "F32", "shape": [5], "data_offsets": [0, 20]}}).encode()
    text += b" " * (1 - len(text) % 2)
    write_raw(tmp_path / "model.safetensors", text, value.numpy().tobytes())
    assert torch.equal(Shards.open(tmp_path).read("value"), value)


def test_a_missing_directory_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path / "none") == f"There is no directory {tmp_path / 'none'}."


def test_a_directory_without_weights_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path) == f"{tmp_path} has no *.safetensors file, so there are no weights to read."


def test_an_index_that_names_a_missing_file_is_refused(tmp_path: Path) -> None:
    write_index(tmp_path, {"a": "gone.safetensors"})
    assert refusal(tmp_path) == f"{tmp_path}: {INDEX_FILE} names gone.safetensors, but there is no such file."


def test_an_index_that_names_a_tensor_its_file_lacks_is_refused(tmp_path: Path) -> None:
    save_file({"a": torch.ones(1)}, tmp_path / "one.safetensors")
    write_index(tmp_path, {"a": "one.safetensors", "b": "one.safetensors"})
    assert (
        refusal(tmp_path) == f"{tmp_path}: {INDEX_FILE} says that one.safetensors holds b, but it does not."
    )


def test_an_index_that_points_outside_its_directory_is_refused(tmp_path: Path) -> None:
    write_index(tmp_path, {"a": "../one.safetensors"})
    assert "a must name a file beside the index, not '../one.safetensors'" in refusal(tmp_path)


def test_an_index_that_is_no_json_is_refused(tmp_path: Path) -> None:
    (tmp_path / INDEX_FILE).write_text("{")
    assert f"{tmp_path / INDEX_FILE} cannot be read as JSON" in refusal(tmp_path)


@pytest.mark.parametrize("index", ["[]", "{}", '{"weight_map": {}}', '{"weight_map": []}'])
def test_an_index_without_a_weight_map_is_refused(tmp_path: Path, index: str) -> None:
    (tmp_path / INDEX_FILE).write_text(index)
    assert "has no weight_map that lists tensors and their files" in refusal(tmp_path)


def test_a_tensor_in_two_files_is_refused(tmp_path: Path) -> None:
    save_file({"a": torch.ones(1)}, tmp_path / "one.safetensors")
    save_file({"a": torch.ones(1)}, tmp_path / "two.safetensors")
    assert refusal(tmp_path) == f"{tmp_path}: both one.safetensors and two.safetensors hold a."


def test_a_truncated_file_is_refused_with_both_sizes(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"a": torch.ones(100)}, path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-40])
    assert refusal(tmp_path) == (
        f"{path} is torn: it has {len(whole) - 40} bytes, "
        f"but its header describes {len(whole)}. Copy it again."
    )


@pytest.mark.parametrize("kept_bytes", [0, 3, 8, 30])
def test_a_file_that_ends_within_its_header_is_refused(tmp_path: Path, kept_bytes: int) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"a": torch.ones(100)}, path)
    path.write_bytes(path.read_bytes()[:kept_bytes])
    assert refusal(tmp_path) == f"{path} is no safetensors file, or ends within its header. Copy it again."


@pytest.mark.parametrize("header", [b"{nonsense", b"[]", b"\xff\xfe"])
def test_a_corrupt_header_is_refused(tmp_path: Path, header: bytes) -> None:
    write_raw(tmp_path / "model.safetensors", header)
    assert re.search(r"has a header that is no JSON.*Copy it again\.", refusal(tmp_path))


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [2], "data_offsets": [-8, 0]},
        {"dtype": "F32", "shape": [-2], "data_offsets": [8, 0]},
        {"dtype": "F32", "shape": [2]},
        {"dtype": "F32", "shape": "2", "data_offsets": [0, 8]},
        "F32",
    ],
)
def test_a_header_entry_that_contradicts_itself_is_refused(tmp_path: Path, entry: object) -> None:
    write_raw(tmp_path / "model.safetensors", {"a": entry}, bytes(8))
    assert "has a header whose entry for a is wrong" in refusal(tmp_path)


def test_an_unknown_data_type_is_refused_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    write_raw(path, {"a": {"dtype": "F4", "shape": [2], "data_offsets": [0, 1]}}, bytes(1))
    assert refusal(tmp_path) == f"{path}: a has the data type F4, which this server cannot read."


def test_a_git_lfs_pointer_is_told_apart_from_a_torn_file(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    assert refusal(tmp_path) == f"{path} is a Git LFS pointer, not the weights: run `git lfs pull` there."
