"""The n-gram table: gathered rows are rows of the whole, from any number of shards, files and formats."""

import json
import struct
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import Tensor

from hermitcrab.weights.affine import BITS, AffineWeight, quantize
from hermitcrab.weights.shards import Shards
from hermitcrab.weights.table import RESIDENT_BYTES, RowTable

torch.set_num_threads(1)

ROWS, WIDTH = 50, 96
CUTS = (0, 7, 8, 31, 50)


def values() -> Tensor:
    return torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(3))


def mapped_shards(directory: Path, bits: int | None) -> list[Tensor | AffineWeight]:
    """The table cut into uneven shards, each in a file of its own, read back as views of the mapped files."""
    for index, (start, end) in enumerate(pairwise(CUTS)):
        rows = values()[start:end]
        if bits is None:
            fields = {f"{index}.words": rows.to(torch.bfloat16)}
        else:
            weight = quantize(rows, bits=bits, group_size=32)
            fields = {"words": weight.words, "scales": weight.scales, "biases": weight.biases}
            fields = {f"{index}.{name}": field for name, field in fields.items()}
        save_file(fields, directory / f"{index}.safetensors")
    stored = Shards.open(directory)
    fields_of = ("words", "scales", "biases")
    if bits is None:
        return [stored.read(f"{index}.words") for index in range(4)]
    return [
        AffineWeight(*(stored.read(f"{index}.{name}") for name in fields_of), bits=bits, group_size=32)
        for index in range(4)
    ]


def whole_of(shards: list[Tensor | AffineWeight]) -> Tensor:
    return torch.cat(
        [
            shard.dequantize(torch.float32) if isinstance(shard, AffineWeight) else shard.to(torch.float32)
            for shard in shards
        ]
    )


@pytest.mark.parametrize("bits", [None, *BITS])
@pytest.mark.parametrize("resident", [False, True])
def test_gathered_rows_are_rows_of_the_whole(tmp_path: Path, bits: int | None, resident: bool) -> None:
    shards = mapped_shards(tmp_path, bits)
    ids = torch.randint(0, ROWS, (64,), generator=torch.Generator().manual_seed(5))
    gathered = RowTable(shards, resident=resident).gather(ids, torch.float32)
    assert torch.equal(gathered, whole_of(shards)[ids])


@settings(deadline=None)
@given(ids=st.lists(st.integers(0, ROWS - 1), max_size=20))
def test_a_row_does_not_depend_on_the_rows_it_is_gathered_with(ids: list[int]) -> None:
    rows = RowTable(
        [quantize(values()[:20], bits=6, group_size=32), quantize(values()[20:], bits=6, group_size=32)]
    )
    together = rows.gather(torch.tensor(ids, dtype=torch.int64), torch.float32)
    alone = [rows.gather(torch.tensor([item]), torch.float32)[0] for item in ids]
    assert all(torch.equal(one, other) for one, other in zip(together, alone, strict=True))


@pytest.mark.parametrize("resident", [False, True])
def test_rows_come_in_the_type_asked_for_rounded_once(resident: bool) -> None:
    rows = RowTable([quantize(values(), bits=6, group_size=32)], resident=resident)
    ids = torch.arange(ROWS)
    assert torch.equal(rows.gather(ids, torch.bfloat16), rows.gather(ids, torch.float32).to(torch.bfloat16))


def test_a_mapped_table_reads_the_mapped_bytes_and_no_copy_of_them(tmp_path: Path) -> None:
    shards = mapped_shards(tmp_path, None)
    rows = RowTable(shards)
    first = shards[0]
    assert isinstance(first, Tensor)
    first[3].fill_(7.0)
    assert rows.gather(torch.tensor([3]), torch.float32).unique().tolist() == [7.0]


def test_a_resident_table_is_held_in_memory(tmp_path: Path) -> None:
    assert RowTable(mapped_shards(tmp_path, 6), resident=True).is_resident


def test_a_table_over_the_resident_limit_stays_mapped() -> None:
    one_row_too_many = torch.empty(RESIDENT_BYTES // (32 * 4) + 1, 32, dtype=torch.bfloat16)
    assert not RowTable([one_row_too_many], resident=True).is_resident


def test_a_table_is_not_resident_unless_asked() -> None:
    assert not RowTable([values()]).is_resident


@pytest.mark.parametrize("lost", [-1, ROWS])
def test_an_id_outside_the_table_is_refused(lost: int) -> None:
    with pytest.raises(IndexError, match="n-gram row ids must be from 0 to 49"):
        RowTable([values()]).gather(torch.tensor([0, lost]), torch.float32)


def test_no_ids_give_no_rows() -> None:
    assert RowTable([values()]).gather(torch.tensor([], dtype=torch.int64), torch.float32).shape == (0, WIDTH)


def test_a_file_whose_values_are_not_aligned_is_gathered_all_the_same(tmp_path: Path) -> None:
    body = values().numpy().tobytes()
    text = json.dumps({"rows": {"dtype": "F32", "shape": [ROWS, WIDTH], "data_offsets": [0, len(body)]}})
    text += " " * (1 - len(text) % 2)
    path = tmp_path / "model.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text.encode() + body)
    shard = Shards.open(tmp_path).read("rows")
    assert shard.data_ptr() % 4 != 0
    assert torch.equal(RowTable([shard]).gather(torch.tensor([49, 0]), torch.float32), values()[[49, 0]])
