"""A checkpoint directory's tensors: listed from safetensors headers alone, read as views of mapped files.

The files are mapped here and not by the safetensors library because it advises the system to read ahead,
which is right for weights and wrong for a table of which a few rows a token are read.
"""

import json
import mmap
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from types import MappingProxyType

import torch

from hermitcrab.errors import CheckpointError

INDEX_FILE = "model.safetensors.index.json"

DTYPES: Mapping[str, torch.dtype] = MappingProxyType(
    {
        "F64": torch.float64,
        "F32": torch.float32,
        "F16": torch.float16,
        "BF16": torch.bfloat16,
        "F8_E4M3": torch.float8_e4m3fn,
        "F8_E5M2": torch.float8_e5m2,
        "I64": torch.int64,
        "I32": torch.int32,
        "I16": torch.int16,
        "I8": torch.int8,
        "U64": torch.uint64,
        "U32": torch.uint32,
        "U16": torch.uint16,
        "U8": torch.uint8,
        "BOOL": torch.bool,
    }
)

# a file starts with its header's length, 8 bytes; the format allows no longer header than this
_LENGTH_BYTES = 8
_HEADER_LIMIT_BYTES = 100_000_000
_METADATA = "__metadata__"

# maps are private and writable, as torch wants them; without this flag Linux refuses one larger than memory.
# Python's mmap has no name for it before 3.13.
_NORESERVE = 0x4000 if sys.platform == "linux" else 0


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor as its file's header describes it; its values start at byte `offset` of the file."""

    name: str
    file: Path
    dtype: torch.dtype
    shape: tuple[int, ...]
    offset: int

    @property
    def size_bytes(self) -> int:
        """Bytes of the values in the file."""
        return prod(self.shape) * self.dtype.itemsize


class Shards:
    """A directory's tensors; each file is mapped at its first read, until this and its last tensor go."""

    def __init__(self, directory: Path, stored: dict[str, StoredTensor]) -> None:
        self.directory = directory
        self.stored: Mapping[str, StoredTensor] = MappingProxyType(stored)
        self._maps: dict[Path, mmap.mmap] = {}

    @classmethod
    def open(cls, directory: Path) -> "Shards":
        """List a directory: the files its index names, or every *.safetensors in it where there is no index.

        Raises CheckpointError for a missing directory, no weights, an index or header that cannot
        be read, a missing or torn file, and a tensor that two files hold.
        """
        if not directory.is_dir():
            raise CheckpointError(f"There is no directory {directory}.")
        indexed = _read_index(directory / INDEX_FILE)
        paths = [directory / name for name in sorted(set(indexed.values()))]
        paths = paths or sorted(directory.glob("*.safetensors"))
        if not paths:
            raise CheckpointError(f"{directory} has no *.safetensors file, so there are no weights to read.")
        stored: dict[str, StoredTensor] = {}
        for path in paths:
            for entry in _list_file(path):
                if entry.name in stored:
                    first = stored[entry.name].file.name
                    raise CheckpointError(f"{directory}: both {first} and {path.name} hold {entry.name}.")
                stored[entry.name] = entry
        for name, file_name in indexed.items():
            if name not in stored:
                raise CheckpointError(
                    f"{directory}: {INDEX_FILE} says that {file_name} holds {name}, but it does not."
                )
        return cls(directory, stored)

    @property
    def size_bytes(self) -> int:
        """Bytes of all weight files on disk."""
        return sum(path.stat().st_size for path in {entry.file for entry in self.stored.values()})

    def read(self, name: str, *, is_scattered: bool = False) -> torch.Tensor:
        """The tensor's values as a view of the mapped file: nothing is read from disk until they are used.

        `is_scattered` tells the system that few rows at a time will be read, so that it reads
        nothing ahead. Writing to the view never changes the file.
        """
        entry = self.stored[name]
        if entry.size_bytes == 0:
            return torch.empty(entry.shape, dtype=entry.dtype)
        mapped = self._map(entry.file)
        if is_scattered and hasattr(mmap, "MADV_RANDOM"):
            start = entry.offset // mmap.PAGESIZE * mmap.PAGESIZE
            mapped.madvise(mmap.MADV_RANDOM, start, entry.offset + entry.size_bytes - start)
        values = torch.frombuffer(mapped, dtype=entry.dtype, count=prod(entry.shape), offset=entry.offset)
        return values.view(entry.shape)

    def _map(self, path: Path) -> mmap.mmap:
        if path not in self._maps:
            with path.open("rb") as file:
                flags = mmap.MAP_PRIVATE | _NORESERVE
                prot = mmap.PROT_READ | mmap.PROT_WRITE
                self._maps[path] = mmap.mmap(file.fileno(), 0, flags=flags, prot=prot)
        return self._maps[path]


def _read_index(path: Path) -> dict[str, str]:
    """Tensor name to file name; empty where there is no index."""
    if not path.exists():
        return {}
    try:
        index = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read as JSON: {error}.") from error
    names = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(names, dict) or not names:
        raise CheckpointError(f"{path} has no weight_map that lists tensors and their files.")
    for tensor, file_name in names.items():
        if not isinstance(file_name, str) or Path(file_name).name != file_name:
            raise CheckpointError(f"{path}: {tensor} must name a file beside the index, not {file_name!r}.")
    return names


def _list_file(path: Path) -> Iterator[StoredTensor]:
    """The tensors of one file, after checking that the file holds all the bytes that its header describes."""
    if not path.is_file():
        raise CheckpointError(f"{path.parent}: {INDEX_FILE} names {path.name}, but there is no such file.")
    header, data_start = _read_header(path)
    described = data_start
    for name, entry in header.items():
        if name == _METADATA:
            continue
        stored, end = _read_entry(path, name, entry, data_start)
        described = max(described, end)
        yield stored
    size_bytes = path.stat().st_size
    if described != size_bytes:
        raise CheckpointError(
            f"{path} is torn: it has {size_bytes} bytes, but its header describes {described}. Copy it again."
        )


def _read_header(path: Path) -> tuple[dict[str, object], int]:
    """The header's JSON object, and the byte at which the values start."""
    try:
        with path.open("rb") as file:
            start = file.read(_LENGTH_BYTES)
            if start == b"version ":
                raise CheckpointError(
                    f"{path} is a Git LFS pointer, not the weights: run `git lfs pull` there."
                )
            length = int.from_bytes(start, "little")
            text = file.read(length) if length <= _HEADER_LIMIT_BYTES else b""
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error}.") from error
    if len(start) < _LENGTH_BYTES or len(text) < length:
        raise CheckpointError(f"{path} is no safetensors file, or ends within its header. Copy it again.")
    try:
        header = json.loads(text)
    except ValueError as error:
        raise CheckpointError(f"{path} has a header that is no JSON ({error}). Copy it again.") from error
    if not isinstance(header, dict):
        raise CheckpointError(f"{path} has a header that is no JSON object. Copy it again.")
    return header, _LENGTH_BYTES + length


def _read_entry(path: Path, name: str, entry: object, data_start: int) -> tuple[StoredTensor, int]:
    """One tensor of a header, and the byte after its values."""
    match entry:
        case {"dtype": str(word), "shape": [*shape], "data_offsets": [int(begin), int(end)]} if all(
            isinstance(length, int) and length >= 0 for length in shape
        ):
            if word not in DTYPES:
                raise CheckpointError(
                    f"{path}: {name} has the data type {word}, which this server cannot read."
                )
            stored = StoredTensor(name, path, DTYPES[word], tuple(shape), data_start + begin)
            if begin >= 0 and end - begin == stored.size_bytes:
                return stored, data_start + end
    raise CheckpointError(f"{path} has a header whose entry for {name} is wrong: {entry}. Copy it again.")
