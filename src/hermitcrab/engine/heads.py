"""The draft head at work: it absorbs settled rows and chains drafts on its own output, for many streams.

Rows may wait for the head. Many that wait are absorbed through the prompt kernels, which take a chunk of them
for little more than one; so the head's bits depend on when it absorbed: drafts may differ, tokens never.

Row i of the head holds what row i of the trunk gave and token i + 1; it predicts token i + 2. Drafts stand on
provisional rows behind the absorbed ones, which the next absorbing writes over.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from hermitcrab.core.backend import DraftRequest
from hermitcrab.engine.draws import draw_rows
from hermitcrab.engine.session import SessionRecord
from hermitcrab.errors import StateNotSettled
from hermitcrab.kernels.deltanet import CHUNK_ROWS
from hermitcrab.models.qwen4_exp.model import Model
from hermitcrab.models.qwen4_exp.plan import Span
from hermitcrab.models.qwen4_exp.state import Sessions

# with more rows than this a prompt forward of them is cheaper than their part in a shared one
_SHARED_ROWS = 24


@dataclass(frozen=True, slots=True)
class _Waiting:
    """Rows of one session that wait for the head, and their streams [rows, streams, hidden]."""

    span: Span
    streams: Tensor


@dataclass(slots=True)
class _Chain:
    """One stream's drafts so far, and the head's output streams [1, streams, hidden] they go on from."""

    request: DraftRequest
    rows: int
    streams: Tensor
    drafts: list[int]


def absorb_prompt(
    model: Model, sessions: Sessions, record: SessionRecord, tokens: tuple[int, ...], streams: Tensor
) -> None:
    """Absorb a prompt chunk's rows but the last, and the last row of the chunk before it.

    The chunk starts at the session's length, on the grid; so the head's chunks lie on a grid of their own,
    one row earlier, and its prompt rows do not depend on the cut of passes either.
    """
    next_tokens, rows = tokens[1:], streams[:-1]
    if record.fresh:
        next_tokens, rows = tokens, torch.cat((record.fresh[-1][-1:], rows))
    if not next_tokens:
        return
    span = Span(record.slot, record.head_rows, next_tokens)
    plan = model.plan([span], sessions, is_prompt=True)
    model.draft_forward(rows, list(next_tokens), plan, sessions)
    record.head_rows = span.end


def draft_rounds(
    model: Model, sessions: Sessions, records: Sequence[SessionRecord], requests: Sequence[DraftRequest]
) -> list[tuple[int, ...]]:
    """Absorb every request's rows in one forward, then draw one draft a forward for all that want more."""
    chains = _absorb(model, sessions, records, requests)
    live = [chain for chain in chains if chain.request.depth]
    while live:
        streams = torch.cat([chain.streams for chain in live])
        positions = [chain.rows + 1 + len(chain.drafts) for chain in live]
        samplings = [chain.request.sampling for chain in live]
        for chain, token in zip(
            live, draw_rows(model.draft_logits(streams), positions, samplings), strict=True
        ):
            chain.drafts.append(token)
        live = [chain for chain in live if len(chain.drafts) < chain.request.depth]
        if live:
            _step(model, sessions, live)
    return [tuple(chain.drafts) for chain in chains]


def _absorb(
    model: Model, sessions: Sessions, records: Sequence[SessionRecord], requests: Sequence[DraftRequest]
) -> list[_Chain]:
    waiting = [_catch_up(model, sessions, _waiting(records[request.slot], request)) for request in requests]
    plan = model.plan([rows.span for rows in waiting], sessions, is_prompt=False)
    streams = model.draft_forward(torch.cat([rows.streams for rows in waiting]), plan.tokens, plan, sessions)
    chains: list[_Chain] = []
    end = 0
    for request, rows in zip(requests, waiting, strict=True):
        end += len(rows.span.tokens)
        record = records[request.slot]
        record.head_rows, record.fresh = rows.span.end, []
        chains.append(_Chain(request, rows.span.end, streams[end - 1 : end], []))
    return chains


def _waiting(record: SessionRecord, request: DraftRequest) -> _Waiting:
    if sum(rows.shape[0] for rows in record.fresh) != len(request.next_tokens):
        raise StateNotSettled(f"session {request.slot} has other rows to absorb than were asked for")
    return _Waiting(Span(request.slot, request.position, request.next_tokens), torch.cat(record.fresh))


def _catch_up(model: Model, sessions: Sessions, waiting: _Waiting) -> _Waiting:
    """Absorb rows through the prompt kernels until few are left, at least one; those."""
    span, streams = waiting.span, waiting.streams
    while len(span.tokens) > _SHARED_ROWS:
        count = min(CHUNK_ROWS, len(span.tokens) - 1)
        first = Span(span.slot, span.position, span.tokens[:count])
        plan = model.plan([first], sessions, is_prompt=True)
        model.draft_forward(streams[:count], plan.tokens, plan, sessions)
        span, streams = Span(span.slot, first.end, span.tokens[count:]), streams[count:]
    return _Waiting(span, streams)


def _step(model: Model, sessions: Sessions, live: Sequence[_Chain]) -> None:
    """Run the head over each chain's last draft, on a provisional row."""
    spans = [
        Span(chain.request.slot, chain.rows + len(chain.drafts) - 1, (chain.drafts[-1],)) for chain in live
    ]
    plan = model.plan(spans, sessions, is_prompt=False)
    streams = model.draft_forward(torch.cat([chain.streams for chain in live]), plan.tokens, plan, sessions)
    for place, chain in enumerate(live):
        chain.streams = streams[place : place + 1]
