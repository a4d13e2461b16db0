"""A backend whose every failure is a `LaneError`, whatever the device library raised."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from hermitcrab.core.backend import (
    Backend,
    DraftRequest,
    Facts,
    PieceId,
    SlotId,
    StateKeeper,
    Verified,
    Window,
)
from hermitcrab.errors import DeviceFailed, DeviceMemory, LaneError
from hermitcrab.sampling.edits import Edits
from hermitcrab.sampling.logprobs import TokenLogprobs
from hermitcrab.sampling.params import Sampling


class GuardedBackend:
    """Passes each call on; any other error, and a result of the wrong size, becomes `DeviceFailed`."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def facts(self) -> Facts:
        return self._backend.facts()

    def prefill(self, slot: SlotId, position: int, tokens: Sequence[int]) -> None:
        with _lane_errors("a prompt pass"):
            self._backend.prefill(slot, position, tokens)

    def draw_first(self, slot: SlotId, position: int, sampling: Sampling, edits: Edits | None = None) -> int:
        with _lane_errors("the first draw"):
            return self._backend.draw_first(slot, position, sampling, edits)

    def first_logprobs(self, slot: SlotId, token: int, top: int) -> TokenLogprobs:
        with _lane_errors("the first draw"):
            return self._backend.first_logprobs(slot, token, top)

    def verify(self, windows: Sequence[Window]) -> list[Verified]:
        with _lane_errors("a round"):
            verified = self._backend.verify(windows)
        drawn_rows = [len(result.drawn) for result in verified]
        if drawn_rows != [len(window.tokens) for window in windows]:
            raise DeviceFailed(f"a round of {len(windows)} windows came back with {drawn_rows} draws")
        asked_rows = [0 if window.top_logprobs is None else len(window.tokens) for window in windows]
        if [len(result.logprobs) for result in verified] != asked_rows:
            raise DeviceFailed(f"a round of {len(windows)} windows came back without its log probabilities")
        return verified

    def keep(self, slot: SlotId, rows: int) -> None:
        with _lane_errors("keeping a window"):
            self._backend.keep(slot, rows)

    def draft(self, requests: Sequence[DraftRequest]) -> list[tuple[int, ...]]:
        with _lane_errors("drafting"):
            drafts = self._backend.draft(requests)
        if len(drafts) != len(requests):
            raise DeviceFailed(f"drafting for {len(requests)} streams came back for {len(drafts)}")
        return drafts

    def move(self, source: SlotId, target: SlotId) -> None:
        with _lane_errors("a move"):
            self._backend.move(source, target)

    def release(self, slot: SlotId) -> None:
        with _lane_errors("emptying a session"):
            self._backend.release(slot)

    def keeper(self) -> StateKeeper | None:
        keeper = self._backend.keeper()
        return None if keeper is None else GuardedKeeper(keeper)


class GuardedKeeper:
    """Passes each call on; any other error becomes `DeviceFailed`."""

    def __init__(self, keeper: StateKeeper) -> None:
        self._keeper = keeper

    def save_rows(self, slot: SlotId, piece: PieceId, start: int) -> None:
        with _lane_errors("keeping rows"):
            self._keeper.save_rows(slot, piece, start)

    def save_end(self, slot: SlotId, piece: PieceId) -> None:
        with _lane_errors("keeping a state"):
            self._keeper.save_end(slot, piece)

    def restore(self, slot: SlotId, rows: Sequence[PieceId], end: PieceId) -> None:
        with _lane_errors("restoring a state"):
            self._keeper.restore(slot, rows, end)

    def drop(self, piece: PieceId) -> None:
        with _lane_errors("dropping a state"):
            self._keeper.drop(piece)


@contextmanager
def _lane_errors(what: str) -> Iterator[None]:
    try:
        yield
    except LaneError:
        raise
    except MemoryError as error:
        raise DeviceMemory(f"{what} failed for want of memory: {error}") from error
    except Exception as error:
        raise DeviceFailed(f"{what} failed: {error}") from error
