"""What one forward works on: rows of windows or of a prompt chunk, with all that no layer changes."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from hermitcrab.kernels.attention import CHUNK_KEYS
from hermitcrab.models.qwen4_exp.config import IndexerConfig
from hermitcrab.models.qwen4_exp.state import Sessions


@dataclass(frozen=True, slots=True)
class Span:
    """Consecutive rows of one session: a window, or a prompt chunk."""

    slot: int
    position: int
    tokens: tuple[int, ...]

    @property
    def end(self) -> int:
        """The position after the last row."""
        return self.position + len(self.tokens)


@dataclass(frozen=True, slots=True)
class Finished:
    """Blocks that the forward's rows complete.

    `rows` int64 [blocks, block_tokens]: arena rows of their tokens; `blocks`, `firsts` int64 [blocks]: their
    places in the arena of pooled keys, and first positions.
    """

    rows: Tensor
    blocks: Tensor
    firsts: Tensor


@dataclass(frozen=True, slots=True)
class SparseSpan:
    """Rows `first .. last` of the forward, all of one session, that see more finished blocks than the budget.

    `block_counts` int64 [rows]: the finished blocks that each row sees.
    """

    slot: int
    first: int
    last: int
    block_counts: Tensor


@dataclass(frozen=True, slots=True)
class Plan:
    """The rows of a forward, span after span.

    `positions`, `arena` int64 [rows]: absolute position, and row of the cache arenas. `padded` int64 [spans,
    longest] gives each span's rows, its first row repeated behind its end, and `real` int64 [rows] the places
    of the rows in it; both None if every span has one row. `opened` int64: arena blocks that begin in a span
    and do not end in it. `listed`, `is_real_key`: see `_key_lists`. `is_prompt` chooses the prompt kernels; a
    prompt forward has one span.
    """

    spans: tuple[Span, ...]
    slots: Tensor
    positions: Tensor
    arena: Tensor
    padded: Tensor | None
    real: Tensor | None
    opened: Tensor | None
    finished: Finished | None
    sparse: tuple[SparseSpan, ...]
    listed: Tensor
    is_real_key: Tensor
    is_prompt: bool
    # what DeltaNet layers and the n-gram layer leave for `keep`, by layer: histories, states after each row
    conv_histories: list[Tensor] = field(default_factory=list)
    delta_states: list[list[Tensor]] = field(default_factory=list)
    ngram_histories: list[Tensor] = field(default_factory=list)

    @property
    def tokens(self) -> list[int]:
        """All rows' tokens."""
        return [token for span in self.spans for token in span.tokens]

    def by_span(self, rows: Tensor) -> Tensor:
        """[rows, ...] -> [spans, longest, ...]; what stands behind a span's end is to be ignored."""
        return rows.unsqueeze(1) if self.padded is None else rows[self.padded]

    def by_row(self, spans: Tensor) -> Tensor:
        """[spans, longest, ...] -> [rows, ...]."""
        flat = spans.reshape(-1, *spans.shape[2:])
        return flat if self.real is None else flat.index_select(0, self.real)


def plan_rows(spans: Sequence[Span], sessions: Sessions, indexer: IndexerConfig, *, is_prompt: bool) -> Plan:
    """Lay out a forward over spans of different sessions."""
    positions = [position for span in spans for position in range(span.position, span.end)]
    bases = [sessions.bases[span.slot] for span in spans for _ in span.tokens]
    at = torch.tensor(positions)
    padded, real = _padding(spans)
    opened = _opened(spans, sessions, indexer.block_tokens)
    listed, is_real_key = _key_lists(spans, sessions, at, indexer, is_prompt=is_prompt)
    return Plan(
        spans=tuple(spans),
        slots=torch.tensor([span.slot for span in spans]),
        positions=at,
        arena=at + torch.tensor(bases),
        padded=padded,
        real=real,
        opened=torch.tensor(opened) if opened else None,
        finished=_finished(spans, sessions, indexer.block_tokens),
        sparse=_sparse(spans, indexer),
        listed=listed,
        is_real_key=is_real_key,
        is_prompt=is_prompt,
    )


def _padding(spans: Sequence[Span]) -> tuple[Tensor | None, Tensor | None]:
    longest = max(len(span.tokens) for span in spans)
    if longest == 1:
        return None, None
    padded: list[list[int]] = []
    real: list[int] = []
    row = 0
    for index, span in enumerate(spans):
        count = len(span.tokens)
        padded.append([*range(row, row + count), *[row] * (longest - count)])
        real.extend(range(index * longest, index * longest + count))
        row += count
    return torch.tensor(padded), torch.tensor(real)


def _finished(spans: Sequence[Span], sessions: Sessions, block_tokens: int) -> Finished | None:
    rows: list[list[int]] = []
    blocks: list[int] = []
    firsts: list[int] = []
    for span in spans:
        for block in range(span.position // block_tokens, span.end // block_tokens):
            first = block * block_tokens
            start = sessions.bases[span.slot] + first
            rows.append(list(range(start, start + block_tokens)))
            blocks.append(sessions.block_bases[span.slot] + block)
            firsts.append(first)
    if not blocks:
        return None
    return Finished(torch.tensor(rows), torch.tensor(blocks), torch.tensor(firsts))


def _sparse(spans: Sequence[Span], indexer: IndexerConfig) -> tuple[SparseSpan, ...]:
    """The part of each span that sees more blocks than the budget: its last rows."""
    found: list[SparseSpan] = []
    row = 0
    first_sparse = (indexer.budget_blocks + 1) * indexer.block_tokens - 1
    for span in spans:
        start = max(span.position, first_sparse)
        if start < span.end:
            counts = (torch.arange(start, span.end) + 1) // indexer.block_tokens
            last = row + len(span.tokens)
            found.append(SparseSpan(span.slot, last - (span.end - start), last, counts))
        row += len(span.tokens)
    return tuple(found)


def _opened(spans: Sequence[Span], sessions: Sessions, block_tokens: int) -> list[int]:
    """Blocks whose rest a span leaves for later: attention reads whole blocks, so it must hold numbers."""
    lasts = [(span, span.end // block_tokens) for span in spans if span.end % block_tokens]
    return [
        sessions.key_block_bases[span.slot] + block
        for span, block in lasts
        if block * block_tokens >= span.position
    ]


def _key_lists(
    spans: Sequence[Span], sessions: Sessions, at: Tensor, indexer: IndexerConfig, *, is_prompt: bool
) -> tuple[Tensor, Tensor]:
    """Each row's blocks of keys in position order, in chunks: all up to its own, or what the budget allows.

    Arena blocks int64 [rows, chunks, blocks of a chunk], and which of their keys the row sees, bool [rows,
    chunks, CHUNK_KEYS]. For a row past the budget the first `budget_blocks` entries are for its selected
    blocks, which differ by layer, and its unfinished block follows them. Places without a block hold the
    session's first. Prompt forwards read their keys in place and get empty lists.
    """
    if is_prompt:
        return at.new_empty(0), at.new_empty(0)
    block_tokens, budget = indexer.block_tokens, indexer.budget_blocks
    most = max(span.end for span in spans)
    chunk_blocks = CHUNK_KEYS // block_tokens
    width = -(-min(-(-most // block_tokens), budget + 1) // chunk_blocks) * chunk_blocks
    places = torch.arange(width * block_tokens).unsqueeze(0)
    row = at.unsqueeze(1)
    blocks = places[:, :width]
    if most > indexer.budget_tokens:
        # a row past the budget sees its budget of blocks and, behind them, those after its last finished one
        skipped = ((row + 1) // block_tokens - budget).clamp_(min=0)
        blocks = torch.where(blocks >= budget, blocks + skipped, blocks)
        places = torch.where(places >= indexer.budget_tokens, places + skipped * block_tokens, places)
    bases = torch.tensor([sessions.key_block_bases[span.slot] for span in spans for _ in span.tokens])
    is_real = places <= row
    listed = blocks.masked_fill(blocks * block_tokens > row, 0) + bases.unsqueeze(1)
    rows = at.shape[0]
    return listed.view(rows, -1, chunk_blocks), is_real.view(rows, -1, CHUNK_KEYS)
