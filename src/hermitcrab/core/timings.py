"""How long requests waited and ran, in buckets of fixed bounds: what a monitoring system can add up."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

# from a token of a small model to a queue of an hour; a factor of about two and a half between bounds
TOKEN_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
WAIT_BOUNDS_S = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0)


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts of values by size; `counts[i]` are above bound i-1 and at most bound i, the last above all."""

    bounds_s: tuple[float, ...]
    counts: tuple[int, ...]
    sum_s: float

    @property
    def count(self) -> int:
        """All values."""
        return sum(self.counts)


class Tally:
    """A histogram in the making; changed on the engine thread only."""

    def __init__(self, bounds_s: Sequence[float]) -> None:
        self._bounds_s = tuple(bounds_s)
        self._counts = [0] * (len(self._bounds_s) + 1)
        self._sum_s = 0.0

    def note(self, seconds: float) -> None:
        """Count one value; a bound itself belongs to the bucket it ends."""
        self._counts[bisect_left(self._bounds_s, seconds)] += 1
        self._sum_s += seconds

    def histogram(self) -> Histogram:
        """What was counted up to now."""
        return Histogram(self._bounds_s, tuple(self._counts), self._sum_s)


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds of requests that have ended, each counted once, whatever its end.

    `queue`: from submission to a session. `first_token`: from submission to the first token. `token`: decode
    time by token after the first, pauses included. `pause`: all waits for a larger session of a request that
    had any. A request that never came so far is not in a histogram.
    """

    queue: Histogram
    first_token: Histogram
    token: Histogram
    pause: Histogram


class TimingTallies:
    """The four tallies behind `Timings`."""

    def __init__(self) -> None:
        self.queue = Tally(WAIT_BOUNDS_S)
        self.first_token = Tally(WAIT_BOUNDS_S)
        self.token = Tally(TOKEN_BOUNDS_S)
        self.pause = Tally(WAIT_BOUNDS_S)

    def timings(self) -> Timings:
        """What was counted up to now."""
        return Timings(
            queue=self.queue.histogram(),
            first_token=self.first_token.histogram(),
            token=self.token.histogram(),
            pause=self.pause.histogram(),
        )


NO_TIMINGS = TimingTallies().timings()
