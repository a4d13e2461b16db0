"""When to do without drafts although they pay: what a round costs without them must be known to compare."""

from dataclasses import dataclass

# a probe costs what drafts would have brought, so their number is bounded: ever more rarely, to one in 256
_FIRST_ROUNDS = 8
_MOST_ROUNDS = 256


@dataclass(slots=True)
class _Watch:
    """Drafted rounds since the last one without drafts, and how many make a probe due."""

    rounds: int = 0
    interval: int = _FIRST_ROUNDS


class Probes:
    """Counts rounds by their number of streams; the same rounds, the same probes."""

    def __init__(self) -> None:
        self._watches: dict[int, _Watch] = {}

    def note_plain(self, streams: int) -> None:
        """A round of so many streams had no drafts anyway."""
        self._watch(streams).rounds = 0

    def is_due(self, streams: int) -> bool:
        """Count a round of so many streams that would draft; True if it should not."""
        watch = self._watch(streams)
        watch.rounds += 1
        if watch.rounds < watch.interval:
            return False
        watch.rounds, watch.interval = 0, min(2 * watch.interval, _MOST_ROUNDS)
        return True

    def _watch(self, streams: int) -> _Watch:
        return self._watches.setdefault(streams, _Watch())
