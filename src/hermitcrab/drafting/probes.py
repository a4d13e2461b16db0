"""When to look at the other side: a round without drafts while they pay, a few drafts while they do not."""

from dataclasses import dataclass

# a look costs part of one round, so their number is bounded: the first ones come soon, then ever more rarely
_FIRST_ROUNDS = 2
_MOST_ROUNDS = 256

# after drafts have begun or ceased to pay the next look comes within so many rounds
_CHANGED_ROUNDS = 16


@dataclass(slots=True)
class _Watch:
    """Rounds since the last look or change, rounds until the next look, and what was chosen last."""

    rounds: int = 0
    interval: int = _FIRST_ROUNDS
    was_drafting: bool | None = None


class Probes:
    """Counts rounds by their number of streams, and says when a look is due."""

    def __init__(self) -> None:
        self._watches: dict[int, _Watch] = {}

    def is_due(self, streams: int, *, is_drafting: bool) -> bool:
        """Count a round of so many streams that would draft or would not; True if it should do the other."""
        watch = self._watches.setdefault(streams, _Watch())
        if watch.was_drafting not in (None, is_drafting):
            watch.rounds, watch.interval = 0, min(watch.interval, _CHANGED_ROUNDS)
        watch.was_drafting = is_drafting
        watch.rounds += 1
        if watch.rounds < watch.interval:
            return False
        watch.rounds, watch.interval = 0, min(2 * watch.interval, _MOST_ROUNDS)
        return True
