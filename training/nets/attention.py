"""Sparse attention: the block indexer, dense and selected attention, and the indexer's own loss."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as fn

from training.nets.rows import rms_norm, rotate
from training.shape import Shape


class AttentionRows(NamedTuple):
    """What a block's rows bring to attention: heads are normed and rotated."""

    query: Tensor  # [N, H, dim]
    key: Tensor  # [N, H_kv, dim]
    value: Tensor  # [N, H_kv, dim]
    gate: Tensor  # [N, H * dim]
    index_query: Tensor  # [N, H_index, dim_index]
    index_key: Tensor  # [N / 4, dim_index], one a block of four rows


class Indexer(nn.Module):
    """Scores blocks of four keys for each query. Its input is detached: only `indexer_loss` teaches it."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        width = (shape.indexer_n_heads + shape.indexer_kv_heads) * shape.indexer_head_dim
        self.index_qk_proj = nn.Linear(shape.hidden_size, width, bias=False)
        self.q_layernorm = nn.Parameter(torch.zeros(shape.indexer_head_dim))
        self.k_layernorm = nn.Parameter(torch.zeros(shape.indexer_head_dim))

    def project(self, x: Tensor, tables: Tensor) -> tuple[Tensor, Tensor]:
        """Queries, normed and rotated, and raw keys."""
        dim, heads = self.shape.indexer_head_dim, self.shape.indexer_n_heads
        query, key = self.index_qk_proj(x.detach()).split((heads * dim, dim), dim=-1)
        query = rms_norm(query.unflatten(-1, (heads, dim)), self.q_layernorm, self.shape.rms_norm_eps)
        return rotate(query, tables), key

    def pool(self, keys: Tensor, tables: Tensor) -> Tensor:
        """Block keys from raw keys [blocks, 4, dim]: fp32 mean, norm, rotation at its first position."""
        pooled = rms_norm(keys.float().mean(1).to(keys.dtype), self.k_layernorm, self.shape.rms_norm_eps)
        return rotate(pooled.unsqueeze(1), tables).squeeze(1)

    def forward(self, x: Tensor, tables: Tensor) -> tuple[Tensor, Tensor]:
        ratio = self.shape.indexer_compress_ratio
        query, key = self.project(x, tables)
        return query, self.pool(key.unflatten(0, (-1, ratio)), tables[::ratio])


class Attention(nn.Module):
    """The weights of one attention block and its two halves, before and after the keys are read."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        hidden, dim = shape.hidden_size, shape.head_dim
        heads, kv_heads = shape.num_attention_heads, shape.num_key_value_heads
        self.q_proj = nn.Linear(hidden, heads * dim * 2, bias=False)
        self.k_proj = nn.Linear(hidden, kv_heads * dim, bias=False)
        self.v_proj = nn.Linear(hidden, kv_heads * dim, bias=False)
        self.o_proj = nn.Linear(heads * dim, hidden, bias=False)
        self.q_norm = nn.Parameter(torch.zeros(dim))
        self.k_norm = nn.Parameter(torch.zeros(dim))
        self.indexer = Indexer(shape)

    def project(self, x: Tensor, tables: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Query, key, value and output gate of rows [N, D]."""
        dim, eps = self.shape.head_dim, self.shape.rms_norm_eps
        query, gate = self.q_proj(x).unflatten(-1, (-1, 2 * dim)).chunk(2, dim=-1)
        query = rotate(rms_norm(query, self.q_norm, eps), tables)
        key = rotate(rms_norm(self.k_proj(x).unflatten(-1, (-1, dim)), self.k_norm, eps), tables)
        return query, key, self.v_proj(x).unflatten(-1, (-1, dim)), gate.flatten(-2)

    def before(self, x: Tensor, tables: Tensor) -> AttentionRows:
        """Everything the rows bring, the indexer's part too."""
        return AttentionRows(*self.project(x, tables), *self.indexer(x, tables))

    def after(self, attended: Tensor, gate: Tensor) -> Tensor:
        """Gate and project what the heads read, [N, H * dim]."""
        return self.o_proj(attended * torch.sigmoid(gate))


def block_scores(query: Tensor, keys: Tensor, ratio: int, rows: Tensor) -> Tensor:
    """Scores [B, R, blocks] fp32 of the blocks complete at each row, -inf for the others.

    query [B, R, H_index, dim], keys [B, blocks, dim]; rows [R] are the queries' places in their sequences.
    """
    scores = (
        torch.einsum("brhd,bnd->bhrn", query.float(), keys.float()).relu().sum(1) / query.shape[-1] ** 0.5
    )
    complete = (rows + 1) // ratio
    blocks = torch.arange(keys.shape[1], device=rows.device)
    return scores.masked_fill(blocks >= complete.unsqueeze(-1), float("-inf"))


@torch.no_grad()
def selected_keys(scores: Tensor, budget_blocks: int, ratio: int) -> Tensor:
    """The keys each row may read, [B, T, T] bool: its best blocks, lower ids first in a tie, and its tail."""
    rows = torch.arange(scores.shape[1], device=scores.device)
    blocks = torch.arange(scores.shape[2], device=scores.device)
    # equal scores (mostly exact zeros) must fall to the lower id; real gaps are far wider than this slope
    ranked = scores - blocks * 1e-6
    floor = ranked.topk(min(budget_blocks, scores.shape[2]), dim=-1).values[..., -1:]
    chosen = (ranked >= floor) & (scores > float("-inf"))
    keys = chosen.repeat_interleave(ratio, dim=-1)
    tail = (rows >= ((rows + 1) // ratio * ratio).unsqueeze(-1)) & (rows <= rows.unsqueeze(-1))
    return keys | tail


def attend(part: AttentionRows, sequences: int, mask: Tensor | None) -> Tensor:
    """Causal attention [N, H * dim] within each sequence, dense or over `mask` [B, T, T]."""
    share = part.query.shape[1] // part.key.shape[1]
    query, key, value = (x.unflatten(0, (sequences, -1)).transpose(1, 2) for x in part[:3])
    key, value = (x.repeat_interleave(share, dim=1) for x in (key, value))
    if mask is None:
        out = fn.scaled_dot_product_attention(query, key, value, is_causal=True)
    else:
        out = fn.scaled_dot_product_attention(query, key, value, attn_mask=mask.unsqueeze(1))
    return out.transpose(1, 2).flatten(0, 1).flatten(-2)


def indexer_loss(part: AttentionRows, sequences: int, rows: Tensor, ratio: int) -> Tensor:
    """KL of the indexer's scores, as logits over blocks, from the block's attention on sampled rows [R]."""
    query, key = (x.detach().unflatten(0, (sequences, -1)) for x in part[:2])
    share = query.shape[2] // key.shape[2]
    query = query[:, rows].unflatten(2, (-1, share))
    logits = torch.einsum("brgsd,btgd->bgsrt", query, key).float() / query.shape[-1] ** 0.5
    places = torch.arange(key.shape[1], device=key.device)
    weights = logits.masked_fill(places > rows.unsqueeze(-1), float("-inf")).softmax(-1).mean((1, 2))
    target = weights.unflatten(-1, (-1, ratio)).sum(-1)
    index_query = part.index_query.unflatten(0, (sequences, -1))[:, rows]
    scores = block_scores(index_query, part.index_key.unflatten(0, (sequences, -1)), ratio, rows)
    seen = scores > float("-inf")
    target = torch.where(seen, target, 0.0)
    target = target / target.sum(-1, keepdim=True).clamp_min(1e-9)
    logs = torch.where(seen, scores, -1e4).log_softmax(-1)
    return (target * (target.clamp_min(1e-9).log() - logs)).sum(-1).mean()
