"""Flags, environment and config file -> a group of settings. The only reader of os.environ.

A flag wins over the environment, the environment over the file, the file over the default.
"""

import difflib
import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

from hermitcrab.errors import SettingError
from hermitcrab.settings.declarations import ENVIRONMENT_PREFIX, Declaration, Names
from hermitcrab.settings.groups import ChatSettings, ParitySettings, Settings

# an unknown HERMITCRAB_ variable this close to a known one is taken for a slip of the pen; others may be
# somebody else's (Kubernetes sets HERMITCRAB_SERVICE_HOST for a service of that name)
_SLIP_RATIO = 0.8

_GROUP = TypeVar("_GROUP")


def declarations(group: type) -> tuple[Declaration, ...]:
    """Every setting of a group and the groups in it, in order of declaration."""
    return tuple(declaration for _, declaration in _declared(group))


def default_text(group: type, name: str) -> str:
    """The default of one setting as a person reads it."""
    for item, declaration in _declared(group):
        if declaration.name == name:
            return declaration.default_text or str(item.default)
    raise AssertionError(f"{group.__name__} declares no {name}")


def read_settings(
    group: type[_GROUP],
    flags: Mapping[str, str],
    *,
    config: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> _GROUP:
    """Settings from flags (by name, as text), the environment and a TOML file.

    An environment variable that is set to nothing counts as not set.
    Raises SettingError naming the item at fault and what is allowed.
    """
    if environment is None:
        environment = os.environ
    known = {declaration.name: declaration for declaration in declarations(group)}
    _refuse_misspelt(environment)
    texts = _from_file(config, known)
    texts |= _from_environment(environment, known)
    for name, text in flags.items():
        texts[name] = (text, known[name].option)
    return _build(group, {name: known[name].read(text, source) for name, (text, source) in texts.items()})


def _declared(group: type) -> Iterator[tuple[Field[Any], Declaration]]:
    for item in fields(group):
        if "declaration" in item.metadata:
            yield item, item.metadata["declaration"]
        elif is_dataclass(item.type):
            assert isinstance(item.type, type)
            yield from _declared(item.type)


def _build(group: type[_GROUP], values: Mapping[str, object]) -> _GROUP:
    given: dict[str, object] = {}
    for item in fields(group):  # type: ignore[arg-type]  # every group is a dataclass; TypeVar bounds cannot say so
        if "declaration" not in item.metadata:
            assert item.default_factory is not MISSING
            given[item.name] = _build(item.type, values)  # type: ignore[arg-type]  # annotations here are classes
        elif item.metadata["declaration"].name in values:
            given[item.name] = values[item.metadata["declaration"].name]
    return group(**given)


def _from_environment(
    environment: Mapping[str, str], known: Mapping[str, Declaration]
) -> dict[str, tuple[str, str]]:
    found: dict[str, tuple[str, str]] = {}
    for name, declaration in known.items():
        for variable in reversed(declaration.environment):
            if environment.get(variable):
                found[name] = (environment[variable], variable)
    return found


def _refuse_misspelt(environment: Mapping[str, str]) -> None:
    known = [
        variable
        for group in (Settings, ChatSettings, ParitySettings)
        for declaration in declarations(group)
        for variable in declaration.environment
    ]
    own = [variable.removeprefix(ENVIRONMENT_PREFIX) for variable in known]
    for variable in environment:
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable in known:
            continue
        near = difflib.get_close_matches(
            variable.removeprefix(ENVIRONMENT_PREFIX), own, n=1, cutoff=_SLIP_RATIO
        )
        if near:
            raise SettingError(f"there is no {variable}; did you mean {ENVIRONMENT_PREFIX}{near[0]}?")


def _from_file(path: Path | None, known: Mapping[str, Declaration]) -> dict[str, tuple[str, str]]:
    if path is None:
        return {}
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingError(f"--config {path}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingError(f"--config {path}: not a TOML file: {error}") from error
    found = {}
    for key, value in content.items():
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1, cutoff=0.0)
            raise SettingError(f"{path}: there is no setting {key!r}; the nearest is {near[0]!r}")
        found[key] = (_file_text(value, f"{path}: {key}", known[key]), f"{path}: {key}")
    return found


def _file_text(value: object, source: str, declaration: Declaration) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, list) and isinstance(declaration.kind, Names):
        return ",".join(str(item) for item in value)
    raise SettingError(
        f"{source}: a {type(value).__name__} is not allowed here; give {declaration.kind.allowed}"
    )
