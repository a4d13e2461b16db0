"""What a round costs, by rows and streams, as measured while running; in between, a straight line."""

from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from math import log

# the median of so many: a busy moment of the machine does not count, a longer context soon does
_SAMPLES = 9

# a median that has moved by less is as good as the old one, and leaves what was worked out from it standing
_STILL = 0.01

# before anything is measured: a row's share of a forward of one row, a draft's share of the same. Both are
# on the low side, so that drafts get a try; measured costs take over with the first rounds
_ROW_SHARE = 0.1
_DRAFT_SHARE = 0.1


class CostTable:
    """Seconds by (count, streams): the median of the last few of each cell.

    `shape(count, streams)` says in what proportion cells stand to each other where nothing is measured.
    """

    def __init__(self, shape: Callable[[int, int], float]) -> None:
        self._shape = shape
        self._samples: dict[tuple[int, int], deque[float]] = {}
        # by streams: counts that are measured, ascending, and their seconds
        self._counts: dict[int, list[int]] = {}
        self._known: dict[tuple[int, int], float] = {}
        # estimates of other cells, until a known one changes: a round asks for dozens
        self._estimates: dict[tuple[int, int], float] = {}

    @property
    def is_empty(self) -> bool:
        """True before the first measurement."""
        return not self._known

    def observe(self, count: int, streams: int, *, seconds: float) -> None:
        """A cell took so long; a clock that stood still tells nothing."""
        if seconds <= 0.0:
            return
        cell = (count, streams)
        samples = self._samples.setdefault(cell, deque(maxlen=_SAMPLES))
        if not samples:
            counts = self._counts.setdefault(streams, [])
            counts.insert(bisect_left(counts, count), count)
        samples.append(seconds)
        middle = sorted(samples)[(len(samples) - 1) // 2]
        if abs(middle - self._known.get(cell, 0.0)) > _STILL * middle:
            self._known[cell] = middle
            self._estimates.clear()

    def estimate(self, count: int, streams: int) -> float:
        """Seconds that a cell takes; from the nearest measured cells where it has not been measured."""
        cell = (count, streams)
        known = self._known.get(cell) or self._estimates.get(cell)
        if known is None:
            known = self._estimates[cell] = self._work_out(count, streams)
        return known

    def _work_out(self, count: int, streams: int) -> float:
        if not self._known:
            return self._shape(count, streams)
        nearest = min(self._counts, key=lambda other: (abs(log(other / streams)), other))
        if nearest != streams:
            alike = max(nearest, round(count * nearest / streams))
            return self.estimate(alike, nearest) * self._shape(count, streams) / self._shape(alike, nearest)
        counts = self._counts[streams]
        above = bisect_left(counts, count)
        if 0 < above < len(counts):
            low, high = counts[above - 1], counts[above]
            low_s, high_s = self._known[(low, streams)], self._known[(high, streams)]
            return low_s + (high_s - low_s) * (count - low) / (high - low)
        edge = counts[0] if above == 0 else counts[-1]
        return self._known[(edge, streams)] * self._shape(count, streams) / self._shape(edge, streams)


class RoundCosts:
    """Seconds of a forward with its keeps by (rows, streams), and of drafting by (deepest chain, streams)."""

    def __init__(self) -> None:
        self._forward = CostTable(lambda rows, streams: 1.0 + _ROW_SHARE * (rows - 1))
        self._draft = CostTable(lambda depth, streams: (1.0 + depth) * (1.0 + _ROW_SHARE * (streams - 1)))

    @property
    def is_empty(self) -> bool:
        """True before the first measured round."""
        return self._forward.is_empty

    def observe_forward(self, rows: int, streams: int, *, seconds: float) -> None:
        """A forward over `rows` rows of `streams` streams took so long."""
        self._forward.observe(rows, streams, seconds=seconds)

    def observe_draft(self, depth: int, streams: int, *, seconds: float) -> None:
        """Chains of up to `depth` drafts for `streams` streams took so long."""
        self._draft.observe(depth, streams, seconds=seconds)

    def forward_s(self, rows: int, streams: int) -> float:
        """Seconds of a forward."""
        return self._forward.estimate(rows, streams)

    def draft_s(self, depth: int, streams: int) -> float:
        """Seconds that the head takes; 0 for no drafts."""
        if not depth or not streams:
            return 0.0
        if self._draft.is_empty:
            return self._forward.estimate(streams, streams) * _DRAFT_SHARE * depth
        return self._draft.estimate(depth, streams)
