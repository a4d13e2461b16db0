"""The server boundary, whole: what a request is, what comes back, and what can be asked at any time.

The HTTP side submits a `Request` with a `Sink`; the engine thread calls the sink with events, the last of
which is always exactly one `Finished` or `Failed`.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from hermitcrab.cache.store import NO_CACHE, CacheStatus
from hermitcrab.core.grammar import GrammarRules
from hermitcrab.core.load_check import NOT_RUN, LoadCheck
from hermitcrab.core.thinking import Thinking
from hermitcrab.core.timings import NO_TIMINGS, Timings
from hermitcrab.errors import HermitcrabError
from hermitcrab.sampling.logprobs import TokenLogprobs
from hermitcrab.sampling.params import NO_PENALTIES, Penalties, Sampling


class StopWatch(Protocol):
    """Says when a reply's text has reached one of its stop strings; one instance a request."""

    def push(self, token: int) -> bool:
        """Take the next reply token; True when a stop string is now complete and the reply ends here."""
        ...


class FinishReason(StrEnum):
    """Why a reply ended."""

    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"


class Priority(StrEnum):
    """Who comes first in the queue; requests that have a session share the work alike."""

    FOREGROUND = "foreground"
    BACKGROUND = "background"


@dataclass(frozen=True, slots=True)
class Request:
    """One reply to make.

    `max_new_tokens` None means up to the room of the largest session; a larger value is cut to that room.
    `sampling.seed` is already chosen. `stop_watch` and `grammar` are owned by the engine thread from
    submission on; a `stop_watch` keeps to `min_tokens` itself. No token of `eos_ids` is drawn before
    `min_tokens` reply tokens. `thinking` None means that nothing is known of thinking. `top_logprobs` None
    asks for no log probabilities, 0 for those of the reply's own tokens.
    """

    id: str
    prompt: tuple[int, ...]
    sampling: Sampling
    max_new_tokens: int | None = None
    eos_ids: frozenset[int] = frozenset()
    stop_watch: StopWatch | None = None
    min_tokens: int = 0
    penalties: Penalties = NO_PENALTIES
    thinking: Thinking | None = None
    grammar: GrammarRules | None = None
    top_logprobs: int | None = None
    priority: Priority = Priority.FOREGROUND


@dataclass(frozen=True, slots=True)
class Usage:
    """What a reply cost, for its sender.

    `cached_tokens` of the prompt were there already, in a kept state. `waited_s` is the time in the queue and
    in pauses, `first_token_s` from submission to the first token, `decode_s` from there to the end.
    `tokens_sha256` is the hex digest of the reply's token ids, each as 4 little-endian bytes.
    """

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    rounds: int
    drafted: int
    accepted: int
    moves: int
    waited_s: float
    first_token_s: float
    decode_s: float
    tokens_sha256: str


class Progress(StrEnum):
    """Where a request is before and between tokens."""

    QUEUED = "queued"
    FILLING = "filling"
    PAUSED = "paused"
    RESUMED = "resumed"
    MOVED = "moved"


@dataclass(frozen=True, slots=True)
class Progressed:
    """The request's place has changed; `prompt_rows` is how much of its prompt is done."""

    state: Progress
    prompt_rows: int


@dataclass(frozen=True, slots=True)
class Tokens:
    """Reply tokens, in order, each delivered once; an end-of-text token is counted, not delivered.

    `logprobs` has an item a token where they were asked for, and is empty otherwise.
    """

    ids: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...] = ()


@dataclass(frozen=True, slots=True)
class Finished:
    """The reply is whole."""

    reason: FinishReason
    usage: Usage


@dataclass(frozen=True, slots=True)
class Failed:
    """The reply cannot go on; `error` says why in words for its sender."""

    error: HermitcrabError
    usage: Usage


Event = Progressed | Tokens | Finished | Failed


class Sink(Protocol):
    """Where one request's events go."""

    def put(self, event: Event) -> None:
        """Take an event; called on the engine thread, must return at once and must not raise."""
        ...


@dataclass(frozen=True, slots=True)
class SessionStatus:
    """One line of the session table: capacity and rows in use, and the request inside, if any."""

    slot: int
    capacity_rows: int
    used_rows: int
    request_id: str | None


class StreamState(StrEnum):
    """Where a stream is."""

    QUEUED = "queued"
    FILLING = "filling"
    LIVE = "live"
    PAUSED = "paused"


@dataclass(frozen=True, slots=True)
class StreamStatus:
    """One admitted or waiting request."""

    request_id: str
    state: StreamState
    slot: int | None
    prompt_tokens: int
    filled_rows: int
    reply_tokens: int
    moves: int
    age_s: float
    priority: Priority = Priority.FOREGROUND


@dataclass(frozen=True, slots=True)
class MoveStatus:
    """One move that was made, the `number`-th since the start, with `tokens` rows in use."""

    number: int
    request_id: str
    source_slot: int
    target_slot: int
    tokens: int
    age_s: float


@dataclass(frozen=True, slots=True)
class Status:
    """The server's insides at one moment; totals count since the start.

    `tokens_per_s` is over the last 2 s. `tick_age_s` is how long ago the engine thread last went round its
    loop. `copied` and `copies_accepted` are the parts of `drafted` and `accepted` that were copies of the
    context, the rest is the draft head's. `load_check` is what the check at load found. `ended_by_length` is
    the part of `requests_finished` that came to its length limit. `recent_moves` has the last moves, oldest
    first: who asks a few times a second sees each by its number. `prompt_tokens` were run: those that came
    from the cache are not among them. `handed_to_lone` is how often a stream that was all there was went into
    the lone driver, `handed_to_shared` how often one came back from it and went on in shared rounds.
    """

    sessions: tuple[SessionStatus, ...]
    streams: tuple[StreamStatus, ...]
    tokens_per_s: float
    tick_age_s: float
    is_draining: bool
    requests_finished: int
    requests_failed: int
    requests_cancelled: int
    prompt_tokens: int
    reply_tokens: int
    rounds: int
    drafted: int
    accepted: int
    moves: int
    pauses: int
    load_check: LoadCheck = NOT_RUN
    ended_by_length: int = 0
    recent_moves: tuple[MoveStatus, ...] = ()
    timings: Timings = NO_TIMINGS
    copied: int = 0
    copies_accepted: int = 0
    cache: CacheStatus = NO_CACHE
    handed_to_lone: int = 0
    handed_to_shared: int = 0


class Lanes(Protocol):
    """The engine as the server sees it; every method may be called from any thread and returns at once."""

    @property
    def context_tokens(self) -> int:
        """The advertised context: tokens the largest session can hold, prompt and reply together."""
        ...

    def submit(self, request: Request, sink: Sink) -> None:
        """Queue a request.

        Raises ContextLengthExceeded if its prompt can never fit, QueueFull, or ShuttingDown; then the sink
        is never called.
        """
        ...

    def cancel(self, request_id: str) -> None:
        """End a request wherever it is; unknown and finished ids are ignored."""
        ...

    def status(self) -> Status:
        """A snapshot."""
        ...
