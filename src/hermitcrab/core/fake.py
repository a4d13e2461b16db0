"""A strict backend without a device: a token follows from all tokens fed before it, every call is checked.

A session is a chain of hashes, one a row; prompt rows and reply rows hash differently, as they round
differently on a device. So a wrong roll-back, length, move or prefill changes the reply. A call that does
not follow from the session's state raises, and is noted in `violations`, which a test asserts to be empty.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from hermitcrab.cache.store import PieceCosts
from hermitcrab.core.backend import DraftRequest, Facts, PieceId, SlotId, StateKeeper, Verified, Window
from hermitcrab.core.load_check import NOT_RUN, LoadCheck
from hermitcrab.errors import LaneError, LaneMemory, SessionFull, StateNotSettled
from hermitcrab.sampling.edits import Edits
from hermitcrab.sampling.logprobs import TokenLogprobs, token_logprobs
from hermitcrab.sampling.noise import mix64
from hermitcrab.sampling.params import Sampling
from hermitcrab.sampling.rule import draw

_ROOT = 0x6865726D69746372
_PROMPT_SALT = 0x70726F6D7074
_REPLY_SALT = 0x7265706C79
_WORD = (1 << 64) - 1

# what pieces are said to take
PIECE_COSTS = PieceCosts(row_bytes=16, span_bytes=8, end_bytes=256)

# of the next token of a script; those that follow from the hash are below 8
_SCRIPTED_LOGIT = 32.0


class CallKind(StrEnum):
    """The calls of a backend that touch a session."""

    PREFILL = "prefill"
    DRAW_FIRST = "draw_first"
    VERIFY = "verify"
    KEEP = "keep"
    DRAFT = "draft"
    MOVE = "move"
    RELEASE = "release"
    SAVE_ROWS = "save_rows"
    SAVE_END = "save_end"
    RESTORE = "restore"
    DROP = "drop"


# calls that leave the session they read as it was, whatever happens
_READING = frozenset({CallKind.SAVE_ROWS, CallKind.SAVE_END})


@dataclass(frozen=True, slots=True)
class Call:
    """One call as it came in: the slots it names, and the rows fed, kept or absorbed for each."""

    kind: CallKind
    slots: tuple[SlotId, ...]
    rows: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Fault:
    """Raise `error` at the `nth` call of a kind, counted from 1 since the backend was made."""

    kind: CallKind
    nth: int
    error: Exception


@dataclass(slots=True)
class _Session:
    """One slot's state; `hashes[i]` stands for everything row i can depend on."""

    tokens: list[int] = field(default_factory=list)
    hashes: list[int] = field(default_factory=list)
    prompt_rows: int = 0
    absorbed_rows: int = 0
    pending: int | None = None
    window: tuple[int, ...] | None = None
    has_failed: bool = False

    @property
    def is_empty(self) -> bool:
        return not self.tokens and self.window is None and not self.has_failed


@dataclass(frozen=True, slots=True)
class _RowsPiece:
    """Kept rows from `start` on."""

    start: int
    tokens: tuple[int, ...]
    hashes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _EndPiece:
    """What a kept session had beside its rows; `last_hash` is of all that the end followed from."""

    rows: int
    last_hash: int
    absorbed_rows: int


def always_lands(position: int, index: int) -> bool:
    """Every draft is right."""
    return True


def every_call_passes(call: Call) -> None:
    """The hook that does nothing."""


class FakeBackend:
    """Implements `Backend` over hash chains, and `StateKeeper`.

    `lands(position, index)` says whether the head's draft number `index` of a chain, for `position`, is
    right. `script(prompt)` gives reply tokens that are drawn as long as the reply has followed them, unless
    edits make another one likelier; after them, and without one, tokens follow from the hash. `on_call` runs
    at every call's start: a test may advance a clock there, or look at the lanes in the middle of a step.
    """

    def __init__(
        self,
        session_rows: Sequence[int],
        *,
        vocab_tokens: int = 16,
        row_limit: int = 64,
        window_rows: int = 4,
        draft_depth: int = 3,
        backlog_rows: int = 12,
        prompt_grid_rows: int = 4,
        prompt_pass_rows: int = 8,
        load_check: LoadCheck = NOT_RUN,
        lands: Callable[[int, int], bool] = always_lands,
        script: Callable[[tuple[int, ...]], Sequence[int]] | None = None,
        faults: Sequence[Fault] = (),
        on_call: Callable[[Call], None] = every_call_passes,
    ) -> None:
        self._facts = Facts(
            vocab_tokens=vocab_tokens,
            session_rows=tuple(session_rows),
            row_limit=row_limit,
            window_rows=window_rows,
            draft_depth=draft_depth,
            backlog_rows=backlog_rows,
            prompt_grid_rows=prompt_grid_rows,
            prompt_pass_rows=prompt_pass_rows,
            load_check=load_check,
            piece_costs=PIECE_COSTS,
        )
        self._sessions = [_Session() for _ in session_rows]
        self._pieces: dict[PieceId, _RowsPiece | _EndPiece] = {}
        self._lands = lands
        self._script = script
        self._faults = {(fault.kind, fault.nth): fault.error for fault in faults}
        self._counts: Counter[CallKind] = Counter()
        self.on_call = on_call
        self.calls: list[Call] = []
        self.violations: list[str] = []

    def facts(self) -> Facts:
        return self._facts

    def fail_next(self, kind: CallKind, error: Exception) -> None:
        """Raise `error` at the next call of a kind."""
        self._faults[(kind, self._counts[kind] + 1)] = error

    def is_empty(self, slot: int) -> bool:
        """True if the slot's session holds nothing."""
        return self._sessions[slot].is_empty

    def rows(self, slot: int) -> int:
        """Settled rows of the slot's session."""
        return len(self._sessions[slot].tokens)

    @property
    def pieces(self) -> frozenset[int]:
        """The pieces that are kept."""
        return frozenset(self._pieces)

    @property
    def pieces_bytes(self) -> int:
        """What the kept pieces take by their costs."""
        return sum(
            PIECE_COSTS.rows(len(piece.tokens)) if isinstance(piece, _RowsPiece) else PIECE_COSTS.end_bytes
            for piece in self._pieces.values()
        )

    def prefill(self, slot: SlotId, position: int, tokens: Sequence[int]) -> None:
        self._enter(Call(CallKind.PREFILL, (slot,), (len(tokens),)))
        session = self._settled(slot, position)
        facts = self._facts
        if position != session.prompt_rows or position % facts.prompt_grid_rows:
            raise self._settledness(f"a prompt pass of slot {slot} starts off the grid or past the prompt")
        if not 0 < len(tokens) <= facts.prompt_pass_rows:
            raise self._settledness(f"a prompt pass of slot {slot} has {len(tokens)} rows")
        self._check_rows(slot, position + len(tokens))
        self._check_tokens(tokens)
        for token in tokens:
            session.hashes.append(_row_hash(session.hashes, token, _PROMPT_SALT))
            session.tokens.append(token)
        session.prompt_rows = len(session.tokens)
        session.absorbed_rows = session.prompt_rows - 1

    def draw_first(self, slot: SlotId, position: int, sampling: Sampling, edits: Edits | None = None) -> int:
        self._enter(Call(CallKind.DRAW_FIRST, (slot,), (0,)))
        session = self._settled(slot, position)
        if position == 0 or position != session.prompt_rows:
            raise self._settledness(f"the first draw of slot {slot} does not follow its prompt")
        return self._draw(session, session.hashes[-1], (), sampling, edits)

    def first_logprobs(self, slot: SlotId, token: int, top: int) -> TokenLogprobs:
        session = self._sessions[slot]
        if session.has_failed or not session.tokens or len(session.tokens) != session.prompt_rows:
            raise self._settledness(f"slot {slot} is past the row of its first token")
        return token_logprobs(self._logits(session, session.hashes[-1], ()), token, top=top)

    def verify(self, windows: Sequence[Window]) -> list[Verified]:
        slots = tuple(window.slot for window in windows)
        rows = tuple(len(window.tokens) for window in windows)
        self._enter(Call(CallKind.VERIFY, slots, rows))
        if not windows or len(set(slots)) != len(slots) or sum(rows) > self._facts.row_limit:
            raise self._settledness(f"a round over slots {slots} with {sum(rows)} rows cannot be run")
        if len(windows) > self._facts.stream_limit:
            raise self._settledness(f"a round over slots {slots} has more streams than may share one")
        for window in windows:
            self._check_window(window)
        return [self._verify(window) for window in windows]

    def keep(self, slot: SlotId, rows: int) -> None:
        self._enter(Call(CallKind.KEEP, (slot,), (rows,)))
        session = self._sessions[slot]
        if session.window is None or session.has_failed or not 1 <= rows <= len(session.window):
            raise self._settledness(f"slot {slot} has no window to keep {rows} rows of")
        for token in session.window[:rows]:
            session.hashes.append(_row_hash(session.hashes, token, _REPLY_SALT))
            session.tokens.append(token)
        session.window = None
        session.pending = None

    def draft(self, requests: Sequence[DraftRequest]) -> list[tuple[int, ...]]:
        slots = tuple(request.slot for request in requests)
        self._enter(Call(CallKind.DRAFT, slots, tuple(len(request.next_tokens) for request in requests)))
        if not requests or len(set(slots)) != len(slots):
            raise self._settledness(f"drafting over slots {slots} cannot be run")
        for request in requests:
            self._check_draft(request)
        return [self._draft(request) for request in requests]

    def move(self, source: SlotId, target: SlotId) -> None:
        self._enter(Call(CallKind.MOVE, (source, target), (self.rows(source), 0)))
        state = self._sessions[source]
        if state.window is not None or state.has_failed or not state.tokens:
            raise self._settledness(f"slot {source} is not settled and cannot be moved")
        if not self._sessions[target].is_empty:
            raise self._settledness(f"slot {target} is not empty and cannot be moved into")
        if self._facts.session_rows[target] <= self._facts.session_rows[source]:
            raise self._settledness(f"slot {target} is not larger than slot {source}")
        self._sessions[target] = _Session(
            tokens=list(state.tokens),
            hashes=list(state.hashes),
            prompt_rows=state.prompt_rows,
            absorbed_rows=state.absorbed_rows,
            pending=state.pending,
        )

    def release(self, slot: SlotId) -> None:
        self._enter(Call(CallKind.RELEASE, (slot,), (0,)))
        self._sessions[slot] = _Session()

    def keeper(self) -> StateKeeper | None:
        return self

    def save_rows(self, slot: SlotId, piece: PieceId, start: int) -> None:
        self._enter(Call(CallKind.SAVE_ROWS, (slot,), (self.rows(slot) - start,)))
        session = self._kept(slot, piece)
        if not 0 <= start < len(session.tokens) or start % self._facts.prompt_grid_rows:
            raise self._settledness(f"rows of slot {slot} cannot be kept from {start} on")
        self._pieces[piece] = _RowsPiece(start, tuple(session.tokens[start:]), tuple(session.hashes[start:]))

    def save_end(self, slot: SlotId, piece: PieceId) -> None:
        self._enter(Call(CallKind.SAVE_END, (slot,), (self.rows(slot),)))
        session = self._kept(slot, piece)
        self._pieces[piece] = _EndPiece(len(session.tokens), session.hashes[-1], session.absorbed_rows)

    def restore(self, slot: SlotId, rows: Sequence[PieceId], end: PieceId) -> None:
        self._enter(Call(CallKind.RESTORE, (slot,), (len(rows),)))
        if not self._sessions[slot].is_empty:
            raise self._settledness(f"slot {slot} is not empty and cannot be restored into")
        ended = self._pieces.get(end)
        tokens: list[int] = []
        hashes: list[int] = []
        for piece in (self._pieces.get(number) for number in rows):
            if not isinstance(piece, _RowsPiece) or piece.start != len(tokens):
                raise self._settledness(f"the pieces {tuple(rows)} do not follow each other")
            tokens += piece.tokens
            hashes += piece.hashes
        if not isinstance(ended, _EndPiece) or ended.rows != len(tokens) or ended.last_hash != hashes[-1]:
            raise self._settledness(f"the pieces {tuple(rows)} do not lead to the end {end}")
        self._check_rows(slot, len(tokens))
        self._sessions[slot] = _Session(
            tokens=tokens,
            hashes=hashes,
            prompt_rows=len(tokens),
            absorbed_rows=ended.absorbed_rows,
        )

    def drop(self, piece: PieceId) -> None:
        self._enter(Call(CallKind.DROP, (), ()))
        self._pieces.pop(piece, None)

    def _kept(self, slot: SlotId, piece: PieceId) -> _Session:
        """The session that a piece is to be kept of."""
        session = self._settled(slot, self._sessions[slot].prompt_rows)
        if not session.prompt_rows or session.prompt_rows % self._facts.prompt_grid_rows:
            raise self._settledness(f"slot {slot} ends off the grid and cannot be kept")
        if piece in self._pieces:
            raise self._settledness(f"a piece {piece} is kept already")
        return session

    def _enter(self, call: Call) -> None:
        self.calls.append(call)
        self._counts[call.kind] += 1
        self.on_call(call)
        error = self._faults.pop((call.kind, self._counts[call.kind]), None)
        if error is None:
            return
        # a target that could not be had leaves both sessions of a move as they were
        if not isinstance(error, LaneMemory) and call.kind not in _READING:
            for slot in call.slots:
                self._sessions[slot].has_failed = True
        raise error

    def _settled(self, slot: SlotId, position: int) -> _Session:
        session = self._sessions[slot]
        if session.window is not None or session.has_failed or position != len(session.tokens):
            raise self._settledness(f"slot {slot} was used at {position}, it is not settled there")
        return session

    def _check_rows(self, slot: SlotId, rows: int) -> None:
        if rows > self._facts.session_rows[slot]:
            raise self._note(SessionFull(f"{rows} rows do not fit into slot {slot}"))

    def _check_tokens(self, tokens: Sequence[int]) -> None:
        if not all(0 <= token < self._facts.vocab_tokens for token in tokens):
            raise self._note(LaneError(f"a token of {tuple(tokens)} is not in the vocabulary"))

    def _check_window(self, window: Window) -> None:
        session = self._settled(window.slot, window.position)
        if not session.prompt_rows or len(window.tokens) not in self._facts.exact_widths:
            raise self._settledness(f"slot {window.slot} cannot take a window of {len(window.tokens)} rows")
        if session.pending not in (None, window.tokens[0]):
            raise self._settledness(f"slot {window.slot} does not start with the token its head absorbed")
        if window.edits and len(window.edits) != len(window.tokens):
            raise self._settledness(f"slot {window.slot}: {len(window.edits)} edits are not one a row")
        self._check_rows(window.slot, window.position + len(window.tokens))
        self._check_tokens(window.tokens)

    def _verify(self, window: Window) -> Verified:
        session = self._sessions[window.slot]
        session.window = window.tokens
        drawn: list[int] = []
        logprobs: list[TokenLogprobs] = []
        last = session.hashes[-1]
        edits = window.edits or (None,) * len(window.tokens)
        for row, (token, edit) in enumerate(zip(window.tokens, edits, strict=True), start=1):
            last = _mix(last, token, _REPLY_SALT)
            before = window.tokens[:row]
            drawn.append(self._draw(session, last, before, window.sampling, edit))
            if window.top_logprobs is not None:
                logits = self._logits(session, last, before)
                logprobs.append(token_logprobs(logits, drawn[-1], top=window.top_logprobs))
        return Verified(tuple(drawn), tuple(logprobs))

    def _check_draft(self, request: DraftRequest) -> None:
        end_rows = request.position + len(request.next_tokens)
        session = self._settled(request.slot, end_rows)
        if not request.next_tokens or request.position != session.absorbed_rows:
            raise self._settledness(f"slot {request.slot}: the rows do not follow the last absorbed one")
        if len(request.next_tokens) > self._facts.backlog_rows:
            raise self._settledness(f"slot {request.slot}: the head has lost rows that it had to absorb")
        if list(request.next_tokens[:-1]) != session.tokens[request.position + 1 :]:
            raise self._settledness(f"slot {request.slot}: the next tokens are not the session's")
        room_rows = self._facts.session_rows[request.slot] - end_rows - 1
        if not 0 <= request.depth <= min(self._facts.draft_depth, max(0, room_rows)):
            raise self._settledness(f"slot {request.slot}: {request.depth} drafts run past what it can hold")
        self._check_tokens(request.next_tokens)

    def _draft(self, request: DraftRequest) -> tuple[int, ...]:
        session = self._sessions[request.slot]
        session.absorbed_rows = len(session.tokens)
        session.pending = request.next_tokens[-1]
        chain: list[int] = [session.pending]
        last = _mix(session.hashes[-1], session.pending, _REPLY_SALT)
        for index in range(request.depth):
            position = len(session.tokens) + len(chain)
            token = self._draw(session, last, tuple(chain), request.sampling)
            if not self._lands(position, index):
                token = (token + 1) % self._facts.vocab_tokens
            chain.append(token)
            last = _mix(last, token, _REPLY_SALT)
        return tuple(chain[1:])

    def _draw(
        self,
        session: _Session,
        last: int,
        unsettled: tuple[int, ...],
        sampling: Sampling,
        edits: Edits | None = None,
    ) -> int:
        scripted = self._scripted(session, unsettled)
        if scripted is not None and edits is None:
            return scripted
        position = len(session.tokens) + len(unsettled)
        return draw(self._logits(session, last, unsettled), position, sampling, edits)

    def _logits(self, session: _Session, last: int, unsettled: tuple[int, ...]) -> list[float]:
        logits = [(mix64(last ^ (token + 1)) >> 44) * 2.0**-17 for token in range(self._facts.vocab_tokens)]
        scripted = self._scripted(session, unsettled)
        if scripted is not None:
            logits[scripted] = _SCRIPTED_LOGIT
        return logits

    def _scripted(self, session: _Session, unsettled: tuple[int, ...]) -> int | None:
        """The script's next token, as long as the reply has followed it."""
        if self._script is None:
            return None
        script = tuple(self._script(tuple(session.tokens[: session.prompt_rows])))
        reply = (*session.tokens[session.prompt_rows :], *unsettled)
        return script[len(reply)] if len(reply) < len(script) and reply == script[: len(reply)] else None

    def _settledness(self, message: str) -> LaneError:
        return self._note(StateNotSettled(message))

    def _note(self, error: LaneError) -> LaneError:
        self.violations.append(str(error))
        return error


def _row_hash(hashes: Sequence[int], token: int, salt: int) -> int:
    return _mix(hashes[-1] if hashes else _ROOT, token, salt)


def _mix(last: int, token: int, salt: int) -> int:
    return mix64((last * 3 + mix64(token + salt)) & _WORD)
