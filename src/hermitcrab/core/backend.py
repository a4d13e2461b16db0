"""The device boundary, whole: everything the lane core asks of an engine, and nothing else.

A backend owns one *session* a slot: the device state of at most one stream, with a fixed capacity in rows.
The core decides which slot a stream sits in; the backend never does. Every call names the slot and the
absolute position it starts at, so that a backend can refuse a call that does not follow from the session's
state.

Life of a session: `prefill` (one or more passes from position 0) -> `draw_first` -> rounds, each a `draft` if
the stream is to draft, a `verify` and a `keep` -> `release`. Between `verify` and `keep` the session is
unsettled: it may only be kept or released. `move` may come at any settled moment, `draft` as well. An empty
session may also begin with a `restore` of what a `StateKeeper` has kept of another one's prompt.

All calls come from one thread. A call that fails raises a `LaneError`; the sessions it named may then only
be released.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NewType, Protocol

from hermitcrab.cache.store import PieceCosts
from hermitcrab.core.load_check import NOT_RUN, LoadCheck
from hermitcrab.sampling.edits import Edits
from hermitcrab.sampling.logprobs import TokenLogprobs
from hermitcrab.sampling.params import Sampling

SlotId = NewType("SlotId", int)
PieceId = NewType("PieceId", int)


@dataclass(frozen=True, slots=True)
class Facts:
    """What a backend can do; fixed once it has loaded.

    `session_rows` is each slot's capacity in rows, by slot. `row_limit` bounds the rows of one `verify`
    over all streams, `window_rows` the rows of one stream's window in it (1: drafts are never verified).
    `draft_depth` is the deepest chain of its draft head (0: it has no head). `backlog_rows` is how many
    settled rows of a session may wait for the head; with one more, the session's head is lost for good.
    Prompt passes start at multiples of `prompt_grid_rows` and end at one, or at the prompt's end, so that a
    prompt row's bits do not depend on how the prompt was cut; `prompt_pass_rows` (a multiple of the grid) is
    the longest pass it takes. `load_check` names widths and sharing that are switched off. `piece_costs` is
    what kept states take; None: it keeps none.
    """

    vocab_tokens: int
    session_rows: tuple[int, ...]
    row_limit: int
    window_rows: int
    draft_depth: int
    backlog_rows: int
    prompt_grid_rows: int
    prompt_pass_rows: int
    load_check: LoadCheck = NOT_RUN
    piece_costs: PieceCosts | None = None

    @property
    def exact_widths(self) -> tuple[int, ...]:
        """Rows a window may have, ascending; one row always is among them."""
        return tuple(
            rows for rows in range(1, self.window_rows + 1) if rows not in self.load_check.off_widths
        )

    @property
    def stream_limit(self) -> int:
        """The most streams of one round."""
        return 1 if self.load_check.is_sharing_off else self.row_limit


@dataclass(frozen=True, slots=True)
class Window:
    """The rows one stream puts into a round.

    `tokens[0]` is the pending token (drawn, not yet in the session), the rest are drafts. `position` is the
    absolute position of `tokens[0]`, which is also the session's settled length in rows. `edits` is empty or
    has those of each row. `top_logprobs` asks for each row's log probabilities, with so many alternatives.
    """

    slot: SlotId
    position: int
    tokens: tuple[int, ...]
    sampling: Sampling
    edits: tuple[Edits | None, ...] = ()
    top_logprobs: int | None = None


@dataclass(frozen=True, slots=True)
class Verified:
    """The target's own draws for one window: `drawn[i]` is the token after row i, at position + i + 1.

    `logprobs[i]` is what row i says of `drawn[i]`, where the window asked for it; empty otherwise.
    """

    drawn: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...] = ()


@dataclass(frozen=True, slots=True)
class DraftRequest:
    """All settled rows that the draft head has not absorbed yet, and how many drafts to chain behind them.

    `next_tokens[i]` is the token that follows row `position + i`; the rows end at the session's settled
    length, so the last of them is the stream's new pending token. `depth` 0 absorbs and drafts nothing.
    """

    slot: SlotId
    position: int
    next_tokens: tuple[int, ...]
    depth: int
    sampling: Sampling


class StateKeeper(Protocol):
    """Keeps prompt states: pieces of rows, and ends, under numbers that the core gives.

    A state is the rows of a session from 0 on, in one or more pieces, and its end: all that a session has
    beside its rows. Only prompt rows are kept, on the prompt grid. A call that fails leaves no piece behind,
    and but for `restore` every session as it was.
    """

    def save_rows(self, slot: SlotId, piece: PieceId, start: int) -> None:
        """Keep a copy of the settled session's rows from `start` up to its length; both lie on the grid.

        Raises StateNotSettled for a session that is unsettled, off the grid, or past its prompt; LaneMemory
        or DeviceFailed if the copy cannot be made.
        """
        ...

    def save_end(self, slot: SlotId, piece: PieceId) -> None:
        """Keep a copy of what else the session has where it ends now. Raises what `save_rows` does."""
        ...

    def restore(self, slot: SlotId, rows: Sequence[PieceId], end: PieceId) -> None:
        """Make an empty session what it was when `end` was saved, bit for bit; the pieces stay.

        `rows` follow each other from row 0 to the end. Raises StateNotSettled if they do not, or do not fit
        into the session.
        """
        ...

    def drop(self, piece: PieceId) -> None:
        """Let a piece go; one that is not kept is passed over."""
        ...


class Backend(Protocol):
    """An engine as the core sees it."""

    def facts(self) -> Facts:
        """What this backend can do; the same value at every call."""
        ...

    def prefill(self, slot: SlotId, position: int, tokens: Sequence[int]) -> None:
        """Run one prompt pass: rows `position .. position + len(tokens)` of the slot's session.

        A pass at position 0 needs an empty session. Leaves the session settled.
        Raises StateNotSettled if the position is not the session's length; DeviceFailed if the device does.
        """
        ...

    def draw_first(self, slot: SlotId, position: int, sampling: Sampling, edits: Edits | None = None) -> int:
        """Draw the first token from the last prompt row; it will stand at `position`, the length."""
        ...

    def first_logprobs(self, slot: SlotId, token: int, top: int) -> TokenLogprobs:
        """What the row of `draw_first` says of the token it gave; asked before the session's first window."""
        ...

    def verify(self, windows: Sequence[Window]) -> list[Verified]:
        """Run all windows in one forward and draw after every row; one result a window, in order.

        Each session is unsettled until its `keep`.
        """
        ...

    def keep(self, slot: SlotId, rows: int) -> None:
        """Keep the first `rows` (at least 1) of the slot's window; the rest are as if never run."""
        ...

    def draft(self, requests: Sequence[DraftRequest]) -> list[tuple[int, ...]]:
        """Absorb settled rows into the draft head and draw drafts for the tokens after the pending one.

        Returns at most `depth` drafts a request, in order. Each request's rows must follow the last
        absorbed one. How rows were gathered may change the head's bits, since they change drafts only.
        """
        ...

    def move(self, source: SlotId, target: SlotId) -> None:
        """Copy a settled session into a larger empty one, bit for bit; the source stays valid until released.

        Raises StateNotSettled if a window awaits its keep; LaneMemory if the target cannot be had now (the
        stream waits and tries again); DeviceFailed if the copy fails.
        """
        ...

    def release(self, slot: SlotId) -> None:
        """Empty the slot's session, whatever its state. Never raises for a legal or failed one."""
        ...

    def keeper(self) -> StateKeeper | None:
        """Where prompt states are kept; None for a backend that keeps none, whose facts say so."""
        ...
