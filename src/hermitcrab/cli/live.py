"""What a terminal shows while the server loads and runs: a progress bar, then one line of status."""

import logging
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from hermitcrab.core.api import Lanes, Status, StreamState

logger = logging.getLogger(__name__)

_REFRESHES_PER_S = 4


class Loading:
    """Shows how far loading has come: a bar in a terminal, elsewhere a log line a stage."""

    def __init__(self, console: Console) -> None:
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Note that a stage has `done` of `total` behind it, in whatever unit."""
        if stage not in self._tasks:
            self._tasks[stage] = self._bars.add_task(stage, total=total)
            if self._bars.disable:
                logger.info("%s", stage)
        self._bars.update(self._tasks[stage], completed=done, total=total)


class StatusLine:
    """The lanes in one line, fresh each time it is drawn."""

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes

    def __rich__(self) -> Text:
        return Text(status_words(self._lanes.status()), style="dim", no_wrap=True, overflow="ellipsis")


def status_words(status: Status) -> str:
    """Requests by what they do, sessions in use, tokens a second, and the drafts that landed so far."""
    states = [stream.state for stream in status.streams]
    waiting, paused = states.count(StreamState.QUEUED), states.count(StreamState.PAUSED)
    used = sum(session.request_id is not None for session in status.sessions)
    parts = [
        f"{len(states) - waiting - paused} running, {waiting} waiting, {paused} paused",
        f"sessions {used}/{len(status.sessions)}",
        f"{status.tokens_per_s:.1f} tok/s",
    ]
    if status.drafted:
        parts.append(f"{100 * status.accepted / status.drafted:.0f} % of drafts accepted")
    return " | ".join(parts)


def status_display(lanes: Lanes, console: Console) -> Live:
    """A display of the status line for a terminal; use it as a context."""
    return Live(StatusLine(lanes), console=console, refresh_per_second=_REFRESHES_PER_S, transient=True)
