"""`TorchBackend`: the core's device boundary over a model, its sessions and its draft head."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from hermitcrab.core.backend import DraftRequest, Facts, SlotId, StateKeeper, Verified, Window
from hermitcrab.core.load_check import NOT_RUN, LoadCheck
from hermitcrab.engine.draws import draw_rows
from hermitcrab.engine.heads import absorb_prompt, draft_rounds
from hermitcrab.engine.logprobs import row_logprobs
from hermitcrab.engine.session import OpenWindow, SessionRecord
from hermitcrab.engine.states import KeptStates, piece_costs
from hermitcrab.errors import DeviceFailed, DeviceMemory, StateNotSettled
from hermitcrab.kernels.deltanet import CHUNK_ROWS
from hermitcrab.models.qwen4_exp.config import ModelConfig
from hermitcrab.models.qwen4_exp.model import Model
from hermitcrab.models.qwen4_exp.plan import Span
from hermitcrab.models.qwen4_exp.state import Sessions
from hermitcrab.sampling.edits import Edits
from hermitcrab.sampling.logprobs import TokenLogprobs
from hermitcrab.sampling.params import Sampling

# rows that may wait for the head: a reply of common length that does not draft never pays for absorbing; of
# a model with 4 streams of 4,096 bfloat16 numbers they take 8 MiB a session
BACKLOG_ROWS = 256

# gets the logits [rows, vocabulary] float32 of every draw from the trunk, before it, on the engine thread
LogitsWatch = Callable[[Tensor], None]


@dataclass(frozen=True, slots=True)
class Limits:
    """What the backend takes at once, in rows and drafts, and the grid and rows of prompt passes.

    Of each session `backlog_rows` rows' residual streams are kept for the head at most.
    """

    row_limit: int
    window_rows: int
    draft_depth: int
    prompt_grid_rows: int
    prompt_pass_rows: int
    backlog_rows: int = BACKLOG_ROWS


def boundary_tokens(config: ModelConfig) -> int:
    """The length from which the next row sees more finished blocks than attention reads."""
    return (config.indexer.budget_blocks + 1) * config.indexer.block_tokens - 1


class TorchBackend:
    """Implements `Backend` of core/backend.py on one device; all calls from one thread."""

    def __init__(self, model: Model, sessions: Sessions, limits: Limits, *, threads: int) -> None:
        self._model = model
        self._sessions = sessions
        self._limits = limits
        self._threads = threads
        self._thread: int | None = None
        self._records = [SessionRecord(slot, rows) for slot, rows in enumerate(sessions.rows)]
        grid_rows = limits.prompt_grid_rows
        self._piece_costs = piece_costs(model.config, model.dtype, grid_rows=grid_rows)
        self._states = KeptStates(sessions, self._records, self._device, grid_rows=grid_rows)
        self._load_check = NOT_RUN
        self._watch: LogitsWatch | None = None
        self._widths = self.facts().exact_widths

    @property
    def boundary_tokens(self) -> int:
        """The length from which the next row may leave out keys before it."""
        return boundary_tokens(self._model.config)

    @property
    def threads(self) -> int:
        """Threads that it computes with."""
        return self._threads

    def take_check(self, check: LoadCheck) -> None:
        """Take in what the check at load found, before the first stream: `facts` are fixed from then on."""
        self._load_check = check
        self._widths = self.facts().exact_widths

    def watch_logits(self, watch: LogitsWatch | None) -> None:
        """Show the logits of every row that tokens are drawn from to `watch`; None ends that."""
        self._watch = watch

    def facts(self) -> Facts:
        return Facts(
            vocab_tokens=self._model.config.vocab_tokens,
            session_rows=self._sessions.rows,
            row_limit=self._limits.row_limit,
            window_rows=self._limits.window_rows,
            draft_depth=self._limits.draft_depth,
            backlog_rows=self._limits.backlog_rows,
            prompt_grid_rows=self._limits.prompt_grid_rows,
            prompt_pass_rows=self._limits.prompt_pass_rows,
            load_check=self._load_check,
            piece_costs=self._piece_costs,
        )

    def prefill(self, slot: SlotId, position: int, tokens: Sequence[int]) -> None:
        record = self._records[slot]
        record.check_settled(position)
        record.check_room(len(tokens))
        if position % self._limits.prompt_grid_rows or not tokens:
            raise StateNotSettled(f"a prompt pass of {len(tokens)} rows cannot start at {position}")
        with self._device("a prompt pass"):
            for start in range(0, len(tokens), CHUNK_ROWS):
                self._prefill_chunk(record, tuple(tokens[start : start + CHUNK_ROWS]))

    def draw_first(self, slot: SlotId, position: int, sampling: Sampling, edits: Edits | None = None) -> int:
        record = self._records[slot]
        record.check_settled(position)
        if not record.fresh:
            raise StateNotSettled(f"session {slot} is empty: no token follows from it")
        with self._device("the first draw"):
            return draw_rows(self._logits(record.fresh[-1][-1:]), [position], [sampling], [edits])[0]

    def first_logprobs(self, slot: SlotId, token: int, top: int) -> TokenLogprobs:
        record = self._records[slot]
        record.check_settled(record.rows)
        if not record.fresh:
            raise StateNotSettled(f"session {slot} is empty: it has no row to ask")
        with self._device("log probabilities"):
            return row_logprobs(self._model.logits(record.fresh[-1][-1:])[0].numpy(), token, top=top)

    def verify(self, windows: Sequence[Window]) -> list[Verified]:
        self._check_windows(windows)
        with self._device("a round"):
            spans = [Span(window.slot, window.position, window.tokens) for window in windows]
            plan = self._model.plan(spans, self._sessions, is_prompt=False)
            streams = self._model.forward(plan, self._sessions)
            positions = [row + 1 for span in spans for row in range(span.position, span.end)]
            samplings = [window.sampling for window in windows for _ in window.tokens]
            edits = [edit for window in windows for edit in window.edits or (None,) * len(window.tokens)]
            logits = self._logits(streams)
            drawn = draw_rows(logits, positions, samplings, edits)
            logprobs = _window_logprobs(windows, logits, drawn)
        results: list[Verified] = []
        row = 0
        for place, window in enumerate(windows):
            end = row + len(window.tokens)
            self._records[window.slot].window = OpenWindow(plan, place, streams[row:end])
            results.append(Verified(tuple(drawn[row:end]), logprobs[place]))
            row = end
        return results

    def keep(self, slot: SlotId, rows: int) -> None:
        record = self._records[slot]
        window = record.window
        if window is None or not 1 <= rows <= window.rows:
            raise StateNotSettled(f"session {slot} has no window of which {rows} rows could be kept")
        with self._device("a keep"):
            self._model.keep(window.plan, window.place, rows, self._sessions)
        record.settle(window.streams[:rows], backlog_rows=self._limits.backlog_rows)
        record.window = None

    def draft(self, requests: Sequence[DraftRequest]) -> list[tuple[int, ...]]:
        for request in requests:
            self._check_draft(request)
        with self._device("drafting"):
            return draft_rounds(self._model, self._sessions, self._records, requests)

    def move(self, source: SlotId, target: SlotId) -> None:
        here, there = self._records[source], self._records[target]
        here.check_settled(here.rows)
        if there.rows or there.window is not None or there.capacity_rows < here.rows:
            raise StateNotSettled(f"session {target} is not empty or too small for {here.rows} rows")
        with self._device("a move"):
            self._sessions.move(source, target, here.rows)
        there.rows, there.reply_rows, there.head_rows = here.rows, here.reply_rows, here.head_rows
        there.fresh = [*here.fresh]

    def release(self, slot: SlotId) -> None:
        record = self._records[slot]
        record.rows = record.reply_rows = record.head_rows = 0
        record.fresh = []
        record.window = None
        with self._device("a release"):
            self._sessions.clear(slot)

    def keeper(self) -> StateKeeper | None:
        return None if self._piece_costs is None else self._states

    @property
    def kept_bytes(self) -> int:
        """What the copies of prompt states take."""
        return self._states.bytes

    def _logits(self, streams: Tensor) -> Tensor:
        logits = self._model.logits(streams)
        if self._watch is not None:
            self._watch(logits)
        return logits

    def _prefill_chunk(self, record: SessionRecord, tokens: tuple[int, ...]) -> None:
        span = Span(record.slot, record.rows, tokens)
        plan = self._model.plan([span], self._sessions, is_prompt=True)
        streams = self._model.forward(plan, self._sessions)
        if self._limits.draft_depth:
            absorb_prompt(self._model, self._sessions, record, tokens, streams)
        record.rows += len(tokens)
        record.fresh = [streams[-1:].clone()]

    def _check_windows(self, windows: Sequence[Window]) -> None:
        rows = sum(len(window.tokens) for window in windows)
        if not 0 < rows <= self._limits.row_limit:
            raise StateNotSettled(f"a round of {rows} rows: 1 to {self._limits.row_limit} are allowed")
        if len({window.slot for window in windows}) != len(windows):
            raise StateNotSettled("a session may have one window in a round")
        if len(windows) > 1 and self._load_check.is_sharing_off:
            raise StateNotSettled("streams may not share a round: the check at load switched that off")
        for window in windows:
            record = self._records[window.slot]
            record.check_settled(window.position)
            record.check_room(len(window.tokens))
            if len(window.tokens) not in self._widths:
                raise StateNotSettled(f"a window of {len(window.tokens)} rows is not allowed")
            if record.rows == 0:
                raise StateNotSettled(f"session {window.slot} is empty: a window needs a prompt")

    def _check_draft(self, request: DraftRequest) -> None:
        record = self._records[request.slot]
        record.check_settled(request.position + len(request.next_tokens))
        if not self._limits.draft_depth:
            raise StateNotSettled("this backend drafts nothing")
        if record.head_rows != request.position:
            raise StateNotSettled(
                f"the draft head of session {request.slot} has absorbed {record.head_rows} rows, "
                f"not {request.position}"
            )
        if not 0 <= request.depth <= self._limits.draft_depth:
            raise StateNotSettled(f"{request.depth} drafts: 0 to {self._limits.draft_depth} are allowed")
        record.check_room(max(0, request.depth - 1))

    @contextmanager
    def _device(self, work: str) -> Iterator[None]:
        """Run device work on the engine thread; what torch raises becomes DeviceFailed."""
        if self._thread != threading.get_ident():
            # OpenMP keeps the count by thread
            torch.set_num_threads(self._threads)
            self._thread = threading.get_ident()
        try:
            with torch.inference_mode():
                yield
        except (RuntimeError, MemoryError, IndexError, ValueError) as error:
            if _is_out_of_memory(error):
                raise DeviceMemory(f"{work} failed for want of memory: {error}") from error
            raise DeviceFailed(f"{work} failed on the device: {error}") from error


def _is_out_of_memory(error: Exception) -> bool:
    # torch has a class for it on a GPU, and only words on a CPU
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def _window_logprobs(
    windows: Sequence[Window], logits: Tensor, drawn: Sequence[int]
) -> list[tuple[TokenLogprobs, ...]]:
    """For each window that asked, the log probabilities of what its rows drew."""
    table, end = logits.numpy(), 0
    results: list[tuple[TokenLogprobs, ...]] = []
    for window in windows:
        start, end = end, end + len(window.tokens)
        top = window.top_logprobs
        rows = () if top is None else range(start, end)
        results.append(tuple(row_logprobs(table[row], drawn[row], top=top or 0) for row in rows))
    return results
