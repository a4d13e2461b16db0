"""Every setting, declared once: flags, environment, config file -> `Settings`. The only reader of os.environ.

A field below is all there is to a setting: its option, environment names, file key, default, unit, range and
meaning come from it, and so do the command line (`cli/options.py`) and docs/settings.md. A flag wins over the
environment, the environment over the file, the file over the default.
"""

import difflib
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

from hermitcrab.errors import SettingError

ENVIRONMENT_PREFIX = "HERMITCRAB_"

# an unknown HERMITCRAB_ variable this close to a known one is taken for a slip of the pen; others may be
# somebody else's (Kubernetes sets HERMITCRAB_SERVICE_HOST for a service of that name)
_SLIP_RATIO = 0.8

_GROUP = TypeVar("_GROUP")


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


def _setting(declaration: Declaration, default: object = None) -> Any:
    return field(default=default, metadata={"declaration": declaration}, repr=not declaration.is_secret)


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """Which model, and how it is held."""

    path: str | None = _setting(
        Declaration(
            "model",
            Text(),
            "Directory of the model to serve.",
            default_text="the built-in model",
            is_argument=True,
        )
    )
    context_tokens: int | None = _setting(
        Declaration(
            "context",
            WholeNumber(64, 1 << 24),
            "Window of the engine's own session, prompt and reply together.",
            unit="tokens",
            default_text="the model's; 32768 for the built-in one",
        )
    )
    dtype: str = _setting(
        Declaration("dtype", Choice(("float32", "bfloat16")), "Number format of weights and states."),
        "float32",
    )
    threads: int | None = _setting(
        Declaration(
            "threads", WholeNumber(1, 1024), "CPU threads for the model.", default_text="torch's choice"
        )
    )
    draft_depth: int | None = _setting(
        Declaration(
            "drafts",
            WholeNumber(0, 16),
            "Most tokens guessed ahead of a reply, by the draft head or from its context; 0 guesses none.",
            unit="tokens",
            default_text="as many as pay, by measured costs",
        )
    )
    load_check: bool = _setting(
        Declaration(
            "load-check",
            Switch(),
            "Whether windows and shared rounds are checked at start, bit for bit, against one-row steps; "
            "what differs is switched off.",
            default_text="true",
        ),
        True,
    )


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """How many sessions, how large, and how they grow."""

    slot_contexts: str | None = _setting(
        Declaration(
            "slot-contexts",
            Text("a list such as 16384,4096x6", may_be_empty=True),
            "Sizes of the sessions besides the engine's own: TOKENS or TOKENSxN, separated by commas.",
            unit="tokens",
            default_text="equal sessions, see parallel",
            other_environment=("FLASHNEXT_SLOT_CONTEXTS",),
        )
    )
    slot_grow_tokens: int = _setting(
        Declaration(
            "slot-grow",
            WholeNumber(1, 1 << 24),
            "Reply tokens a session must have room for when a stream enters or moves.",
            unit="tokens",
            other_environment=("FLASHNEXT_SLOT_GROW",),
        ),
        8192,
    )
    load_limit_gb: float | None = _setting(
        Declaration(
            "load-limit-gb",
            RealNumber(0.001, 100_000.0),
            "Memory that weights and sessions together may take.",
            unit="GB",
            default_text="70 % of the device's memory",
            other_environment=("FLASHNEXT_LOAD_LIMIT_GB",),
        )
    )
    parallel: int | None = _setting(
        Declaration(
            "parallel",
            WholeNumber(1, 1024, word="auto"),
            "Equal whole-window sessions, where slot-contexts is not given.",
            default_text="auto: up to 4, as many as memory holds",
        )
    )


@dataclass(frozen=True, slots=True)
class LaneSettings:
    """How requests share the engine."""

    decode_share: float = _setting(
        Declaration(
            "decode-share",
            RealNumber(0.0, 0.95),
            "Share of the time that running replies keep while prompts are read.",
        ),
        0.25,
    )
    queue_limit: int | None = _setting(
        Declaration(
            "queue-limit",
            WholeNumber(1, 1_000_000),
            "Requests that may wait; one more is answered 429.",
            unit="requests",
            default_text="no limit",
        )
    )
    drain_s: float = _setting(
        Declaration(
            "drain-seconds",
            RealNumber(0.0, 86400.0),
            "How long running replies may go on after a stop is asked for.",
            unit="s",
        ),
        10.0,
    )
    trail: str | None = _setting(
        Declaration(
            "trail",
            Text(),
            "File to add every decision of the lanes to, for `hermitcrab replay`; it holds prompts and "
            "replies as token ids.",
            default_text="none is written",
        )
    )


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """Where the server listens and whom it serves."""

    host: str = _setting(Declaration("host", Text(), "Address to listen on."), "127.0.0.1")
    port: int = _setting(
        Declaration("port", WholeNumber(0, 65535), "Port to listen on; 0 takes a free one."), 8080
    )
    name: str | None = _setting(
        Declaration("name", Text(), "The model's id in the API.", default_text="the model directory's name")
    )
    aliases: tuple[str, ...] = _setting(
        Declaration("alias", Names(), "Other names requests may use for the model.", default_text="none"),
        (),
    )
    api_key: str | None = _setting(
        Declaration(
            "api-key",
            Text(),
            "Key every request must bring as a bearer token; the page at / asks for it, probes need none.",
            default_text="none asked for",
            is_secret=True,
        )
    )
    max_body_mb: int = _setting(
        Declaration(
            "max-body-mb",
            WholeNumber(1, 4096),
            "Largest request body; a larger one is answered 413.",
            unit="MiB",
        ),
        32,
    )


@dataclass(frozen=True, slots=True)
class Settings:
    """All of `hermitcrab serve`."""

    model: ModelSettings = field(default_factory=ModelSettings)
    sessions: SessionSettings = field(default_factory=SessionSettings)
    lanes: LaneSettings = field(default_factory=LaneSettings)
    http: HttpSettings = field(default_factory=HttpSettings)
    log_level: str = _setting(
        Declaration(
            "log-level", Choice(("debug", "info", "warning", "error")), "The least important log line shown."
        ),
        "info",
    )
    log_json: bool = _setting(
        Declaration(
            "log-json",
            Switch(),
            "Whether the log is one JSON object a line, for machines, and nothing is drawn.",
            default_text="false",
        ),
        False,
    )


@dataclass(frozen=True, slots=True)
class ChatSettings:
    """All of `hermitcrab chat`."""

    url: str = _setting(Declaration("url", Text(), "Address of the running server."), "http://127.0.0.1:8080")
    system: str | None = _setting(Declaration("system", Text(), "A system message.", default_text="none"))
    is_thinking: bool | None = _setting(
        Declaration(
            "think",
            Switch(),
            "Whether the model thinks before it answers.",
            default_text="as the model prefers",
        )
    )
    api_key: str | None = _setting(
        Declaration(
            "api-key", Text(), "The server's key, if it asks for one.", default_text="none", is_secret=True
        )
    )


@dataclass(frozen=True, slots=True)
class ParitySettings:
    """All of `hermitcrab parity`."""

    model: ModelSettings = field(default_factory=ModelSettings)
    url: str | None = _setting(
        Declaration(
            "url",
            Text(),
            "Address of a running server to check instead; it should have nothing else to do.",
            default_text="an engine of its own",
        )
    )
    api_key: str | None = _setting(
        Declaration(
            "api-key", Text(), "That server's key, if it asks for one.", default_text="none", is_secret=True
        )
    )
    is_quick: bool = _setting(
        Declaration("quick", Switch(), "Short replies, for a first look.", default_text="false"), False
    )
    minutes: float | None = _setting(
        Declaration(
            "minutes",
            RealNumber(0.01, 10_000.0),
            "How long the random traffic lasts.",
            unit="min",
            default_text="as many requests as the other checks make",
        )
    )
    seed: int = _setting(
        Declaration("seed", WholeNumber(0, (1 << 32) - 1), "What the random traffic follows from."), 1
    )
    json_path: str | None = _setting(
        Declaration("json", Text(), "File to write the receipt to.", default_text="none")
    )


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
