"""Kept prompt states: copies of sessions' parts, each allocated when it is saved and let go when dropped."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from torch import Tensor

from hermitcrab.cache.store import PieceCosts
from hermitcrab.core.backend import PieceId, SlotId
from hermitcrab.engine.session import SessionRecord
from hermitcrab.errors import StateNotSettled
from hermitcrab.models.qwen4_exp.config import ModelConfig
from hermitcrab.models.qwen4_exp.state import SessionEnd, SessionRows, Sessions, session_shape


def piece_costs(config: ModelConfig, dtype: torch.dtype, *, grid_rows: int) -> PieceCosts | None:
    """Bytes of kept pieces; None where the indexer's blocks cross the grid, so that none can be kept."""
    block_tokens, shape = config.indexer.block_tokens, session_shape(config)
    if grid_rows % block_tokens:
        return None
    block_bytes = (block_tokens * shape.row_items + shape.block_items) * dtype.itemsize
    # the last row's residual streams wait for the draft head
    tail_items = shape.tail_items + config.streams_width
    return PieceCosts(
        row_bytes=-(-block_bytes // block_tokens),
        span_bytes=block_bytes,
        end_bytes=shape.state_items * 4 + tail_items * dtype.itemsize,
    )


@dataclass(frozen=True, slots=True)
class _End:
    """What a session has beside its `rows` rows; `fresh` [1, streams, hidden] is the last one's streams."""

    rows: int
    head_rows: int
    fresh: Tensor
    end: SessionEnd


class KeptStates:
    """Implements `StateKeeper` of core/backend.py; `device` surrounds what runs on the device."""

    def __init__(
        self,
        sessions: Sessions,
        records: Sequence[SessionRecord],
        device: Callable[[str], AbstractContextManager[None]],
        *,
        grid_rows: int,
    ) -> None:
        self._sessions = sessions
        self._records = records
        self._device = device
        self._grid_rows = grid_rows
        self._rows: dict[PieceId, SessionRows] = {}
        self._ends: dict[PieceId, _End] = {}

    @property
    def bytes(self) -> int:
        """What all pieces take."""
        ends = sum(piece.end.bytes + piece.fresh.nbytes for piece in self._ends.values())
        return ends + sum(piece.bytes for piece in self._rows.values())

    def save_rows(self, slot: SlotId, piece: PieceId, start: int) -> None:
        record = self._settled(slot, piece)
        if not 0 <= start < record.rows or start % self._grid_rows:
            raise StateNotSettled(f"rows of session {slot} cannot be kept from {start} to {record.rows}")
        with self._device("keeping rows"):
            self._rows[piece] = self._sessions.copy_rows(slot, start, record.rows)

    def save_end(self, slot: SlotId, piece: PieceId) -> None:
        record = self._settled(slot, piece)
        with self._device("keeping a state"):
            self._ends[piece] = _End(
                rows=record.rows,
                head_rows=record.head_rows,
                fresh=record.fresh[-1][-1:].clone(),
                end=self._sessions.copy_end(slot),
            )

    def restore(self, slot: SlotId, rows: Sequence[PieceId], end: PieceId) -> None:
        record, ended = self._records[slot], self._ends.get(end)
        pieces = [self._rows[number] for number in rows if number in self._rows]
        reached = [0, *(piece.end for piece in pieces)]
        if (
            ended is None
            or len(pieces) != len(rows)
            or [*(piece.start for piece in pieces), ended.rows] != reached
        ):
            raise StateNotSettled(f"the pieces {tuple(rows)} do not lead to the end {end}")
        if record.rows or record.window is not None or record.capacity_rows < ended.rows:
            raise StateNotSettled(f"session {slot} is not empty or too small for {ended.rows} rows")
        with self._device("restoring a state"):
            for piece in pieces:
                self._sessions.paste_rows(slot, piece)
            self._sessions.paste_end(slot, ended.end)
            record.fresh = [ended.fresh.clone()]
        record.rows, record.head_rows = ended.rows, ended.head_rows

    def drop(self, piece: PieceId) -> None:
        self._rows.pop(piece, None)
        self._ends.pop(piece, None)

    def _settled(self, slot: SlotId, piece: PieceId) -> SessionRecord:
        """The record of a session that may be kept as it is, under a number that is free."""
        record = self._records[slot]
        record.check_settled(record.rows)
        if not record.rows or record.rows % self._grid_rows or record.reply_rows:
            raise StateNotSettled(f"session {slot} with {record.rows} rows is not at a mark of its prompt")
        if piece in self._rows or piece in self._ends:
            raise StateNotSettled(f"a piece {piece} is kept already")
        return record
