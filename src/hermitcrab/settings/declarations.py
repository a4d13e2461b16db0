"""What a setting may be: kinds of value, and a declaration with all there is to one."""

import re
from dataclasses import dataclass, field
from typing import Any

from hermitcrab.errors import SettingError

ENVIRONMENT_PREFIX = "HERMITCRAB_"


@dataclass(frozen=True, slots=True)
class WholeNumber:
    """A count from `low` to `high`, both allowed; `word`, where there is one, stands for None."""

    low: int
    high: int
    word: str | None = None

    @property
    def allowed(self) -> str:
        numbers = f"a whole number from {self.low} to {self.high}"
        return numbers if self.word is None else f"{self.word!r} or {numbers}"

    def parse(self, text: str) -> int | None:
        """Raises ValueError for anything but ASCII digits in range."""
        if self.word is not None and text == self.word:
            return None
        if not re.fullmatch(r"[0-9]{1,19}", text) or not self.low <= int(text) <= self.high:
            raise ValueError(text)
        return int(text)


@dataclass(frozen=True, slots=True)
class RealNumber:
    """A decimal number from `low` to `high`, both allowed."""

    low: float
    high: float

    @property
    def allowed(self) -> str:
        return f"a number from {self.low:g} to {self.high:g}"

    def parse(self, text: str) -> float:
        """Raises ValueError for anything but a plain decimal in range."""
        if not re.fullmatch(r"[0-9]+(\.[0-9]+)?|\.[0-9]+", text) or not self.low <= float(text) <= self.high:
            raise ValueError(text)
        return float(text)


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few words."""

    words: tuple[str, ...]

    @property
    def allowed(self) -> str:
        return "one of " + ", ".join(self.words)

    def parse(self, text: str) -> str:
        """Raises ValueError for any other word."""
        if text not in self.words:
            raise ValueError(text)
        return text


@dataclass(frozen=True, slots=True)
class Text:
    """Words of the operator's own; not blank, unless `may_be_empty` leaves the refusal to its reader."""

    allowed: str = "text that is not empty"
    may_be_empty: bool = False

    def parse(self, text: str) -> str:
        """Raises ValueError for blank text."""
        if not text.strip() and not self.may_be_empty:
            raise ValueError(text)
        return text


@dataclass(frozen=True, slots=True)
class Names:
    """Names separated by commas."""

    allowed: str = "names separated by commas, none empty"

    def parse(self, text: str) -> tuple[str, ...]:
        """Raises ValueError for an empty name."""
        names = tuple(name.strip() for name in text.split(","))
        if not all(names):
            raise ValueError(text)
        return names


@dataclass(frozen=True, slots=True)
class Switch:
    """On or off; on the command line `--NAME` and `--no-NAME`."""

    allowed: str = "true or false"

    def parse(self, text: str) -> bool:
        """Raises ValueError for anything but true and false (1 and 0 count)."""
        if text.lower() in ("true", "1"):
            return True
        if text.lower() in ("false", "0"):
            return False
        raise ValueError(text)


Kind = WholeNumber | RealNumber | Choice | Text | Names | Switch


@dataclass(frozen=True, slots=True)
class Declaration:
    """What is said about a setting besides its type and default.

    `name` is the config file's key; the option and the environment name follow from it. `is_argument` marks
    the one that is written without an option.
    """

    name: str
    kind: Kind
    help: str
    unit: str = ""
    default_text: str = ""
    other_environment: tuple[str, ...] = ()
    is_argument: bool = False
    is_secret: bool = False

    @property
    def option(self) -> str:
        return self.name.upper() if self.is_argument else f"--{self.name}"

    @property
    def environment(self) -> tuple[str, ...]:
        """Environment names, the one that wins first."""
        return (ENVIRONMENT_PREFIX + self.name.upper().replace("-", "_"), *self.other_environment)

    def read(self, text: str, source: str) -> Any:
        """The value of `text`. Raises SettingError naming `source` and what is allowed."""
        try:
            return self.kind.parse(text)
        except ValueError:
            shown = "the given text" if self.is_secret else repr(text)
            raise SettingError(f"{source}: {shown} is not allowed here; give {self.kind.allowed}") from None


def setting(declaration: Declaration, default: object = None) -> Any:
    return field(default=default, metadata={"declaration": declaration}, repr=not declaration.is_secret)
