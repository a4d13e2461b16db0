"""Values as JSON and back, by their types: what a trail's lines are made of."""

import base64
import binascii
import sys
import zlib
from array import array
from collections.abc import Sequence
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

# prompts are long and repeat themselves; more effort would be felt by the rounds
_ZIP_LEVEL = 1


def plain(value: object) -> Any:
    """A value as JSON has it: records by field, sets sorted, an error as its name and text.

    Raises TypeError for an object that is none of these.
    """
    match value:
        case Enum():
            return value.value
        case None | bool() | int() | float() | str():
            return value
        case tuple() | list():
            return [plain(item) for item in value]
        case frozenset():
            return sorted(plain(item) for item in value)
        case Exception():
            return {"error": type(value).__name__, "says": str(value)}
    if is_dataclass(value) and not isinstance(value, type):
        return {item.name: plain(getattr(value, item.name)) for item in fields(value)}
    raise TypeError(f"a {type(value).__name__} cannot be written down")


def built(kind: Any, value: Any) -> Any:
    """The value of type `kind` that `plain` made `value` from; raises TypeError or ValueError otherwise."""
    kind = getattr(kind, "__supertype__", kind)
    origin, parts = get_origin(kind), get_args(kind)
    if origin is UnionType:
        return None if value is None else built(next(part for part in parts if part is not type(None)), value)
    if origin is tuple and parts[-1] is not Ellipsis:
        return tuple(built(part, item) for part, item in zip(parts, value, strict=True))
    if origin in (tuple, frozenset):
        return origin(built(parts[0], item) for item in value)
    if is_dataclass(kind) and isinstance(kind, type):
        return _record(kind, value)
    if isinstance(kind, type) and issubclass(kind, Enum | float):
        return kind(value)
    if not isinstance(value, kind):
        raise TypeError(f"{value!r} is no {kind.__name__}")
    return value


def _record(kind: type, value: dict[str, Any]) -> Any:
    hints = _hints(kind)
    unknown = value.keys() - hints.keys()
    if unknown:
        raise TypeError(f"{kind.__name__} has no {', '.join(sorted(unknown))}")
    missing = [
        item.name
        for item in fields(kind)
        if item.name not in value and item.default is MISSING and item.default_factory is MISSING
    ]
    if missing:
        raise TypeError(f"{kind.__name__} needs {', '.join(missing)}")
    return kind(**{name: built(hints[name], item) for name, item in value.items()})


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def packed(tokens: Sequence[int]) -> str:
    """Token ids as text: 4 little-endian bytes each, deflated, in base64."""
    return packed_bytes(_little(array("I", tokens)).tobytes())


def unpacked(text: str) -> tuple[int, ...]:
    """The token ids of `packed`. Raises ValueError for anything else."""
    return tuple(_little(array("I", unpacked_bytes(text))))


def packed_bytes(content: bytes) -> str:
    """Bytes as text: deflated, in base64."""
    return base64.b64encode(zlib.compress(content, _ZIP_LEVEL)).decode("ascii")


def unpacked_bytes(text: str) -> bytes:
    """The bytes of `packed_bytes`. Raises ValueError for anything else."""
    try:
        return zlib.decompress(base64.b64decode(text, validate=True))
    except (binascii.Error, zlib.error) as error:
        raise ValueError(f"not packed bytes: {error}") from error


def _little(tokens: "array[int]") -> "array[int]":
    if sys.byteorder == "big":
        tokens.byteswap()
    return tokens
