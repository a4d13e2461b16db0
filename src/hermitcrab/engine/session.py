"""What the backend knows about each session beside its tensors: how far it is, and whether it is settled."""

from dataclasses import dataclass, field

from torch import Tensor

from hermitcrab.errors import StateNotSettled
from hermitcrab.models.qwen4_exp.plan import Plan


@dataclass(frozen=True, slots=True)
class OpenWindow:
    """A window that awaits its keep: its place among the spans of its forward, and its rows' streams."""

    plan: Plan
    place: int
    streams: Tensor

    @property
    def rows(self) -> int:
        """Rows of the window."""
        return len(self.plan.spans[self.place].tokens)


@dataclass(slots=True)
class SessionRecord:
    """One session's progress; owned by the backend, changed on the engine thread.

    `rows` are settled, the last `reply_rows` of them by windows. The draft head has absorbed `head_rows` of
    them; `fresh`, in pieces [count, streams, hidden], are the residual streams of the rows since, which it
    absorbs next. The last settled row is among them until it is absorbed.
    """

    slot: int
    capacity_rows: int
    rows: int = 0
    reply_rows: int = 0
    head_rows: int = 0
    fresh: list[Tensor] = field(default_factory=list)
    window: OpenWindow | None = None

    def settle(self, streams: Tensor, *, backlog_rows: int) -> None:
        """Add rows with these residual streams; the head loses its place if too many wait for it."""
        # a copy, so that the streams of the round's other rows can go
        self.fresh.append(streams.clone())
        self.rows += streams.shape[0]
        self.reply_rows += streams.shape[0]
        if self.rows - self.head_rows > backlog_rows:
            self.fresh = [self.fresh[-1][-1:].clone()]

    def check_settled(self, position: int) -> None:
        """Raises StateNotSettled unless no window is open and the session ends at `position`."""
        if self.window is not None:
            raise StateNotSettled(f"session {self.slot} has a window that awaits its keep")
        if position != self.rows:
            raise StateNotSettled(
                f"session {self.slot} has {self.rows} rows; position {position} does not follow"
            )

    def check_room(self, rows: int) -> None:
        """Raises StateNotSettled if so many more rows pass the session's capacity."""
        if self.rows + rows > self.capacity_rows:
            raise StateNotSettled(
                f"session {self.slot} holds {self.capacity_rows} rows; {self.rows} and {rows} more do not fit"
            )
