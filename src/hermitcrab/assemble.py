"""The one place that knows both a server and an engine: settings -> budget, weights, backend, lanes, text."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import groupby
from pathlib import Path

from hermitcrab.clock import WallClock
from hermitcrab.core.host import LaneHost
from hermitcrab.core.lanes import LaneRules
from hermitcrab.core.recorder import open_trail
from hermitcrab.core.slot_list import MARGIN_ROWS, parse_slot_contexts, rows_of
from hermitcrab.engine.backend import TorchBackend, boundary_tokens
from hermitcrab.engine.build import ROW_LIMIT, build_backend, session_cost, weight_bytes, window_rows
from hermitcrab.engine.selfcheck import check_exactness
from hermitcrab.errors import CheckpointError, SettingError
from hermitcrab.kernels.measures import Measures
from hermitcrab.memory.budget import Ledger, SessionBudget
from hermitcrab.memory.machine import physical_bytes
from hermitcrab.models.qwen4_exp.checkpoint import Checkpoint, CheckpointInfo
from hermitcrab.models.qwen4_exp.config import ModelConfig, read_config
from hermitcrab.models.registry import Family, family_of
from hermitcrab.server.text.chat import ChatText
from hermitcrab.server.text.load import load_chat_text
from hermitcrab.settings import ModelSettings, SessionSettings, Settings

Progress = Callable[[str, int, int], None]

BUILTIN_ID = "hermitcrab-builtin"

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Assembled:
    """All that a server needs; `lanes` is not started yet."""

    lanes: LaneHost
    text: ChatText
    model_id: str
    session_lines: tuple[str, ...]
    session_bytes: int | None = None


def builtin_directory() -> Path:
    """Where the built-in model lies."""
    return Path(str(files("hermitcrab") / "builtin"))


def describe(path: str) -> CheckpointInfo:
    """What a model directory holds, from its headers. Raises CheckpointError if it cannot be read."""
    directory = Path(path)
    return family_of(directory).describe(directory)


@dataclass(frozen=True, slots=True)
class FoundModel:
    """A model directory whose headers fit its settings; no weight is read yet."""

    settings: ModelSettings
    directory: Path
    family: Family
    info: CheckpointInfo
    config: ModelConfig
    context_tokens: int

    @property
    def id(self) -> str:
        """What the model is called where nobody has named it."""
        return BUILTIN_ID if self.settings.path is None else self.directory.resolve().name

    @property
    def boundary_tokens(self) -> int:
        """The length from which attention is sparse."""
        return boundary_tokens(self.config)

    @property
    def window_rows(self) -> int:
        """The widest window that it may be verified in."""
        return window_rows(self.settings.draft_depth)


def find_model(settings: ModelSettings) -> FoundModel:
    """Raises CheckpointError for a directory that cannot be served, SettingError for a context too long."""
    directory = builtin_directory() if settings.path is None else Path(settings.path)
    family = family_of(directory)
    info = family.describe(directory)
    if info.problem is not None:
        raise CheckpointError(info.problem)
    config = read_config(directory)
    return FoundModel(settings, directory, family, info, config, _context_tokens(settings, config))


def read_text(model: FoundModel) -> ChatText:
    """The model's tokenizer, template and habits."""
    return load_chat_text(model.directory, WallClock())


def read_weights(model: FoundModel, progress: Progress) -> Checkpoint:
    """The model's weights as they are stored."""
    return model.family.load(model.directory, lambda done, total: progress("reading weights", done, total))


def open_backend(
    model: FoundModel,
    checkpoint: Checkpoint,
    session_tokens: Sequence[int],
    progress: Progress,
    *,
    measures: Measures | None = None,
) -> TorchBackend:
    """Arrange the weights, open sessions for so many tokens each, and check their exactness if asked to."""
    progress("arranging weights", 0, 1)
    backend = build_backend(
        checkpoint,
        dtype=model.settings.dtype,
        session_rows=[rows_of(tokens) for tokens in session_tokens],
        draft_depth=model.settings.draft_depth,
        threads=model.settings.threads,
        measures=measures,
    )
    progress("arranging weights", 1, 1)
    if model.settings.load_check:
        progress("checking exactness", 0, 1)
        backend.take_check(check_exactness(backend, WallClock()))
        progress("checking exactness", 1, 1)
    return backend


def serve_parts(settings: Settings, progress: Progress) -> Assembled:
    """Check everything against everything else, then load.

    Raises SettingError, CheckpointError or BudgetError before any weight is read, where it can be known.
    """
    model = find_model(settings.model)
    session_tokens = choose_sessions(model, settings.sessions)
    trail = None if settings.lanes.trail is None else open_trail(Path(settings.lanes.trail))
    text = read_text(model)
    backend = open_backend(model, read_weights(model, progress), session_tokens, progress)
    rules = LaneRules(
        grow_tokens=settings.sessions.slot_grow_tokens
        if settings.sessions.slot_contexts is not None
        else None,
        decode_share=settings.lanes.decode_share,
        context_tokens=model.context_tokens,
    )
    cost = session_cost(model.config, settings.model.dtype)
    return Assembled(
        lanes=LaneHost(
            backend, rules, WallClock(), queue_limit=settings.lanes.queue_limit, trail=trail
        ),
        text=text,
        model_id=settings.http.name or model.id,
        session_lines=_session_lines(session_tokens, cost),
        session_bytes=sum(cost(rows_of(tokens)) for tokens in session_tokens),
    )


def choose_sessions(model: FoundModel, sessions: SessionSettings) -> tuple[int, ...]:
    """The sessions to open, slot 0 first, held against memory. Raises SettingError and BudgetError."""
    dtype = model.settings.dtype
    budget = SessionBudget(
        _ledger(sessions, weight_bytes(model.info, dtype)),
        session_cost(model.config, dtype),
        margin_rows=MARGIN_ROWS,
    )
    context_tokens = model.context_tokens
    if sessions.slot_contexts is not None:
        if sessions.parallel is not None:
            raise SettingError(
                "--parallel and --slot-contexts exclude each other: the list says how many sessions."
            )
        listed = parse_slot_contexts(
            sessions.slot_contexts, sessions_allowed=ROW_LIMIT - 1, context_tokens=context_tokens
        )
        budget.check_list(context_tokens, listed)
        return (context_tokens, *listed)
    if sessions.parallel is None:
        return (context_tokens,) * budget.choose_parallel(context_tokens)
    if sessions.parallel > ROW_LIMIT:
        raise SettingError(
            f"--parallel {sessions.parallel}: at most {ROW_LIMIT} sessions are allowed, since each needs "
            "a row of its own in a round."
        )
    budget.check_parallel(context_tokens, sessions.parallel)
    return (context_tokens,) * sessions.parallel


def _context_tokens(settings: ModelSettings, config: ModelConfig) -> int:
    asked = settings.context_tokens
    if asked is not None and asked > config.context_tokens:
        raise SettingError(
            f"--context {asked}: this model's positions end at {config.context_tokens} tokens."
        )
    return config.context_tokens if asked is None else asked


def _ledger(sessions: SessionSettings, ready_bytes: int) -> Ledger:
    limit = sessions.load_limit_gb
    return Ledger(
        device_bytes=physical_bytes(),
        ready_bytes=ready_bytes,
        limit_bytes=None if limit is None else int(limit * 1e9),
    )


def _session_lines(tokens: Sequence[int], cost: Callable[[int], int]) -> tuple[str, ...]:
    lines = []
    for size, run in groupby(tokens):
        count, each = len(list(run)), cost(rows_of(size)) / _MIB
        lines.append(f"{count} x {size} tokens: {each:.1f} MiB each, {count * each:.1f} MiB together")
    total = sum(cost(rows_of(size)) for size in tokens) / _MIB
    return (*lines, f"{len(tokens)} sessions, {total:.1f} MiB in all")
