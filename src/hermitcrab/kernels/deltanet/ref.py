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
    """Rows of windows: q normed and scaled, k normed, v [windows, rows, heads, dim]; g, beta without dim."""

    q: Tensor
    k: Tensor
    v: Tensor
    g: Tensor
    beta: Tensor


def steps(rows: DeltaRows, state: Tensor) -> tuple[Tensor, Tensor]:
    """Run each window's rows in order from `state` [windows, heads, key_dim, value_dim].

    Returns outputs [windows, rows, heads, value_dim] and the states after every row [rows, windows, heads,
    key_dim, value_dim].
    """
    decay = rows.g.exp().unsqueeze(-1).unsqueeze(-1)
    keys = rows.k.unsqueeze(-1)
    queries = rows.q.unsqueeze(-1)
    betas = rows.beta.unsqueeze(-1)
    count = rows.q.shape[1]
    states = state.new_empty((count, *state.shape))
    outputs = torch.empty_like(rows.v)
    for row in range(count):
        after = states[row]
        torch.mul(state, decay[:, row], out=after)
        recalled = (after * keys[:, row]).sum(-2)
        change = (rows.v[:, row] - recalled).mul_(betas[:, row])
        after.addcmul_(keys[:, row], change.unsqueeze(-2))
        outputs[:, row] = (after * queries[:, row]).sum(-2)
        state = after
    return outputs, states


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


def _by_head(part: Tensor) -> Tensor:
    """[1, rows, heads, dim] -> [heads, CHUNK_ROWS, dim], padded with zeros."""
    return F.pad(part[0].transpose(0, 1), (0, 0, 0, CHUNK_ROWS - part.shape[1]))
