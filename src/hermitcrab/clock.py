"""The only reader of time: logic takes a `Clock`, so that tests can script one."""

import time
from typing import Protocol


class Clock(Protocol):
    """Monotonic seconds, and the date where a reply has to show one."""

    def now_s(self) -> float:
        """Seconds that only grow, from an arbitrary start."""
        ...

    def unix_s(self) -> int:
        """Whole seconds since 1970, for timestamps that people read."""
        ...


class WallClock:
    """The machine's clocks."""

    def now_s(self) -> float:
        return time.monotonic()

    def unix_s(self) -> int:
        return int(time.time())


class ScriptedClock:
    """A clock that moves only when told to."""

    def __init__(self, start_s: float = 0.0) -> None:
        self._now_s = start_s

    def now_s(self) -> float:
        return self._now_s

    def unix_s(self) -> int:
        return int(self._now_s)

    def advance(self, seconds: float) -> None:
        """Move forward; a clock never goes back."""
        assert seconds >= 0, "a clock never goes back"
        self._now_s += seconds
