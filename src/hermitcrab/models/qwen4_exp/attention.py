"""Sparse attention (QSA): grouped queries with an output gate over the keys that the indexer selects."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from hermitcrab.kernels.activations import activations_of
from hermitcrab.kernels.attention import CHUNK_KEYS, attend_listed, attend_prompt
from hermitcrab.kernels.indexer import SCORE_BLOCKS, pool_blocks, score_blocks, top_blocks
from hermitcrab.kernels.linear import Linear
from hermitcrab.kernels.measures import Measures
from hermitcrab.kernels.norm import rms_norm
from hermitcrab.kernels.rope import rotate
from hermitcrab.models.qwen4_exp.config import ModelConfig
from hermitcrab.models.qwen4_exp.plan import Plan, SparseSpan
from hermitcrab.models.qwen4_exp.source import WeightSource
from hermitcrab.models.qwen4_exp.state import Sessions


@dataclass(frozen=True, slots=True)
class Rotary:
    """Cosines and sines by position [rows, rotary_dim / 2]."""

    cos: Tensor
    sin: Tensor

    def at(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """The tables' rows at these positions."""
        return self.cos.index_select(0, positions), self.sin.index_select(0, positions)


class Attention:
    """One attention layer; `layer` is its place among the attention layers of the sessions."""

    def __init__(
        self,
        source: WeightSource,
        name: str,
        config: ModelConfig,
        *,
        layer: int,
        rotary: Rotary,
        measures: Measures,
    ) -> None:
        shape, index = config.attention, config.indexer
        self._shape, self._index, self._layer, self._rotary = shape, index, layer, rotary
        self._eps, self._dtype = config.norm_eps, source.dtype
        self._heads = shape.query_heads + shape.kv_heads
        query_width, kv_width = shape.query_heads * shape.head_dim, shape.kv_heads * shape.head_dim
        # stored query and gate alternate head by head
        pairs = source.get(f"{name}.q_proj.weight").view(shape.query_heads, 2, shape.head_dim, config.hidden)
        parts = (
            pairs[:, 0].reshape(query_width, -1),
            source.get(f"{name}.k_proj.weight"),
            source.get(f"{name}.v_proj.weight"),
            # the gate comes halved for its sigmoid; what that leaves out goes into o_proj
            pairs[:, 1].reshape(query_width, -1) * 0.5,
            source.get(f"{name}.indexer.index_qk_proj.weight"),
        )
        self._into = Linear(torch.cat(parts), measures.products)
        self._widths = [
            query_width + kv_width,
            kv_width,
            query_width,
            index.query_heads * index.head_dim,
            index.head_dim,
        ]
        self._out = Linear(source.get(f"{name}.o_proj.weight") * 0.5, measures.products)
        self._gate = activations_of(measures).twice_sigmoid_of_half
        self._is_chunked = measures.attention
        # the scores' scale goes into the queries' gain
        scale = shape.head_dim**-0.5
        self._gain = torch.cat(
            (
                (source.gain(f"{name}.q_norm") * scale).expand(shape.query_heads, -1),
                source.gain(f"{name}.k_norm").expand(shape.kv_heads, -1),
            )
        )
        self._index_q_gain = source.gain(f"{name}.indexer.q_layernorm")
        self._index_k_gain = source.gain(f"{name}.indexer.k_layernorm")

    def __call__(self, rows: Tensor, plan: Plan, sessions: Sessions) -> Tensor:
        """Add the rows' keys to their sessions and attend; rows [rows, hidden] -> [rows, hidden]."""
        count, shape = rows.shape[0], self._shape
        cos, sin = self._rotary.at(plan.positions)
        heads, values, gate, index_q, index_k = torch.split(self._into(rows), self._widths, dim=-1)
        normed = rms_norm(heads.reshape(count, self._heads, shape.head_dim), self._gain, self._eps)
        turned = rotate(normed.to(self._dtype), cos, sin)
        self._store(turned[:, shape.query_heads :], values, index_k, plan, sessions)
        q = turned[:, : shape.query_heads].float()
        index_q = self._index_queries(index_q, cos, sin) if plan.sparse else index_q
        if plan.is_prompt:
            attended = self._attend_prompt(q, index_q, plan, sessions)
        else:
            attended = self._attend_listed(q, index_q, plan, sessions)
        return self._out(attended.mul_(self._gate(gate)).to(self._dtype))

    def _index_queries(self, index_q: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        heads = index_q.reshape(-1, self._index.query_heads, self._index.head_dim)
        return rotate(rms_norm(heads, self._index_q_gain, self._eps).to(self._dtype), cos, sin)

    def _store(self, keys: Tensor, values: Tensor, index_k: Tensor, plan: Plan, sessions: Sessions) -> None:
        layer = self._layer
        shape = (self._shape.kv_heads, -1, self._index.block_tokens, self._shape.head_dim)
        by_head = values.view(-1, self._shape.kv_heads, self._shape.head_dim)
        for arena, rows in ((sessions.keys[layer], keys), (sessions.values[layer], by_head)):
            if plan.opened is not None:
                arena.view(shape).index_fill_(1, plan.opened, 0.0)
            arena.index_copy_(1, plan.arena, rows.transpose(0, 1))
        sessions.raw[layer].index_copy_(0, plan.arena, index_k)
        if plan.finished is None:
            return
        raw = sessions.raw[layer][plan.finished.rows]
        cos, sin = self._rotary.at(plan.finished.firsts)
        pooled = pool_blocks(raw, self._index_k_gain, self._eps, cos, sin)
        sessions.pooled[layer].index_copy_(0, plan.finished.blocks, pooled)

    def _select(self, index_q: Tensor, span: SparseSpan, sessions: Sessions) -> Tensor:
        """The blocks that each of a sparse span's rows reads, ascending, int64 [rows, budget_blocks]."""
        most = int(span.block_counts[-1])
        base = sessions.block_bases[span.slot]
        end = base + -(-most // SCORE_BLOCKS) * SCORE_BLOCKS
        scores = score_blocks(index_q[span.first : span.last], sessions.pooled[self._layer, base:end])
        unfinished = torch.arange(scores.shape[1]).unsqueeze(0) >= span.block_counts.unsqueeze(1)
        return top_blocks(scores.masked_fill_(unfinished, -torch.inf), self._index.budget_blocks)

    def _attend_listed(self, q: Tensor, index_q: Tensor, plan: Plan, sessions: Sessions) -> Tensor:
        count, shape = q.shape[0], self._shape
        listed = plan.listed
        if plan.sparse:
            listed = listed.clone()
        for span in plan.sparse:
            blocks = self._select(index_q, span, sessions) + sessions.key_block_bases[span.slot]
            listed[span.first : span.last].flatten(1)[:, : blocks.shape[1]] = blocks
        attended = attend_listed(
            q.view(count, shape.kv_heads, -1, shape.head_dim),
            sessions.keys[self._layer],
            sessions.values[self._layer],
            listed,
            plan.is_real_key,
            is_chunked=self._is_chunked,
        )
        return attended.view(count, -1)

    def _attend_prompt(self, q: Tensor, index_q: Tensor, plan: Plan, sessions: Sessions) -> Tensor:
        (span,) = plan.spans
        count = q.shape[0]
        width = -(-span.end // CHUNK_KEYS) * CHUNK_KEYS
        base = sessions.bases[span.slot]
        visible = torch.arange(width).unsqueeze(0) <= plan.positions.unsqueeze(1)
        for part in plan.sparse:
            visible[part.first : part.last] &= self._selected(index_q, part, width, sessions)
        attended = attend_prompt(
            F.pad(q, (0, 0, 0, 0, 0, CHUNK_KEYS - count)),
            sessions.keys[self._layer, :, base : base + width],
            sessions.values[self._layer, :, base : base + width],
            F.pad(visible, (0, 0, 0, CHUNK_KEYS - count)),
        )
        return attended[:count].reshape(count, -1)

    def _selected(self, index_q: Tensor, span: SparseSpan, width: int, sessions: Sessions) -> Tensor:
        """bool [rows, width]: keys in a selected block, and all behind the last finished one."""
        blocks = self._select(index_q, span, sessions)
        block_tokens = self._index.block_tokens
        chosen = torch.zeros(span.last - span.first, width // block_tokens, dtype=torch.bool)
        chosen.scatter_(1, blocks, True)
        tail = torch.arange(width).unsqueeze(0) >= span.block_counts.unsqueeze(1) * block_tokens
        return chosen.repeat_interleave(block_tokens, dim=1) | tail
