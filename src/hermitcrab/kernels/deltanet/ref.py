"""The gated delta rule over a state S [key_dim, value_dim] a head, all in float32.

    S = exp(g) S;   S = S + k (beta (v - k^T S));   out = q^T S          (Yang et al., Gated Delta Networks)

`steps` applies it row by row. `chunk` solves it for up to CHUNK_ROWS rows at once (the WY form); it rounds
differently, so prompts always use it and replies never do.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

CHUNK_ROWS = 64


@dataclass(frozen=True, slots=True)
class DeltaRows:
    """Rows of windows: normed q and k, v [windows, rows, heads, dim]; g and beta [windows, rows, heads]."""

    q: Tensor
    k: Tensor
    v: Tensor
    g: Tensor
    beta: Tensor


def steps(rows: DeltaRows, state: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Run each window's rows in order from `state` [windows, heads, key_dim, value_dim].

    Returns outputs [windows, rows, heads, value_dim] and, for every row, the states after it.
    """
    columns = (
        rows.g.exp()[..., None, None],
        rows.k.unsqueeze(-1),
        rows.v,
        rows.beta.unsqueeze(-1),
        rows.q.unsqueeze(-1),
    )
    outputs: list[Tensor] = []
    states: list[Tensor] = []
    for decay, key, value, beta, query in zip(*(column.unbind(1) for column in columns), strict=True):
        state = state * decay
        change = torch.sub(value, (state * key).sum(-2)).mul_(beta)
        state.addcmul_(key, change.unsqueeze(-2))
        outputs.append((state * query).sum(-2))
        states.append(state)
    if len(outputs) == 1:
        return outputs[0].unsqueeze(1), states
    return torch.stack(outputs, dim=1), states


def chunk(rows: DeltaRows, state: Tensor) -> tuple[Tensor, Tensor]:
    """Run one window of at most CHUNK_ROWS rows from `state` [1, heads, key_dim, value_dim].

    The rows are padded with ones that change nothing, so that a row's bits depend on the rows before it
    only. Returns outputs [1, rows, heads, value_dim] and the state after the last row.
    """
    count = rows.q.shape[1]
    q, k, v = (_by_head(part) for part in (rows.q, rows.k, rows.v))
    g, beta = (_by_head(part.unsqueeze(-1)).squeeze(-1) for part in (rows.g, rows.beta))
    total = g.cumsum(-1)
    lower = torch.ones(CHUNK_ROWS, CHUNK_ROWS, dtype=torch.bool).tril_()
    # exp of differences only where row >= column: elsewhere it could overflow
    relative = (total.unsqueeze(-1) - total.unsqueeze(-2)).masked_fill_(~lower, 0.0).exp_()
    weighted_keys = k * beta.unsqueeze(-1)
    system = (weighted_keys @ k.transpose(-1, -2)).mul_(relative).tril_(-1)
    from_state = weighted_keys * total.exp().unsqueeze(-1)
    known = v * beta.unsqueeze(-1) - from_state @ state[0]
    changes = torch.linalg.solve_triangular(system, known, upper=False, unitriangular=True)
    attention = (q @ k.transpose(-1, -2)).mul_(relative).tril_()
    outputs = (q * total.exp().unsqueeze(-1)) @ state[0] + attention @ changes
    last = total[:, -1:]
    remaining = k * (last - total).exp().unsqueeze(-1)
    after = state[0] * last.exp().unsqueeze(-1) + remaining.transpose(-1, -2) @ changes
    return outputs[:, :count].transpose(0, 1).unsqueeze(0), after.unsqueeze(0)


def chunk_windows(rows: DeltaRows, state: Tensor) -> tuple[Tensor, list[Tensor]]:
    """The plain form of `steps`: windows of several rows give the outputs that `chunk` gives."""
    outputs, states = steps(rows, state)
    if outputs.shape[1] == 1:
        return outputs, states
    alone = [
        chunk(DeltaRows(*(part[place : place + 1] for part in parts)), state[place : place + 1])[0]
        for parts in [(rows.q, rows.k, rows.v, rows.g, rows.beta)]
        for place in range(state.shape[0])
    ]
    return torch.cat(alone), states


def _by_head(part: Tensor) -> Tensor:
    """[1, rows, heads, dim] -> [heads, CHUNK_ROWS, dim], padded with zeros."""
    return F.pad(part[0].transpose(0, 1), (0, 0, 0, CHUNK_ROWS - part.shape[1]))
