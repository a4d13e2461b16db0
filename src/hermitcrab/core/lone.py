"""The lone driver: the only stream there is runs round after round, with nothing to decide between them.

While nobody waits and one live stream is all there is, a round needs no choice of streams, no share of the
time, no admission, and no room until the stream comes near its session's end. The rounds are the same rounds,
so the tokens are the same; whenever anything else has to be decided the stream goes on in shared rounds.
"""

from collections.abc import Sequence

from hermitcrab.core.admission import Sizing
from hermitcrab.core.slots import SlotTable, Standing, stays
from hermitcrab.core.status import Totals
from hermitcrab.core.stream import Stream


class LoneDriver:
    """Says whom to drive, and counts the hand-overs both ways."""

    def __init__(self, table: SlotTable, sizing: Sizing, totals: Totals) -> None:
        self._table = table
        self._sizing = sizing
        self._totals = totals
        self._driven: Stream | None = None

    def take(self, streams: Sequence[Stream]) -> Stream | None:
        """The stream to drive, if the admitted `streams` are only one, and it needs nothing but a round."""
        stream = streams[0] if len(streams) == 1 else None
        if stream is None or not self._may_drive(stream):
            self.hand_back()
            return None
        if stream is not self._driven:
            self._driven = stream
            self._totals.handed_to_lone += 1
        return stream

    def hand_back(self) -> None:
        """The driven stream, if it goes on, does so in shared rounds."""
        if self._driven is not None and not self._driven.is_finished:
            self._totals.handed_to_shared += 1
        self._driven = None

    def _may_drive(self, stream: Stream) -> bool:
        return stream.is_live and not self._table.unclean and self._has_room(stream)

    def _has_room(self, stream: Stream) -> bool:
        if self._sizing.grow_tokens is None:
            return True
        standing = Standing(
            rows=stream.window.rows,
            remaining_tokens=stream.remaining_tokens,
            end_rows=stream.limits.end_rows,
            capacity_rows=self._table.capacity(stream.home),
        )
        return stays(standing, window_rows=self._sizing.window_rows)
