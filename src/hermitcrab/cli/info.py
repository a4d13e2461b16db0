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
    if isinstance(value, int):
        return words, f"{value:,}"
    if isinstance(value, tuple):
        return words, ", ".join(str(item) for item in value) or "none"
    return words, "none" if value is None else str(value)


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
