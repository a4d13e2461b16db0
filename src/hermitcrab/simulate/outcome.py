"""What a simulated load came to: each request's times, and what is said of them together."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Served:
    """A request that was served; seconds count from its arrival.

    `waited_s` is the time in the queue and in pauses, or without memory in the pool. `interruptions` are its
    pauses, or how often the pool took its memory away.
    """

    arrival_s: float
    waited_s: float
    first_token_s: float
    total_s: float
    reply_tokens: int
    interruptions: int = 0
    moves: int = 0


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean and percentiles of seconds, by the nearest rank."""

    mean_s: float
    p50_s: float
    p95_s: float
    p99_s: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """A load on one way to use the memory: `sessions` in words, the bytes they take.

    `refused` requests could never fit. `recomputed_rows` are rows that the pool had thrown away.
    """

    name: str
    sessions: str
    memory_bytes: int
    served: tuple[Served, ...]
    refused: int
    most_streams: int
    recomputed_rows: int = 0

    @property
    def waiting(self) -> Spread:
        """Seconds in which nothing was done for a request."""
        return spread([served.waited_s for served in self.served])

    @property
    def first_token(self) -> Spread:
        """Seconds to the first token."""
        return spread([served.first_token_s for served in self.served])

    @property
    def total(self) -> Spread:
        """Seconds to the last token."""
        return spread([served.total_s for served in self.served])

    @property
    def tokens_per_s(self) -> float:
        """Reply tokens over the time from the first arrival to the last token."""
        if not self.served:
            return 0.0
        end_s = max(served.arrival_s + served.total_s for served in self.served)
        span_s = end_s - min(served.arrival_s for served in self.served)
        return sum(served.reply_tokens for served in self.served) / span_s if span_s else 0.0

    @property
    def moves(self) -> int:
        """Moves of all requests."""
        return sum(served.moves for served in self.served)

    @property
    def interruptions(self) -> int:
        """Pauses of all requests, or how often the pool took memory away."""
        return sum(served.interruptions for served in self.served)


def spread(seconds: Sequence[float]) -> Spread:
    """Mean and percentiles; all 0 where there is nothing."""
    ranked = sorted(seconds)
    if not ranked:
        return Spread(0.0, 0.0, 0.0, 0.0)
    return Spread(sum(ranked) / len(ranked), _rank(ranked, 50), _rank(ranked, 95), _rank(ranked, 99))


def _rank(ranked: Sequence[float], percent: int) -> float:
    # the smallest value with at least so many percent of all at or below it
    return ranked[max(0, -(-percent * len(ranked) // 100) - 1)]
