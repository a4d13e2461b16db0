"""What work takes in a simulation: ms of rounds, prompt rows and moves, bytes of sessions."""

import json
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from hermitcrab.core.records import built
from hermitcrab.errors import TrailError


@dataclass(frozen=True)
class RoundCost:
    """A measured round: so many streams, so many rows over all of them, so many ms."""

    streams: int
    rows: int
    ms: float


@dataclass(frozen=True)
class DraftGain:
    """What drafting brings: windows of so many rows give so many tokens on average."""

    window_rows: int
    tokens: float


@dataclass(frozen=True)
class Costs:
    """Ms of work and bytes of sessions; `source` says where the numbers come from.

    A session of n rows has `session_bytes + n * row_bytes` bytes. A move takes `move_ms` and `move_row_ms`
    for each row it copies. Where `drafting` pays at a number of streams, rounds draft.

    Raises TrailError for numbers that no device has.
    """

    source: str
    rounds: tuple[RoundCost, ...]
    prompt_row_ms: float
    move_ms: float
    move_row_ms: float
    session_bytes: int
    row_bytes: int
    drafting: DraftGain | None = None

    def __post_init__(self) -> None:
        numbers = (self.prompt_row_ms, self.move_ms, self.move_row_ms, self.session_bytes)
        if not self.rounds or min(numbers) < 0 or self.row_bytes < 1:
            raise TrailError("costs: at least one round is needed, times and bytes below 0 are not allowed.")
        if any(cost.ms <= 0 or not 1 <= cost.streams <= cost.rows for cost in self.rounds):
            raise TrailError("costs: a round needs ms above 0 and at least a row for each stream.")
        gain = self.drafting
        if gain is not None and not 1 < gain.tokens <= gain.window_rows:
            raise TrailError("costs: drafting gives more than 1 token a window, and at most one a row.")

    def round_ms(self, *, streams: int, rows: int) -> float:
        """A round's ms: in straight lines between the table's, over streams and over rows a stream.

        Beyond the table the last line goes on; where it has no windows, a draft costs as a stream does.
        """
        width = rows / streams
        widths = sorted(self._lines)
        if len(widths) == 1:
            return _line(self._lines[widths[0]], streams * width / widths[0])
        return _line([(known, _line(self._lines[known], streams)) for known in widths], width)

    def token_ms(self, streams: int) -> float:
        """Ms until each of so many streams has one more token, drafting if that is faster."""
        plain_ms = self.round_ms(streams=streams, rows=streams)
        gain = self.drafting
        if gain is None:
            return plain_ms
        drafted_ms = self.round_ms(streams=streams, rows=streams * gain.window_rows)
        return min(plain_ms, drafted_ms / gain.tokens)

    def bytes_of(self, rows: int) -> int:
        """Bytes of a session of so many rows."""
        return self.session_bytes + rows * self.row_bytes

    @cached_property
    def _lines(self) -> dict[float, list[tuple[float, float]]]:
        """By rows a stream: (streams, ms), ascending."""
        lines: dict[float, list[tuple[float, float]]] = {}
        for cost in sorted(self.rounds, key=lambda cost: cost.streams):
            lines.setdefault(cost.rows / cost.streams, []).append((cost.streams, cost.ms))
        return lines


def _line(points: Sequence[tuple[float, float]], at: float) -> float:
    """Straight lines through points; the first point's value below it, the last line beyond the last."""
    if len(points) == 1 or at <= points[0][0]:
        return points[0][1]
    above = min(bisect_right([x for x, _ in points], at), len(points) - 1)
    (left, low), (right, high) = points[above - 1], points[above]
    return low + (high - low) * (at - left) / (right - left)


def read_costs(path: Path) -> Costs:
    """The table in a JSON file, with the fields of `Costs`. Raises TrailError if it is none."""
    try:
        costs: Costs = built(Costs, json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise TrailError(f"{path}: cannot be read: {error.strerror}") from error
    except (TypeError, ValueError, AttributeError) as error:
        raise TrailError(f"{path}: not a table of costs: {error}") from error
    return costs


def _doubling(streams_ms: Iterable[tuple[int, float]]) -> tuple[RoundCost, ...]:
    return tuple(RoundCost(streams=streams, rows=streams, ms=ms) for streams, ms in streams_ms)


# llama.cpp's batched decoding and prompt passes on 12 and 24 layers of the 48, extrapolated over layers by a
# straight line; moves from the bytes and the card's copy bandwidth of 4.28 TB/s, each byte read and written
H200_COSTS = Costs(
    source=(
        "Qwen3.8-Flash-Next at 6 bits on one H200, not measured whole: llama.cpp's rounds of 1, 8 and 16 "
        "streams and its prompt passes on slices of 12 and 24 layers, drawn out to 48 by a straight line; no "
        "drafts; moves from the bytes of a session and the card's copy bandwidth"
    ),
    rounds=_doubling(((1, 11.5), (8, 29.5), (16, 52.5))),
    prompt_row_ms=1000 / 2840,
    move_ms=2 * 115.5e6 / 4.28e9,
    move_row_ms=2 * 30_784 / 4.28e9,
    session_bytes=115_500_000,
    row_bytes=30_784,
)
