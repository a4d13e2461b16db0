"""The check at load: it passes where rows are their own, and switches off exactly what is not."""

import logging
from collections.abc import Callable, Sequence

import pytest
import torch

from hermitcrab.clock import ScriptedClock
from hermitcrab.core.backend import SlotId, Verified, Window
from hermitcrab.core.load_check import CheckState, LoadCheck
from hermitcrab.engine.backend import Limits, LogitsWatch, TorchBackend
from hermitcrab.engine.build import build_backend
from hermitcrab.engine.selfcheck import check_exactness
from hermitcrab.errors import DeviceFailed, StateNotSettled
from hermitcrab.kernels.deltanet import CHUNK_ROWS
from hermitcrab.kernels.measures import Measures
from hermitcrab.models.qwen4_exp.checkpoint import Checkpoint
from hermitcrab.models.qwen4_exp.model import Model
from hermitcrab.models.qwen4_exp.state import Sessions
from hermitcrab.sampling.params import Sampling

GREEDY = Sampling()
WINDOW_ROWS = 4


class FaultyBackend(TorchBackend):
    """Its logits are off by one bit in the last row of rounds that `is_faulty`, as by a bad kernel."""

    def __init__(
        self, checkpoint: Checkpoint, session_rows: Sequence[int], is_faulty: Callable[[Sequence[int]], bool]
    ) -> None:
        model = Model(checkpoint, dtype=torch.float32, context_rows=max(session_rows), measures=Measures())
        limits = Limits(
            row_limit=16,
            window_rows=WINDOW_ROWS,
            draft_depth=WINDOW_ROWS - 1,
            prompt_grid_rows=CHUNK_ROWS,
            prompt_pass_rows=CHUNK_ROWS,
        )
        super().__init__(model, Sessions(checkpoint.config, session_rows, torch.float32), limits, threads=1)
        self._is_faulty = is_faulty
        self._is_off = False

    def verify(self, windows: Sequence[Window]) -> list[Verified]:
        self._is_off = self._is_faulty([len(window.tokens) for window in windows])
        return super().verify(windows)

    def watch_logits(self, watch: LogitsWatch | None) -> None:
        def shown(logits: torch.Tensor) -> None:
            assert watch is not None
            seen = logits.clone()
            if self._is_off:
                seen[-1, 7] = torch.nextafter(seen[-1, 7], torch.tensor(torch.inf))
            watch(seen)

        super().watch_logits(None if watch is None else shown)


def check(backend: TorchBackend) -> LoadCheck:
    return check_exactness(backend, ScriptedClock())


def faulty(
    checkpoint: Checkpoint,
    is_faulty: Callable[[Sequence[int]], bool],
    session_rows: Sequence[int] = (128, 64),
) -> LoadCheck:
    return check(FaultyBackend(checkpoint, session_rows, is_faulty))


def healthy(checkpoint: Checkpoint, *session_rows: int) -> TorchBackend:
    return build_backend(checkpoint, dtype="float32", session_rows=session_rows, threads=1, draft_depth=3)


def first_tokens(backend: TorchBackend, slot: int) -> list[int]:
    """A prompt and a few rounds from an empty session."""
    place, prompt = SlotId(slot), tuple(range(3, 40))
    backend.prefill(place, 0, prompt)
    tokens = [backend.draw_first(place, len(prompt), GREEDY)]
    for row in range(4):
        window = Window(place, len(prompt) + row, (tokens[-1],), GREEDY)
        tokens += backend.verify([window])[0].drawn
        backend.keep(place, 1)
    backend.release(place)
    return tokens


def test_a_backend_whose_rows_are_their_own_passes_on_both_sides_of_the_boundary(
    checkpoint: Checkpoint,
) -> None:
    backend = healthy(checkpoint, 128, 64, 64)
    found = check(backend)
    assert found.state is CheckState.PASSED
    near, far = found.prompt_tokens
    assert near + WINDOW_ROWS < backend.boundary_tokens <= far + 1
    assert (found.off_widths, found.is_sharing_off, found.reasons, found.unchecked) == ((), False, (), ())


def test_the_boundary_is_the_first_row_that_may_leave_out_keys(checkpoint: Checkpoint) -> None:
    indexer = checkpoint.config.indexer
    boundary = healthy(checkpoint, 64).boundary_tokens
    # the row after so many tokens sees its own block whole, and with it more blocks than it may read
    assert (boundary + 1) // indexer.block_tokens == indexer.budget_blocks + 1
    assert boundary // indexer.block_tokens == indexer.budget_blocks


def test_it_leaves_the_sessions_empty_and_the_replies_as_they_were(checkpoint: Checkpoint) -> None:
    checked, fresh = healthy(checkpoint, 128, 96, 64), healthy(checkpoint, 128, 96, 64)
    check(checked)
    for slot in range(3):
        assert first_tokens(checked, slot) == first_tokens(fresh, slot)


@pytest.mark.parametrize("session_rows", [(128, 64), (128, 24), (128,)], ids=["copied", "refilled", "alone"])
@pytest.mark.parametrize("width", [2, 3, 4])
def test_a_width_that_differs_is_off_and_the_others_are_not(
    checkpoint: Checkpoint, width: int, session_rows: Sequence[int]
) -> None:
    found = faulty(checkpoint, lambda rows: rows == [width], session_rows)
    assert found.state is CheckState.REDUCED
    assert found.off_widths == (width,)
    assert not found.is_sharing_off


def test_a_shared_round_that_differs_switches_sharing_off_and_no_width(checkpoint: Checkpoint) -> None:
    found = faulty(checkpoint, lambda rows: len(rows) > 1)
    assert (found.off_widths, found.is_sharing_off) == ((), True)


def test_sharing_is_checked_with_unequal_windows_too(checkpoint: Checkpoint) -> None:
    assert faulty(checkpoint, lambda rows: rows == [1, WINDOW_ROWS]).is_sharing_off
    assert faulty(checkpoint, lambda rows: rows == [WINDOW_ROWS, 1]).is_sharing_off


def test_a_width_that_is_off_is_not_held_against_sharing(checkpoint: Checkpoint) -> None:
    found = faulty(checkpoint, lambda rows: WINDOW_ROWS in rows)
    assert (found.off_widths, found.is_sharing_off) == ((WINDOW_ROWS,), False)


def test_the_reason_names_the_part_the_row_and_both_logits(
    checkpoint: Checkpoint, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="hermitcrab"):
        found = faulty(checkpoint, lambda rows: rows == [3])
    (reason,) = found.reasons
    near = found.prompt_tokens[0]
    # the second window, so one row behind the prompt; the fault is in its last row
    assert reason.startswith(f"windows of 3 rows: after position {near + 1 + 2} token 7 has the logit ")
    assert reason.endswith(" in a step of its own")
    assert [record.getMessage() for record in caplog.records] == [f"switched off: {reason}"]


def test_what_is_off_is_refused_by_the_backend(checkpoint: Checkpoint) -> None:
    backend = healthy(checkpoint, 128, 64)
    backend.take_check(LoadCheck(CheckState.REDUCED, off_widths=(2,), is_sharing_off=True))
    for slot in (0, 1):
        backend.prefill(SlotId(slot), 0, (5, 6, 7))
    with pytest.raises(StateNotSettled, match="2 rows"):
        backend.verify([Window(SlotId(0), 3, (1, 2), GREEDY)])
    with pytest.raises(StateNotSettled, match="share"):
        backend.verify([Window(SlotId(slot), 3, (1,), GREEDY) for slot in (0, 1)])
    assert len(backend.verify([Window(SlotId(0), 3, (1, 2, 3), GREEDY)])[0].drawn) == 3
    assert backend.facts().exact_widths == (1, 3, 4)
    assert backend.facts().stream_limit == 1


def test_with_one_session_sharing_is_said_to_be_unchecked(checkpoint: Checkpoint) -> None:
    found = check(healthy(checkpoint, 128))
    assert found.state is CheckState.PASSED
    assert found.unchecked == ("rounds of several streams, for want of a second session",)


def test_a_side_that_no_session_reaches_is_said_to_be_unchecked(checkpoint: Checkpoint) -> None:
    found = check(healthy(checkpoint, 20, 20))
    assert found.state is CheckState.PASSED
    assert len(found.prompt_tokens) == 1
    assert found.unchecked == ("a stream of 18 tokens, which no session of at most 20 rows holds",)


def test_sessions_too_small_for_anything_leave_the_check_not_run(checkpoint: Checkpoint) -> None:
    found = check(healthy(checkpoint, 4, 4))
    assert found.state is CheckState.NOT_RUN
    assert len(found.unchecked) == 2


def test_a_device_that_fails_ends_the_check_with_its_error_and_the_sessions_empty(
    checkpoint: Checkpoint,
) -> None:
    def fail(rows: Sequence[int]) -> bool:
        if rows == [2]:
            raise DeviceFailed("the device has gone")
        return False

    backend = FaultyBackend(checkpoint, (128, 64), fail)
    with pytest.raises(DeviceFailed, match="gone"):
        check(backend)
    for slot in (0, 1):
        backend.prefill(SlotId(slot), 0, (5, 6, 7))
