"""The `quantization` table of an MLX config.json: bits and group size by module, with overrides, checked."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hermitcrab.errors import CheckpointError
from hermitcrab.weights.affine import BITS, GROUP_SIZES, AffineFormat

_SETTINGS = ("bits", "group_size", "mode")


@dataclass(frozen=True, slots=True)
class QuantizationTable:
    """Each quantized module's format: its own entry (None: it is not quantized), else the default."""

    default: AffineFormat | None
    overrides: Mapping[str, AffineFormat | None]

    def format_of(self, module: str) -> AffineFormat | None:
        """The format of a module that has scales; None if the table says that it is not quantized."""
        return self.overrides.get(module, self.default)


def read_quantization(config: Mapping[str, object], module_name: Callable[[str], str]) -> QuantizationTable:
    """The table in config.json's object; `module_name` turns its paths into the names to ask `format_of` for.

    Raises CheckpointError for a method other than MLX's affine one, and for bits or groups that cannot
    be read.
    """
    field = "quantization" if config.get("quantization") is not None else "quantization_config"
    table = config.get(field)
    if table is None:
        return QuantizationTable(None, {})
    if not isinstance(table, dict):
        raise CheckpointError(f"config.json: {field} must be a JSON object, not {table!r}.")
    if "quant_method" in table:
        raise CheckpointError(
            f"config.json: {field} says quant_method {table['quant_method']!r}, "
            "but this server reads only MLX's affine quantization and plain weights."
        )
    default = _format(field, table)
    overrides: dict[str, AffineFormat | None] = {}
    for path, entry in table.items():
        if path in _SETTINGS:
            continue
        if isinstance(entry, bool):
            overrides[module_name(path)] = default if entry else None
        elif isinstance(entry, dict):
            overrides[module_name(path)] = _format(f"{field} of {path}", entry, default)
        else:
            raise CheckpointError(
                f"config.json: {field} of {path} must be a JSON object, true or false, not {entry!r}."
            )
    return QuantizationTable(default, overrides)


def _format(where: str, entry: Mapping[str, object], default: AffineFormat | None = None) -> AffineFormat:
    mode = entry.get("mode", "affine")
    if mode != "affine":
        raise CheckpointError(f"config.json: {where} has mode {mode!r}, but this server reads only 'affine'.")
    return AffineFormat(
        bits=_allowed(where, "bits", entry.get("bits", default and default.bits), BITS),
        group_size=_allowed(
            where, "group_size", entry.get("group_size", default and default.group_size), GROUP_SIZES
        ),
    )


def _allowed(where: str, name: str, value: object, allowed: tuple[int, ...]) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value not in allowed:
        listed = ", ".join(map(str, allowed[:-1]))
        raise CheckpointError(
            f"config.json: {where} has {name} {value!r}, but it must be {listed} or {allowed[-1]}."
        )
    return value
