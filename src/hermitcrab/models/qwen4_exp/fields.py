"""A model directory's JSON files, read field by field; refusals name field, value and what is allowed."""

import json
from collections.abc import Mapping
from pathlib import Path

from hermitcrab.errors import CheckpointError

CONFIG_FILE = "config.json"
GENERATION_FILE = "generation_config.json"


def read_json(path: Path) -> dict[str, object]:
    """The object in a JSON file.

    Raises CheckpointError if there is no such file, or if it holds something else.
    """
    if not path.parent.is_dir():
        raise CheckpointError(f"There is no directory {path.parent}.")
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{path.parent} has no {path.name}, so it is not a model directory.") from None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read as JSON: {error}.") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} must hold a JSON object, not {type(value).__name__}.")
    return value


class Fields:
    """One JSON object of a config file; each reader checks its field and names it when it refuses."""

    def __init__(self, values: Mapping[str, object], where: str = CONFIG_FILE) -> None:
        self._values = values
        self._where = where

    def has(self, name: str) -> bool:
        return self._values.get(name) is not None

    def get(self, name: str, default: object) -> object:
        value = self._values.get(name)
        return default if value is None else value

    def refusal(self, name: str, allowed: str) -> CheckpointError:
        return CheckpointError(f"{self._where}: {name} is {self._values.get(name)!r}, but {allowed}.")

    def count(self, name: str, default: int | None, *, least: int = 1) -> int:
        value = self.get(name, default)
        if value is None:
            raise CheckpointError(
                f"{self._where}: {name} is missing; it must be a whole number of at least {least}."
            )
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise self.refusal(name, f"it must be a whole number of at least {least}")
        return value

    def positive(self, name: str, default: float) -> float:
        value = self.get(name, default)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < float("inf"):
            raise self.refusal(name, "it must be a number above 0")
        return float(value)

    def choice(self, name: str, default: object, allowed: tuple[object, ...]) -> object:
        value = self.get(name, default)
        if value is None:
            raise CheckpointError(f"{self._where}: {name} is missing; it must be {either(allowed)}.")
        if value not in allowed:
            raise self.refusal(name, f"this server reads only {either(allowed)}")
        return value

    def group(self, name: str) -> "Fields":
        value = self._values.get(name)
        if not isinstance(value, dict):
            raise self.refusal(name, "it must be a JSON object")
        return Fields(value, f"{self._where} {name}")

    def counts(self, name: str) -> tuple[int, ...]:
        """A list of whole numbers above 0; a field that is absent is an empty one."""
        value = self.get(name, [])
        if not isinstance(value, list) or any(
            not isinstance(item, int) or isinstance(item, bool) or item < 1 for item in value
        ):
            raise self.refusal(name, "it must be a list of whole numbers above 0")
        return tuple(value)


def either(allowed: tuple[object, ...]) -> str:
    return " or ".join(repr(item) for item in allowed)
