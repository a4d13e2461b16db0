"""A checkpoint directory's tensors: listed from safetensors headers alone, read as views of mapped files."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from types import MappingProxyType

import torch
from safetensors import SafetensorError, safe_open

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


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor as its file's header describes it."""

    name: str
    file: Path
    dtype: torch.dtype
    shape: tuple[int, ...]

    @property
    def size_bytes(self) -> int:
        """Bytes of the values in the file."""
        return prod(self.shape) * self.dtype.itemsize


class Shards:
    """A directory's tensors; the files stay mapped for as long as this, or a tensor read from it, lives."""

    def __init__(
        self, directory: Path, files: Mapping[Path, safe_open], stored: dict[str, StoredTensor]
    ) -> None:
        self.directory = directory
        self.stored: Mapping[str, StoredTensor] = MappingProxyType(stored)
        self._files = files

    @classmethod
    def open(cls, directory: Path) -> "Shards":
        """List a directory: the files its index names, or every *.safetensors in it where there is no index.

        Raises CheckpointError for a missing directory, no weights, an index or header that cannot
        be read, a missing or torn file, and a tensor that two files hold.
        """
        if not directory.is_dir():
            raise CheckpointError(f"There is no directory {directory}.")
        indexed = _read_index(directory / INDEX_FILE)
        paths = [directory / name for name in sorted(set(indexed.values()))] or sorted(
            directory.glob("*.safetensors")
        )
        if not paths:
            raise CheckpointError(f"{directory} has no *.safetensors file, so there are no weights to read.")
        files: dict[Path, safe_open] = {}
        stored: dict[str, StoredTensor] = {}
        for path in paths:
            files[path] = _open_file(path)
            for entry in _list_file(path, files[path]):
                if entry.name in stored:
                    first = stored[entry.name].file.name
                    raise CheckpointError(
                        f"{directory}: both {first} and {path.name} hold the tensor {entry.name}."
                    )
                stored[entry.name] = entry
        for name, file_name in indexed.items():
            if name not in stored:
                raise CheckpointError(
                    f"{directory}: {INDEX_FILE} says that {file_name} holds {name}, but it does not."
                )
        return cls(directory, files, stored)

    @property
    def size_bytes(self) -> int:
        """Bytes of all weight files on disk."""
        return sum(path.stat().st_size for path in self._files)

    def read(self, name: str) -> torch.Tensor:
        """The tensor's values as a view of the mapped file: nothing is read from disk until they are used."""
        file = self._files[self.stored[name].file]
        tensor: torch.Tensor = file.get_tensor(name)  # type: ignore[no-untyped-call] # has no types
        return tensor


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


def _open_file(path: Path) -> safe_open:
    if not path.is_file():
        raise CheckpointError(f"{path.parent}: {INDEX_FILE} names {path.name}, but there is no such file.")
    try:
        with path.open("rb") as file:
            if file.read(24).startswith(b"version https://git-lfs"):
                raise CheckpointError(
                    f"{path} is a Git LFS pointer, not the weights: run `git lfs pull` there."
                )
        return safe_open(path, framework="pt")
    except (SafetensorError, OSError) as error:
        raise CheckpointError(
            f"{path} is not a whole safetensors file ({error}); copy or download it again."
        ) from error


def _list_file(path: Path, file: safe_open) -> list[StoredTensor]:
    entries = []
    listed: list[str] = list(file.keys())  # type: ignore[no-untyped-call] # has no types
    for name in listed:
        header = file.get_slice(name)  # type: ignore[no-untyped-call] # has no types
        word = header.get_dtype()
        if word not in DTYPES:
            raise CheckpointError(f"{path}: {name} has the data type {word}, which this server cannot read.")
        entries.append(StoredTensor(name, path, DTYPES[word], tuple(header.get_shape())))
    return entries
