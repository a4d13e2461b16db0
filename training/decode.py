"""Greedy replies with the recurrent rule and sparse selection, many rows at once, a token at a time.

All rows stand at the same position: a row reads its prompt while it lasts, then its own arg-maxes.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from training.nets.attention import Attention, block_scores
from training.nets.deltanet import DeltaParts
from training.nets.model import Layer, Model, logits_of
from training.nets.ngram import NgramInjection
from training.nets.rows import rotary_tables
from training.shape import END_OF_TEXT_ID, IM_END_ID

CHECK_EVERY_TOKENS = 128


class InjectionState:
    """The n-gram history [B, 2] and the convolution's tail [B, 9, S * D] of the rows."""

    def __init__(self, ple: NgramInjection, rows: int) -> None:
        self.ple = ple
        weight = ple.conv1d
        self.history = torch.full((rows, ple.shape.ngram_size - 1), END_OF_TEXT_ID, device=weight.device)
        tail_rows = (weight.shape[-1] - 1) * ple.shape.ngram_size
        self.tail = torch.zeros(rows, tail_rows, weight.shape[0], device=weight.device, dtype=weight.dtype)

    def step(self, streams: Tensor, tokens: Tensor) -> Tensor:
        """Inject into one token's streams of every row."""
        seen = torch.cat((self.history, tokens.unsqueeze(1)), dim=1)
        injected, normed = self.ple.gated(streams, self.ple.ple_embedding.rows(seen)[:, -1])
        window = torch.cat((self.tail, normed.unsqueeze(1)), dim=1)
        taps = window[:, :: self.ple.shape.ngram_size]
        self.history.copy_(seen[:, 1:])
        self.tail.copy_(window[:, 1:])
        convolved = (taps * self.ple.conv1d.T).sum(1)
        return streams + injected + torch.nn.functional.silu(convolved)


class DeltaState:
    """The convolution's tail [B, 3, qkv] and the recurrent state [B, H, dim_k, dim_v] fp32 of the rows."""

    def __init__(self, delta: DeltaParts, rows: int) -> None:
        self.delta = delta
        weight, shape = delta.conv1d, delta.shape
        self.tail = torch.zeros(
            rows, weight.shape[1] - 1, weight.shape[0], device=weight.device, dtype=weight.dtype
        )
        heads, dim_k, dim_v = (
            shape.linear_num_value_heads,
            shape.linear_key_head_dim,
            shape.linear_value_head_dim,
        )
        self.memory = torch.zeros(rows, heads, dim_k, dim_v, device=weight.device)

    def step(self, x: Tensor) -> Tensor:
        """The block's output for one token of every row."""
        window = torch.cat((self.tail, self.delta.in_proj_qkv(x).unsqueeze(1)), dim=1)
        self.tail.copy_(window[:, 1:])
        q, k, v = self.delta.heads(torch.nn.functional.silu((window * self.delta.conv1d.T).sum(1)))
        decay, beta = self.delta.gates(x)
        memory = self.memory * decay.exp()[..., None, None]
        change = (v - (memory * k.unsqueeze(-1)).sum(-2)) * beta.unsqueeze(-1)
        self.memory.copy_(memory + k.unsqueeze(-1) * change.unsqueeze(-2))
        return self.delta.read_out((self.memory * q.unsqueeze(-1)).sum(-2), x)


class AttentionState:
    """Keys, values, and block keys of the rows up to a capacity."""

    def __init__(self, attention: Attention, rows: int, capacity_tokens: int) -> None:
        self.attention = attention
        weight, shape = attention.k_proj.weight, attention.shape
        kept = {"device": weight.device, "dtype": weight.dtype}
        self.keys = torch.zeros(rows, capacity_tokens, shape.num_key_value_heads, shape.head_dim, **kept)
        self.values = torch.zeros_like(self.keys)
        ratio = shape.indexer_compress_ratio
        self.raw = torch.zeros(rows, ratio, shape.indexer_head_dim, **kept)
        self.blocks = torch.zeros(rows, capacity_tokens // ratio, shape.indexer_head_dim, **kept)

    def selected(self, index_query: Tensor, position: Tensor) -> tuple[Tensor, Tensor]:
        """Key places [B, selected] and which of them count: the best blocks, then the unfinished tail."""
        shape = self.attention.shape
        ratio = shape.indexer_compress_ratio
        scores = block_scores(index_query.unsqueeze(1), self.blocks, ratio, position.view(1)).squeeze(1)
        ranked = scores.sort(dim=-1, descending=True, stable=True)
        best = slice(0, min(shape.budget_blocks, scores.shape[1]))
        within = torch.arange(ratio, device=position.device)
        places = (ranked.indices[:, best].unsqueeze(-1) * ratio + within).flatten(1)
        counts = (ranked.values[:, best] > float("-inf")).repeat_interleave(ratio, dim=1)
        tail = ((position + 1) // ratio * ratio + within).expand(len(places), -1)
        places = torch.cat((places, tail.clamp_max(self.keys.shape[1] - 1)), dim=1)
        return places, torch.cat((counts, tail <= position), dim=1)

    def step(self, x: Tensor, position: Tensor) -> Tensor:
        """The block's output for one token of every row, all at `position`."""
        shape = self.attention.shape
        ratio = shape.indexer_compress_ratio
        at = position.view(1)
        tables = rotary_tables(at, shape.rotary_dim, shape.rope_theta)
        query, key, value, gate = self.attention.project(x, tables)
        self.keys.index_copy_(1, at, key.unsqueeze(1))
        self.values.index_copy_(1, at, value.unsqueeze(1))
        index_query, raw = self.attention.indexer.project(x, tables)
        self.raw.index_copy_(1, at % ratio, raw.unsqueeze(1))
        first = rotary_tables(at // ratio * ratio, shape.rotary_dim, shape.rope_theta)
        self.blocks.index_copy_(1, at // ratio, self.attention.indexer.pool(self.raw, first).unsqueeze(1))
        places, counts = self.selected(index_query, position)
        rows = torch.arange(len(x), device=x.device).unsqueeze(1)
        keys, values = self.keys[rows, places], self.values[rows, places]
        grouped = query.unflatten(1, (keys.shape[2], -1))
        scores = torch.einsum("bgsd,btgd->bgst", grouped.float(), keys.float()) / shape.head_dim**0.5
        weights = scores.masked_fill(~counts[:, None, None], float("-inf")).softmax(-1)
        read = torch.einsum("bgst,btgd->bgsd", weights, values.float()).flatten(1).to(x.dtype)
        return self.attention.after(read, gate)


class Decoder:
    """Owns the state of a batch of rows from position 0."""

    def __init__(self, model: Model, prompts: Sequence[Sequence[int]], capacity_tokens: int) -> None:
        device = model.lm_head.weight.device
        rows = len(prompts)
        self.model = model
        self.capacity_tokens = capacity_tokens
        self.prompt_tokens = [len(prompt) for prompt in prompts]
        self.position = torch.zeros((), dtype=torch.int64, device=device)
        self.tokens = torch.full((rows, capacity_tokens + 1), -1, dtype=torch.int64)
        for row, prompt in enumerate(prompts):
            self.tokens[row, : len(prompt)] = torch.tensor(prompt)
        self.tokens = self.tokens.to(device)
        self.states = [self._state(layer, rows) for layer in model.model.layers]
        self.injections = [
            InjectionState(layer.ple, rows) if layer.ple else None for layer in model.model.layers
        ]

    def _state(self, layer: Layer, rows: int) -> DeltaState | AttentionState:
        if layer.linear_attn is not None:
            return DeltaState(layer.linear_attn, rows)
        return AttentionState(layer.self_attn, rows, self.capacity_tokens)

    def step(self) -> None:
        """Read the token at the position; put the arg-max behind it unless the prompt goes on."""
        trunk = self.model.model
        at = self.position.view(1)
        tokens = self.tokens.index_select(1, at).squeeze(1)
        streams = trunk.embed_tokens(tokens).repeat(1, self.model.shape.hc_count)
        for layer, state, injection in zip(trunk.layers, self.states, self.injections, strict=True):
            if injection is not None:
                streams = injection.step(streams, tokens)
            x, weights = layer.attn_hyper_connection.read(streams)
            output = state.step(x) if isinstance(state, DeltaState) else state.step(x, self.position)
            streams, _ = layer.finish(streams, output, weights)
        best = logits_of(trunk.hyper_connection_mixer, self.model.lm_head, streams).float().argmax(-1)
        given = self.tokens.index_select(1, at + 1).squeeze(1)
        self.tokens.index_copy_(1, at + 1, torch.where(given >= 0, given, best).unsqueeze(1))
        self.position.add_(1)

    def _graph(self) -> Callable[[], None]:
        """The step as a replayable graph on a GPU, itself elsewhere. Takes three steps on a GPU."""
        if self.position.device.type != "cuda":
            return self.step
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.step()
        return graph.replay

    @torch.no_grad()
    def run(self) -> list[list[int]]:
        """Each row's reply, its end token included, or what there was room for."""
        step = self._graph()
        while (position := int(self.position)) < self.capacity_tokens:
            if position > max(self.prompt_tokens) and self._all_ended():
                break
            for _ in range(min(CHECK_EVERY_TOKENS, self.capacity_tokens - position)):
                step()
        return self._replies()

    def _all_ended(self) -> bool:
        return all(reply and reply[-1] in (IM_END_ID, END_OF_TEXT_ID) for reply in self._replies())

    def _replies(self) -> list[list[int]]:
        made = self.tokens[:, : int(self.position) + 1].tolist()
        replies = []
        for tokens, start in zip(made, self.prompt_tokens, strict=True):
            reply = tokens[start:]
            ends = [index for index, token in enumerate(reply) if token in (IM_END_ID, END_OF_TEXT_ID)]
            replies.append(reply[: ends[0] + 1] if ends else reply)
        return replies
