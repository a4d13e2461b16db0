"""Settings as command line options, made from their declarations: help and errors say the same everywhere."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from hermitcrab.settings import (
    Declaration,
    Names,
    Switch,
    declarations,
    default_text,
    read_settings,
)

_GROUP = TypeVar("_GROUP")


def settings_command(
    name: str, group: type[_GROUP], run: Callable[[_GROUP], int | None], help: str
) -> click.Command:
    """A subcommand that takes a group's settings from flags, environment and --config, and runs with them.

    What `run` returns is the program's exit status; None is success.
    """

    def callback(config: Path | None, **given: Any) -> int | None:
        flags = {
            declaration.name: text
            for declaration in declarations(group)
            if (text := _text(given[_parameter(declaration)])) is not None
        }
        return run(read_settings(group, flags, config=config))

    config = click.Option(
        ["--config"],
        type=click.Path(path_type=Path),
        metavar="FILE.toml",
        help="Read settings from a TOML file, one key an option: slot-grow = 4096.",
    )
    params = [_click_parameter(group, declaration) for declaration in declarations(group)]
    return click.Command(name, callback=callback, params=[*params, config], help=help)


def _click_parameter(group: type, declaration: Declaration) -> click.Parameter:
    parameter = _parameter(declaration)
    if declaration.is_argument:
        return click.Argument([parameter], required=False, metavar=f"[{declaration.name.upper()}]")
    words = (
        f"{declaration.help} Default: {default_text(group, declaration.name)}. "
        f"Environment: {', '.join(declaration.environment)}."
    )
    if isinstance(declaration.kind, Switch):
        return click.Option(
            [f"{declaration.option}/--no-{declaration.name}", parameter], default=None, help=words
        )
    return click.Option(
        [declaration.option, parameter],
        multiple=isinstance(declaration.kind, Names),
        metavar=declaration.unit.upper() or "VALUE",
        help=words,
    )


def _parameter(declaration: Declaration) -> str:
    return declaration.name.replace("-", "_")


def _text(given: str | bool | tuple[str, ...] | None) -> str | None:
    """What was typed, as text for the setting's own reader; None where nothing was."""
    match given:
        case None | ():
            return None
        case bool():
            return "true" if given else "false"
        case tuple():
            return ",".join(given)
        case _:
            return given
