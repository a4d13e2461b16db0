"""`hermitcrab info PATH`: what a model directory holds, without loading it."""

import dataclasses
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hermitcrab.assemble import describe

_BYTE_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


def info_table(info: Any) -> Table:
    """A record's fields, one a line, units in words."""
    table = Table(show_header=False, box=None, pad_edge=False)
    for field in dataclasses.fields(info):
        name, shown = _shown(field.name, getattr(info, field.name))
        table.add_row(Text(name, style="dim"), Text(shown))
    return table


def _shown(name: str, value: object) -> tuple[str, str]:
    words = name.replace("_", " ")
    if isinstance(value, bool):
        return words.removeprefix("is ").removeprefix("has "), "yes" if value else "no"
    if isinstance(value, int) and name.endswith("_bytes"):
        return words.removesuffix(" bytes"), _byte_words(value)
    if isinstance(value, tuple) and value and all(dataclasses.is_dataclass(item) for item in value):
        return words, "\n".join(_record(item) for item in value)
    return words, _words(value)


def _words(value: object) -> str:
    match value:
        case None | ():
            return "none"
        case int():
            return f"{value:,}"
        case tuple():
            return ", ".join(str(item) for item in value)
        case dict():
            return ", ".join(f"{count} {kind}" for kind, count in value.items())
        case _:
            return str(value)


def _record(item: Any) -> str:
    """A record on one line: bytes as such, other numbers before their unit, the rest as they are."""
    parts: list[str] = []
    for field in dataclasses.fields(item):
        name, shown = _shown(field.name, getattr(item, field.name))
        is_count = isinstance(getattr(item, field.name), int) and not field.name.endswith("_bytes")
        parts.append(f"{shown} {name}" if is_count else shown)
    return ", ".join(parts)


def _byte_words(count: float) -> str:
    for unit in _BYTE_UNITS[:-1]:
        if count < 1024:
            return f"{count:.1f} {unit}" if unit != "bytes" else f"{count} bytes"
        count /= 1024
    return f"{count:.1f} {_BYTE_UNITS[-1]}"


@click.command("info")
@click.argument("path", metavar="PATH")
def command(path: str) -> None:
    """Say what the model directory PATH holds."""
    Console(highlight=False).print(info_table(describe(path)))
