"""What the lanes decided, as values, and the log lines an operator reads about them.

A tracer cannot hurt a stream: `tell` keeps what it raises away from the lanes.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Protocol

from hermitcrab.core.api import FinishReason
from hermitcrab.errors import HermitcrabError

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Started:
    """A request got a session."""

    request_id: str
    slot: int


@dataclass(frozen=True, slots=True)
class Waits:
    """A stream paused until a larger session frees."""

    request_id: str
    tokens: int
    session_rows: int


@dataclass(frozen=True, slots=True)
class Moved:
    """A stream changed sessions."""

    request_id: str
    tokens: int
    source_rows: int
    target_rows: int


@dataclass(frozen=True, slots=True)
class Ended:
    """A stream gave its session back, after a reply of so many tokens."""

    request_id: str
    outcome: FinishReason | HermitcrabError
    reply_tokens: int = 0


@dataclass(frozen=True, slots=True)
class ReleaseFailed:
    """A session could not be emptied; it is not given to anyone until it can."""

    slot: int
    error: HermitcrabError


@dataclass(frozen=True, slots=True)
class CacheFailed:
    """A request's prompt state could not be kept or restored; the request goes on without."""

    request_id: str
    error: HermitcrabError


@dataclass(frozen=True, slots=True)
class SinkFailed:
    """A request's events could not be handed over; its client counts as gone."""

    request_id: str
    error: Exception


@dataclass(frozen=True, slots=True)
class Stalled:
    """Nothing has run for long while these many requests waited for a session: they end."""

    waiting: int
    error: HermitcrabError


@dataclass(frozen=True, slots=True)
class LoopFailed:
    """A step failed outside the backend: our own fault. Every request in it ends."""

    error: Exception


Decision = Started | Waits | Moved | Ended | ReleaseFailed | CacheFailed | SinkFailed | Stalled | LoopFailed


class Tracer(Protocol):
    """Where decisions are written."""

    def note(self, decision: Decision) -> None:
        """Take a decision; called on the engine thread, must return at once."""
        ...


class LogTracer:
    """One log line for each decision an operator cares about."""

    def note(self, decision: Decision) -> None:
        match decision:
            case Waits(tokens=tokens, session_rows=rows):
                logger.info(
                    "a stream at %d tokens waits for a session larger than %d tokens to free",
                    tokens,
                    rows,
                    extra=_named(decision),
                )
            case Moved(tokens=tokens, source_rows=source, target_rows=target):
                logger.info(
                    "a stream at %d tokens moved from a %d-token session to a %d-token one",
                    tokens,
                    source,
                    target,
                    extra=_named(decision),
                )
            case Ended(request_id=request_id, outcome=HermitcrabError() as error):
                logger.warning("request %s failed: %s", request_id, error, extra=_named(decision))
            case Started() | Ended():
                pass
            case ReleaseFailed(slot=slot, error=error):
                logger.warning(
                    "the session of slot %d could not be emptied: %s", slot, error, extra=_named(decision)
                )
            case CacheFailed(request_id=request_id, error=error):
                logger.warning(
                    "a prompt state of request %s could not be kept or restored: %s",
                    request_id,
                    error,
                    extra=_named(decision),
                )
            case SinkFailed(request_id=request_id, error=error):
                logger.warning(
                    "request %s is cancelled, its sink failed: %s", request_id, error, extra=_named(decision)
                )
            case Stalled(waiting=waiting, error=error):
                logger.error("%d waiting requests end: %s", waiting, error, extra=_named(decision))
            case LoopFailed(error=error):
                logger.error(
                    "the engine loop failed, every request in it ends", exc_info=error, extra=_named(decision)
                )


def _named(decision: Decision) -> dict[str, object]:
    """The decision for logs that machines read: its name and its fields."""
    return {
        "event": type(decision).__name__,
        "fields": {item.name: getattr(decision, item.name) for item in fields(decision)},
    }


def tell(tracers: Iterable[Tracer], decision: Decision) -> None:
    """Give a decision to every tracer; a tracer that raises is passed over."""
    for tracer in tracers:
        try:
            tracer.note(decision)
        except Exception:  # noqa: BLE001 - a full disk or a broken log handler must not end anyone's reply
            continue
