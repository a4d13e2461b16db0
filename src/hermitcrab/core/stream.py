"""One request on its way through the lanes: its limits, its reply, its next window, its costs.

A stream is changed on the engine thread only: by the lane engine, its rounds and its prompt passes.
"""

import hashlib
from dataclasses import dataclass, field

from hermitcrab.cache.marks import PromptPlan
from hermitcrab.core.api import FinishReason, Progress, Progressed, Request, StreamState, Tokens, Usage
from hermitcrab.core.backend import SlotId
from hermitcrab.core.rules import ReplyRules
from hermitcrab.drafting.guesses import Guesses
from hermitcrab.errors import HermitcrabError


@dataclass(frozen=True, slots=True)
class Limits:
    """How far a stream may go; fixed at submission. `window_rows` is the most rows one window of it takes."""

    prompt_tokens: int
    max_new_tokens: int
    window_rows: int

    @property
    def end_rows(self) -> int:
        """Rows a session needs to hold the stream whatever happens: prompt, whole reply and one window."""
        return self.prompt_tokens + self.max_new_tokens + self.window_rows

    def first_rows(self, grow_tokens: int) -> int:
        """Rows a session needs for the stream to start in it."""
        return self.prompt_tokens + min(self.max_new_tokens, grow_tokens) + self.window_rows


@dataclass(slots=True)
class Reply:
    """The tokens so far, an end-of-text token included, and how the reply ended, once it has."""

    tokens: list[int] = field(default_factory=list)
    outcome: FinishReason | HermitcrabError | None = None


@dataclass(slots=True)
class WindowState:
    """Where the next window starts: `rows` are settled, `pending` is drawn and not yet a row.

    The draft head has absorbed `absorbed_rows` of them, where drafting is on.
    """

    rows: int = 0
    pending: int = 0
    absorbed_rows: int = 0


@dataclass(slots=True)
class Stats:
    """What the stream has cost so far; times are the clock's seconds.

    `served_turn` grows with every turn given to any stream, so the lowest was served least recently.
    `cached_tokens` of the prompt came from a kept state.
    """

    submitted_s: float
    admitted_s: float | None = None
    first_token_s: float | None = None
    paused_since_s: float | None = None
    paused_s: float = 0.0
    rounds: int = 0
    served_turn: int = 0
    drafted: int = 0
    accepted: int = 0
    moves: int = 0
    cached_tokens: int = 0


class Stream:
    """A request from submission to its end; `slot` is None while it has no session, before and after."""

    __slots__ = (
        "guesses",
        "limits",
        "outbox",
        "plan",
        "reply",
        "request",
        "rules",
        "slot",
        "state",
        "stats",
        "window",
    )

    def __init__(self, request: Request, limits: Limits, *, now_s: float) -> None:
        self.request = request
        self.rules = ReplyRules(request)
        self.limits = limits
        self.reply = Reply()
        self.window = WindowState()
        self.guesses: Guesses | None = None
        self.plan: PromptPlan | None = None
        self.stats = Stats(submitted_s=now_s)
        self.slot: SlotId | None = None
        self.state = StreamState.QUEUED
        self.outbox: list[Progressed | Tokens] = []

    @property
    def is_finished(self) -> bool:
        """True once the reply has ended, for whatever reason; its session may still have to be released."""
        return self.reply.outcome is not None

    @property
    def is_live(self) -> bool:
        """True while rounds serve it."""
        return self.state is StreamState.LIVE and not self.is_finished

    @property
    def is_paused(self) -> bool:
        """True while it waits for a larger session."""
        return self.state is StreamState.PAUSED and not self.is_finished

    @property
    def is_filling(self) -> bool:
        """True while its prompt has rows to run."""
        return self.state is StreamState.FILLING and not self.is_finished

    @property
    def remaining_tokens(self) -> int:
        """Reply tokens it may still draw."""
        return self.limits.max_new_tokens - len(self.reply.tokens)

    @property
    def home(self) -> SlotId:
        """The slot it sits in; only for a stream that has one."""
        assert self.slot is not None, "a stream was used without its session"
        return self.slot

    def finish(self, outcome: FinishReason | HermitcrabError) -> None:
        """End the reply; the first ending stands."""
        if self.reply.outcome is None:
            self.reply.outcome = outcome

    def tell(self, state: Progress) -> None:
        """Put a change of place into the outbox."""
        self.outbox.append(
            Progressed(state=state, prompt_rows=min(self.window.rows, self.limits.prompt_tokens))
        )

    def enter(self, slot: SlotId, *, now_s: float) -> None:
        """Take a session; the prompt fills from here."""
        self.slot = slot
        self.state = StreamState.FILLING
        self.stats.admitted_s = now_s
        self.tell(Progress.FILLING)

    def pause(self, *, now_s: float) -> None:
        """Wait for a larger session."""
        self.state = StreamState.PAUSED
        self.stats.paused_since_s = now_s
        self.tell(Progress.PAUSED)

    def resume(self, *, now_s: float) -> None:
        """Go on after a pause."""
        self.state = StreamState.LIVE
        self.stats.paused_s += self._open_pause_s(now_s)
        self.stats.paused_since_s = None
        self.tell(Progress.RESUMED)

    def paused_s(self, *, now_s: float) -> float:
        """Seconds in pauses, one that goes on included."""
        return self.stats.paused_s + self._open_pause_s(now_s)

    def usage(self, *, now_s: float) -> Usage:
        """What it has cost up to now."""
        stats = self.stats
        begun_s = now_s if stats.first_token_s is None else stats.first_token_s
        queued_until_s = now_s if stats.admitted_s is None else stats.admitted_s
        return Usage(
            prompt_tokens=self.limits.prompt_tokens,
            cached_tokens=stats.cached_tokens,
            completion_tokens=len(self.reply.tokens),
            rounds=stats.rounds,
            drafted=stats.drafted,
            accepted=stats.accepted,
            moves=stats.moves,
            waited_s=queued_until_s - stats.submitted_s + self.paused_s(now_s=now_s),
            first_token_s=begun_s - stats.submitted_s,
            decode_s=now_s - begun_s,
            tokens_sha256=digest(self.reply.tokens),
        )

    def _open_pause_s(self, now_s: float) -> float:
        since_s = self.stats.paused_since_s
        return 0.0 if since_s is None else now_s - since_s


def digest(tokens: list[int]) -> str:
    """The hex sha-256 of token ids, each as 4 little-endian bytes."""
    return hashlib.sha256(b"".join(token.to_bytes(4, "little") for token in tokens)).hexdigest()
