"""The draft head at work: it absorbs settled rows and chains drafts on its own output, for many streams.

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
from hermitcrab.models.qwen4_exp.model import Model
from hermitcrab.models.qwen4_exp.plan import Span
from hermitcrab.models.qwen4_exp.state import Sessions


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
    if record.fresh is not None:
        next_tokens, rows = tokens, torch.cat((record.fresh[-1:], rows))
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
    fresh: list[Tensor] = []
    for request in requests:
        rows = records[request.slot].fresh
        if rows is None or rows.shape[0] != len(request.next_tokens):
            raise StateNotSettled(f"session {request.slot} has other rows to absorb than were asked for")
        fresh.append(rows)
    spans = [Span(request.slot, request.position, request.next_tokens) for request in requests]
    plan = model.plan(spans, sessions, is_prompt=False)
    streams = model.draft_forward(torch.cat(fresh), plan.tokens, plan, sessions)
    chains: list[_Chain] = []
    end = 0
    for request, span in zip(requests, spans, strict=True):
        end += len(span.tokens)
        records[request.slot].head_rows = span.end
        chains.append(_Chain(request, span.end, streams[end - 1 : end], []))
    return chains


def _step(model: Model, sessions: Sessions, live: Sequence[_Chain]) -> None:
    """Run the head over each chain's last draft, on a provisional row."""
    spans = [
        Span(chain.request.slot, chain.rows + len(chain.drafts) - 1, (chain.drafts[-1],)) for chain in live
    ]
    plan = model.plan(spans, sessions, is_prompt=False)
    streams = model.draft_forward(torch.cat([chain.streams for chain in live]), plan.tokens, plan, sessions)
    for place, chain in enumerate(live):
        chain.streams = streams[place : place + 1]
