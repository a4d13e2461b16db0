"""The one place that knows both a server and an engine: settings -> budget, weights, backend, lanes, text."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import groupby
from pathlib import Path

from hermitcrab.clock import WallClock
from hermitcrab.core.host import LaneHost
from hermitcrab.core.kept import CacheRules
from hermitcrab.core.lanes import LaneRules
from hermitcrab.core.recorder import open_trail
from hermitcrab.core.slot_list import MARGIN_ROWS, parse_slot_contexts, rows_of
from hermitcrab.engine.backend import TorchBackend, boundary_tokens
from hermitcrab.engine.build import ROW_LIMIT, build_backend, window_rows
from hermitcrab.engine.footprint import EngineMemory, cpu_memory, packed_memory
from hermitcrab.engine.selfcheck import check_exactness
from hermitcrab.errors import CheckpointError, SettingError
from hermitcrab.kernels.measures import Measures
from hermitcrab.memory.budget import Ledger, Line, SessionBudget
from hermitcrab.memory.cache_share import cache_share
from hermitcrab.memory.machine import physical_bytes
from hermitcrab.memory.plan import MemoryPlan, make_plan
from hermitcrab.models.qwen4_exp.checkpoint import Checkpoint, CheckpointInfo
from hermitcrab.models.qwen4_exp.config import ModelConfig, read_config
from hermitcrab.models.qwen4_exp.footprint import StoredBytes, assumed_bytes, stored_bytes
from hermitcrab.models.registry import Family, family_of
from hermitcrab.server.text.chat import ChatText
from hermitcrab.server.text.load import load_chat_text
from hermitcrab.settings import ModelSettings, SessionSettings, Settings
from hermitcrab.weights.affine import BITS, GROUP_SIZES, AffineFormat

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
    stored: StoredBytes
    context_tokens: int

    @property
    def config(self) -> ModelConfig:
        """The model's shape, without a draft head where none is stored."""
        return self.stored.config

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

    @property
    def memory(self) -> EngineMemory:
        """What the engine takes of it."""
        return cpu_memory(self.stored, self.settings.dtype, self.settings.draft_depth)


def find_model(settings: ModelSettings) -> FoundModel:
    """Raises CheckpointError for a directory that cannot be served, SettingError for a context too long."""
    directory = builtin_directory() if settings.path is None else Path(settings.path)
    family = family_of(directory)
    info = family.describe(directory)
    if info.problem is not None:
        raise CheckpointError(info.problem)
    stored = stored_bytes(directory)
    context_tokens = _context_tokens(settings.context_tokens, stored.config)
    return FoundModel(settings, directory, family, info, stored, context_tokens)


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
    cache_bytes = choose_cache(model, settings.sessions, session_tokens)
    trail = None if settings.lanes.trail is None else open_trail(Path(settings.lanes.trail))
    text = read_text(model)
    backend = open_backend(model, read_weights(model, progress), session_tokens, progress)
    rules = LaneRules(
        grow_tokens=settings.sessions.slot_grow_tokens
        if settings.sessions.slot_contexts is not None
        else None,
        decode_share=settings.lanes.decode_share,
        context_tokens=model.context_tokens,
        cache=CacheRules(cache_bytes, text.start_ids),
    )
    cost = model.memory.session_bytes
    return Assembled(
        lanes=LaneHost(backend, rules, WallClock(), queue_limit=settings.lanes.queue_limit, trail=trail),
        text=text,
        model_id=settings.http.name or model.id,
        session_lines=(*_session_lines(session_tokens, cost), _cache_line(cache_bytes)),
        session_bytes=sum(cost(rows_of(tokens)) for tokens in session_tokens),
    )


def choose_sessions(model: FoundModel, sessions: SessionSettings) -> tuple[int, ...]:
    """The sessions to open, slot 0 first, held against memory. Raises SettingError and BudgetError."""
    budget = _budget(_ledger(sessions, model.memory), model.memory)
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


def choose_cache(model: FoundModel, sessions: SessionSettings, session_tokens: Sequence[int]) -> int:
    """Bytes that the prompt cache may take: what was asked for, else its share of what the sessions leave."""
    if sessions.cache_gb is not None:
        return int(sessions.cache_gb * 1e9)
    ledger = _ledger(sessions, model.memory)
    budget = _budget(ledger, model.memory)
    opened_bytes = sum(item.total_bytes for item in budget.items(session_tokens))
    # what loading takes for a while is given back before anything is kept
    left_bytes = ledger.room_bytes + ledger.set_aside_bytes - opened_bytes
    return cache_share(left_bytes - budget.shared_bytes(session_tokens))


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """What to plan for: a model, sessions, an engine and a machine, of which None is this one.

    `stored_format` stands for the weights of a directory that has only a config.json; an AffineFormat or, for
    bfloat16, None.
    """

    path: str | None
    context_tokens: int | None
    slot_contexts: str | None
    dtype: str
    is_packed: bool
    has_weights: bool
    stored_format: AffineFormat | None
    device_bytes: int | None
    limit_bytes: int | None
    cache_bytes: int
    draft_depth: int | None


def parse_format(text: str) -> AffineFormat | None:
    """A stored format by name: 6bit-g32 and the like, None for bfloat16. Raises SettingError for others."""
    if text == "bfloat16":
        return None
    known = {f"{bits}bit-g{group}": AffineFormat(bits, group) for bits in BITS for group in GROUP_SIZES}
    if text not in known:
        raise SettingError(f"--format {text}: must be bfloat16 or one of {', '.join(known)}.")
    return known[text]


def plan_memory(asked: PlanRequest) -> MemoryPlan:
    """Everything that memory is needed for, from config and headers alone.

    Raises CheckpointError for a model that cannot be read, SettingError for sessions that cannot be.
    """
    directory = builtin_directory() if asked.path is None else Path(asked.path)
    family_of(directory)
    if asked.has_weights:
        stored = stored_bytes(directory)
    else:
        stored = assumed_bytes(read_config(directory), asked.stored_format)
    context_tokens = _context_tokens(asked.context_tokens, stored.config)
    listed: tuple[int, ...] = ()
    if asked.slot_contexts is not None:
        listed = parse_slot_contexts(
            asked.slot_contexts, sessions_allowed=ROW_LIMIT - 1, context_tokens=context_tokens
        )
    memory = packed_memory(stored) if asked.is_packed else cpu_memory(stored, asked.dtype, asked.draft_depth)
    device_bytes, limit_bytes = asked.device_bytes, asked.limit_bytes
    if device_bytes is None:
        # a limit alone describes a machine that can keep it
        device_bytes = physical_bytes() if limit_bytes is None else limit_bytes
    ledger = Ledger(
        device_bytes=device_bytes,
        ready_bytes=memory.weight_bytes + memory.ngram_bytes,
        limit_bytes=limit_bytes,
        reserved_bytes=asked.cache_bytes,
        loading_bytes=memory.loading_bytes,
        parts=_ready_parts(memory),
    )
    return make_plan(
        ledger,
        _budget(ledger, memory),
        engine=memory.name,
        is_planned=memory.is_planned,
        context_tokens=context_tokens,
        listed=listed,
        sessions_allowed=ROW_LIMIT,
        beside=(
            Line("n-gram table", memory.mapped_ngram_bytes, "mapped from its file, a few rows read a token"),
            Line("weight files", memory.mapped_bytes, "pages read while loading, which the system may drop"),
        ),
    )


def _context_tokens(asked: int | None, config: ModelConfig) -> int:
    if asked is not None and asked > config.context_tokens:
        raise SettingError(
            f"--context {asked}: this model's positions end at {config.context_tokens} tokens."
        )
    return config.context_tokens if asked is None else asked


def _budget(ledger: Ledger, memory: EngineMemory) -> SessionBudget:
    return SessionBudget(ledger, memory.session_bytes, margin_rows=MARGIN_ROWS, work_bytes=memory.work_bytes)


def _ledger(sessions: SessionSettings, memory: EngineMemory) -> Ledger:
    limit = sessions.load_limit_gb
    return Ledger(
        device_bytes=physical_bytes(),
        ready_bytes=memory.weight_bytes + memory.ngram_bytes,
        limit_bytes=None if limit is None else int(limit * 1e9),
        loading_bytes=memory.loading_bytes,
        reserved_bytes=0 if sessions.cache_gb is None else int(sessions.cache_gb * 1e9),
        parts=_ready_parts(memory),
    )


def _ready_parts(memory: EngineMemory) -> tuple[Line, ...]:
    return (Line("weights", memory.weight_bytes), Line("n-gram table", memory.ngram_bytes))


def _cache_line(cache_bytes: int) -> str:
    return f"prompt cache: up to {cache_bytes / _MIB:.1f} MiB" if cache_bytes else "prompt cache: off"


def _session_lines(tokens: Sequence[int], cost: Callable[[int], int]) -> tuple[str, ...]:
    lines = []
    for size, run in groupby(tokens):
        count, each = len(list(run)), cost(rows_of(size)) / _MIB
        lines.append(f"{count} x {size} tokens: {each:.1f} MiB each, {count * each:.1f} MiB together")
    total = sum(cost(rows_of(size)) for size in tokens) / _MIB
    return (*lines, f"{len(tokens)} sessions, {total:.1f} MiB in all")
