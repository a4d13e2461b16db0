"""Every setting, declared once.

A field below is all there is to a setting: its option, environment names, file key, default, unit, range and
meaning come from it, and so do the command line (`cli/options.py`) and docs/settings.md.
"""

from dataclasses import dataclass, field

from hermitcrab.settings.declarations import (
    Choice,
    Declaration,
    Names,
    RealNumber,
    Switch,
    Text,
    WholeNumber,
    setting,
)


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """Which model, and how it is held."""

    path: str | None = setting(
        Declaration(
            "model",
            Text(),
            "Directory of the model to serve.",
            default_text="the built-in model",
            is_argument=True,
        )
    )
    context_tokens: int | None = setting(
        Declaration(
            "context",
            WholeNumber(64, 1 << 24),
            "Window of the engine's own session, prompt and reply together.",
            unit="tokens",
            default_text="the model's; 32768 for the built-in one",
        )
    )
    dtype: str = setting(
        Declaration("dtype", Choice(("float32", "bfloat16")), "Number format of weights and states."),
        "float32",
    )
    threads: int | None = setting(
        Declaration(
            "threads",
            WholeNumber(1, 1024),
            "CPU threads for the model.",
            default_text="one for a small model, else torch's choice",
        )
    )
    draft_depth: int | None = setting(
        Declaration(
            "drafts",
            WholeNumber(0, 16),
            "Most tokens guessed ahead of a reply, by the draft head or from its context; 0 guesses none.",
            unit="tokens",
            default_text="as many as pay, by measured costs",
        )
    )
    load_check: bool = setting(
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

    slot_contexts: str | None = setting(
        Declaration(
            "slot-contexts",
            Text("a list such as 16384,4096x6", may_be_empty=True),
            "Sizes of the sessions besides the engine's own: TOKENS or TOKENSxN, separated by commas.",
            unit="tokens",
            default_text="equal sessions, see parallel",
            other_environment=("FLASHNEXT_SLOT_CONTEXTS",),
        )
    )
    slot_grow_tokens: int = setting(
        Declaration(
            "slot-grow",
            WholeNumber(1, 1 << 24),
            "Reply tokens a session must have room for when a stream enters or moves.",
            unit="tokens",
            other_environment=("FLASHNEXT_SLOT_GROW",),
        ),
        8192,
    )
    load_limit_gb: float | None = setting(
        Declaration(
            "load-limit-gb",
            RealNumber(0.001, 100_000.0),
            "Memory that weights and sessions together may take.",
            unit="GB",
            default_text="70 % of the device's memory",
            other_environment=("FLASHNEXT_LOAD_LIMIT_GB",),
        )
    )
    cache_gb: float | None = setting(
        Declaration(
            "cache-gb",
            RealNumber(0.0, 100_000.0),
            "Memory that kept states of prompts may take, inside the load limit; 0 keeps none.",
            unit="GB",
            default_text="a quarter of what the sessions leave, up to 8.59",
        )
    )
    parallel: int | None = setting(
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

    decode_share: float = setting(
        Declaration(
            "decode-share",
            RealNumber(0.0, 0.95),
            "Share of the time that running replies keep while prompts are read.",
        ),
        0.25,
    )
    queue_limit: int | None = setting(
        Declaration(
            "queue-limit",
            WholeNumber(1, 1_000_000),
            "Requests that may wait; one more is answered 429.",
            unit="requests",
            default_text="no limit",
        )
    )
    drain_s: float = setting(
        Declaration(
            "drain-seconds",
            RealNumber(0.0, 86400.0),
            "How long running replies may go on after a stop is asked for.",
            unit="s",
        ),
        10.0,
    )
    trail: str | None = setting(
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

    host: str = setting(Declaration("host", Text(), "Address to listen on."), "127.0.0.1")
    port: int = setting(
        Declaration("port", WholeNumber(0, 65535), "Port to listen on; 0 takes a free one."), 8080
    )
    name: str | None = setting(
        Declaration("name", Text(), "The model's id in the API.", default_text="the model directory's name")
    )
    aliases: tuple[str, ...] = setting(
        Declaration("alias", Names(), "Other names requests may use for the model.", default_text="none"),
        (),
    )
    api_key: str | None = setting(
        Declaration(
            "api-key",
            Text(),
            "Key every request must bring as a bearer token; the page at / asks for it, probes need none.",
            default_text="none asked for",
            is_secret=True,
        )
    )
    max_body_mb: int = setting(
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
    log_level: str = setting(
        Declaration(
            "log-level", Choice(("debug", "info", "warning", "error")), "The least important log line shown."
        ),
        "info",
    )
    log_json: bool = setting(
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

    url: str = setting(Declaration("url", Text(), "Address of the running server."), "http://127.0.0.1:8080")
    system: str | None = setting(Declaration("system", Text(), "A system message.", default_text="none"))
    is_thinking: bool | None = setting(
        Declaration(
            "think",
            Switch(),
            "Whether the model thinks before it answers.",
            default_text="as the model prefers",
        )
    )
    api_key: str | None = setting(
        Declaration(
            "api-key", Text(), "The server's key, if it asks for one.", default_text="none", is_secret=True
        )
    )


@dataclass(frozen=True, slots=True)
class ParitySettings:
    """All of `hermitcrab parity`."""

    model: ModelSettings = field(default_factory=ModelSettings)
    url: str | None = setting(
        Declaration(
            "url",
            Text(),
            "Address of a running server to check instead; it should have nothing else to do.",
            default_text="an engine of its own",
        )
    )
    api_key: str | None = setting(
        Declaration(
            "api-key", Text(), "That server's key, if it asks for one.", default_text="none", is_secret=True
        )
    )
    is_quick: bool = setting(
        Declaration("quick", Switch(), "Short replies, for a first look.", default_text="false"), False
    )
    minutes: float | None = setting(
        Declaration(
            "minutes",
            RealNumber(0.01, 10_000.0),
            "How long the random traffic lasts.",
            unit="min",
            default_text="as many requests as the other checks make",
        )
    )
    seed: int = setting(
        Declaration("seed", WholeNumber(0, (1 << 32) - 1), "What the random traffic follows from."), 1
    )
    json_path: str | None = setting(
        Declaration("json", Text(), "File to write the receipt to.", default_text="none")
    )
