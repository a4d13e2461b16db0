"""What a round costs, by rows and streams, as measured while running; in between, a straight line."""

from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from itertools import accumulate
from math import log

# the median of so many: a busy moment of the machine does not count, a longer context soon does
_SAMPLES = 9

# a cell measured so often says something of the machine's speed
_SETTLED_SAMPLES = 3

# a median that has moved by less is as good as the old one, and leaves what was worked out from it standing
_STILL = 0.01

# the common speed follows a single measurement so far, and by no more than a factor of two
_FOLLOW = 0.5
_MOST_CHANGE = 2.0

# forwards are told apart by these numbers of drafts: with a cell for each, none would be measured often,
# and the best choice would be the cell with the luckiest measurement
DRAFT_STEPS = (0, 1, 2, 3, 5, 7, 10, 15, 24, 40, 63)

# before anything is measured: a row's share of a forward of one row, a draft's share of the same, and what a
# window of the next class of widths adds. They are on the low side, so that drafts get a try; measured costs
# take over with the first rounds
_ROW_SHARE = 0.1
_DRAFT_SHARE = 0.1
_WIDTH_SHARE = 0.05


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
        self.version = 0

    @property
    def is_empty(self) -> bool:
        """True before the first measurement."""
        return not self._known

    def has(self, streams: int) -> bool:
        """True if any count has been measured with so many streams."""
        return streams in self._counts

    def settled(self, count: int, streams: int) -> float | None:
        """Seconds of a cell, if it has been measured often enough to judge the machine's speed by it."""
        cell = (count, streams)
        return self._known[cell] if len(self._samples.get(cell, ())) >= _SETTLED_SAMPLES else None

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
            self.version += 1

    def estimate(self, count: int, streams: int) -> float:
        """Seconds that a cell takes; from the nearest measured cells where it has not been measured."""
        cell = (count, streams)
        estimate = self._estimates.get(cell)
        if estimate is None:
            estimate = self._estimates[cell] = self._work_out(count, streams)
        return estimate

    def _work_out(self, count: int, streams: int) -> float:
        if not self._known:
            return self._shape(count, streams)
        nearest = min(self._counts, key=lambda other: (abs(log(other / streams)), other))
        if nearest != streams:
            alike = max(nearest, round(count * nearest / streams))
            return self.estimate(alike, nearest) * self._shape(count, streams) / self._shape(alike, nearest)
        counts = self._counts[streams]
        # more rows never take less time: a lucky measurement must not attract rounds to its count
        seconds = list(accumulate((self._known[(known, streams)] for known in counts), max))
        above = bisect_left(counts, count)
        if above < len(counts) and counts[above] == count:
            return seconds[above]
        if 0 < above < len(counts):
            low, high = counts[above - 1], counts[above]
            share = (count - low) / (high - low)
            return seconds[above - 1] + (seconds[above] - seconds[above - 1]) * share
        edge = 0 if above == 0 else -1
        return seconds[edge] * self._shape(count, streams) / self._shape(counts[edge], streams)


class RoundCosts:
    """Seconds of a forward by (rows, streams, widest window), and of drafting by (deepest chain, streams).

    The widest window matters where a stream's rows run one after the other: on a CPU 15 rows of 8 streams
    take half as long again if 8 of them are one stream's.

    They are seconds at one speed: when everything gets slower, since contexts grow or the machine has other
    work, a cell that was measured before must not look cheap beside one that is measured now.
    """

    def __init__(self) -> None:
        self._slowness = 1.0
        # by the class of the widest window: 1 row, 2, 3 to 4, 5 to 8, ...
        self._forwards: dict[int, CostTable] = {}
        self._draft = CostTable(lambda depth, streams: (1.0 + depth) * (1.0 + _ROW_SHARE * (streams - 1)))

    @property
    def is_empty(self) -> bool:
        """True before the first measured round."""
        return not self._forwards

    @property
    def version(self) -> int:
        """Another number whenever an estimate has changed."""
        return sum(table.version for table in self._forwards.values()) + self._draft.version

    def observe_forward(self, rows: int, streams: int, *, widest: int, seconds: float) -> None:
        """A forward over `rows` rows of `streams` streams took so long; it counts for the nearest step."""
        if seconds <= 0.0:
            return
        table = self._forwards.setdefault(_width_class(widest), CostTable(_forward_shape))
        at = streams + min(DRAFT_STEPS, key=lambda drafts: abs(drafts - (rows - streams)))
        scale = table.estimate(at, streams) / table.estimate(rows, streams)
        self._observe(table, at, streams, seconds=seconds * scale)

    def observe_draft(self, depth: int, streams: int, *, seconds: float) -> None:
        """Chains of up to `depth` drafts for `streams` streams took so long."""
        self._observe(self._draft, depth, streams, seconds=seconds)

    def forward_s(self, rows: int, streams: int, *, widest: int) -> float:
        """Seconds of a forward; from the nearest class of widths that was measured with so many streams."""
        width = _width_class(widest)
        table = self._forwards.get(width)
        if table is not None and table.has(streams):
            return table.estimate(rows, streams)
        if not self._forwards:
            return _forward_shape(rows, streams)
        nearest = min(
            self._forwards, key=lambda other: (not self._forwards[other].has(streams), abs(other - width))
        )
        share = (1.0 + _WIDTH_SHARE * width) / (1.0 + _WIDTH_SHARE * nearest)
        return self._forwards[nearest].estimate(rows, streams) * share

    def draft_s(self, depth: int, streams: int) -> float:
        """Seconds that the head takes; 0 for no drafts."""
        if not depth or not streams:
            return 0.0
        if self._draft.is_empty:
            return self.forward_s(streams, streams, widest=1) * _DRAFT_SHARE * depth
        return self._draft.estimate(depth, streams)

    def _observe(self, table: CostTable, count: int, streams: int, *, seconds: float) -> None:
        known = table.settled(count, streams)
        if known is not None and seconds > 0.0:
            change = seconds / (known * self._slowness)
            self._slowness *= min(_MOST_CHANGE, max(1 / _MOST_CHANGE, change)) ** _FOLLOW
        table.observe(count, streams, seconds=seconds / self._slowness)


def _forward_shape(rows: int, streams: int) -> float:
    return 1.0 + _ROW_SHARE * (rows - 1)


def _width_class(widest: int) -> int:
    return (widest - 1).bit_length()
