"""The whole model for training: trunk, MTP head, and the forward pass of a batch."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as fn

from training.nets.attention import (
    Attention,
    AttentionRows,
    attend,
    block_scores,
    indexer_loss,
    selected_keys,
)
from training.nets.deltanet import DeltaParts, entering_states
from training.nets.moe import SparseMoe
from training.nets.ngram import NgramInjection
from training.nets.residual import HyperConnection
from training.nets.rows import rms_norm, rotary_tables
from training.shape import Shape


class Batch(NamedTuple):
    """Sequences of one length T on the device."""

    tokens: Tensor  # [B, T + 4] int64; rows 0..T-1 are read, the rest are targets
    weights: Tensor  # [B, T + 4] fp32, the loss weight of each token as a target
    positions: Tensor  # [B, T] int64


class Plan(NamedTuple):
    """How one pass attends and what it trains besides the next token."""

    budget_blocks: int | None = None  # None attends densely
    kl_rows: Tensor | None = None  # places whose attention teaches the indexer
    chain_sequences: int = 0  # sequences on which the MTP head learns to chain its drafts


class Layer(nn.Module):
    """One decoder layer: an attention or Gated DeltaNet block, then the mixture of experts."""

    def __init__(self, shape: Shape, *, attends: bool, injects: bool = False) -> None:
        super().__init__()
        self.shape = shape
        self.ple = NgramInjection(shape) if injects else None
        self.linear_attn = None if attends else DeltaParts(shape)
        self.self_attn = Attention(shape) if attends else None
        self.mlp = SparseMoe(shape)
        self.attn_hyper_connection = HyperConnection(shape)
        self.mlp_hyper_connection = HyperConnection(shape)

    def finish(self, streams: Tensor, output: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Write the first block's output, run the experts; returns the streams and the router's losses."""
        streams = self.attn_hyper_connection.write(streams, output, weights)
        x, weights = self.mlp_hyper_connection.read(streams)
        output, losses = self.mlp(x)
        return self.mlp_hyper_connection.write(streams, output, weights), losses


class MtpHead(nn.Module):
    """Predicts the token after next from the trunk's streams and the next token."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.pre_fc_norm_embedding = nn.Parameter(torch.zeros(shape.hidden_size))
        self.pre_fc_norm_hidden = nn.Parameter(torch.zeros(shape.stream_width))
        self.fc_embedding = nn.Linear(shape.hidden_size, shape.hidden_size, bias=False)
        self.fc_hidden = nn.Linear(shape.hidden_size, shape.hidden_size, bias=False)
        self.layers = nn.ModuleList([Layer(shape, attends=True)])
        self.hyper_connection_mixer = HyperConnection(shape, writes=False)

    def enter(self, streams: Tensor, embedded: Tensor) -> Tensor:
        """The head's own streams [N, S * D] from the streams of row i and the embedding of token i + 1."""
        eps = self.shape.rms_norm_eps
        embedded = self.fc_embedding(rms_norm(embedded, self.pre_fc_norm_embedding, eps))
        normed = rms_norm(streams, self.pre_fc_norm_hidden, eps)
        # one matrix serves every stream
        hidden = self.fc_hidden(normed.unflatten(-1, (self.shape.hc_count, self.shape.hidden_size)))
        return (hidden + embedded.unsqueeze(-2)).flatten(-2)


class Trunk(nn.Module):
    """Embedding, layers and the final mixer."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocab_size, shape.hidden_size)
        self.layers = nn.ModuleList(
            Layer(shape, attends=shape.is_attention(layer), injects=layer + 1 in shape.ple_layer_ids)
            for layer in range(shape.num_hidden_layers)
        )
        self.hyper_connection_mixer = HyperConnection(shape, writes=False)


class Model(nn.Module):
    """The parameters, named as the MLX checkpoint names them below `language_model.`."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.model = Trunk(shape)
        self.lm_head = nn.Linear(shape.hidden_size, shape.vocab_size, bias=False)
        self.mtp = MtpHead(shape)


def delta_before(layer: Layer, streams: Tensor, place: Tensor) -> tuple[Tensor, ...]:
    x, weights = layer.attn_hyper_connection.read(streams)
    return x, weights, *layer.linear_attn.before(x, place)


def delta_after(
    layer: Layer, streams: Tensor, x: Tensor, weights: Tensor, reads: Tensor, own: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    return layer.finish(streams, layer.linear_attn.after(reads, own, state, x), weights)


def attention_before(layer: Layer, streams: Tensor, tables: Tensor) -> tuple[Tensor, AttentionRows]:
    x, weights = layer.attn_hyper_connection.read(streams)
    return weights, layer.self_attn.before(x, tables)


def attention_after(
    layer: Layer, streams: Tensor, attended: Tensor, gate: Tensor, weights: Tensor
) -> tuple[Tensor, Tensor]:
    return layer.finish(streams, layer.self_attn.after(attended, gate), weights)


def inject(layer: Layer, streams: Tensor, rows: Tensor, place: Tensor) -> Tensor:
    return layer.ple(streams, rows, place)


def enter_head(head: MtpHead, streams: Tensor, embedded: Tensor) -> Tensor:
    return head.enter(streams, embedded)


def logits_of(mixer: HyperConnection, head: nn.Linear, streams: Tensor) -> Tensor:
    return head(mixer.read(streams)[0])


def token_loss(
    mixer: HyperConnection, head: nn.Linear, streams: Tensor, targets: Tensor, weights: Tensor
) -> Tensor:
    """[3] fp32: the weighted sum of losses, the sum of weights, and the weighted count of right arg-maxes."""
    logits = logits_of(mixer, head, streams).float()
    losses = fn.cross_entropy(logits, targets, reduction="none")
    right = (logits.argmax(-1) == targets).float()
    return torch.stack(((losses * weights).sum(), weights.sum(), (right * weights).sum()))


PIECES: tuple[Callable[..., object], ...] = (
    delta_before,
    delta_after,
    attention_before,
    attention_after,
    inject,
    enter_head,
    token_loss,
)


class Pieces(NamedTuple):
    """The row-wise pieces between the parts that know about sequences; compiled once a sequence length."""

    delta_before: Callable[..., tuple[Tensor, ...]]
    delta_after: Callable[..., tuple[Tensor, Tensor]]
    attention_before: Callable[..., tuple[Tensor, AttentionRows]]
    attention_after: Callable[..., tuple[Tensor, Tensor]]
    inject: Callable[..., Tensor]
    enter_head: Callable[..., Tensor]
    token_loss: Callable[..., Tensor]


def pieces(*, compiled: bool) -> Pieces:
    """The pieces as they are, or each compiled for fixed row counts."""
    if not compiled:
        return Pieces(*PIECES)
    return Pieces(*(torch.compile(piece, dynamic=False) for piece in PIECES))


class Losses(NamedTuple):
    """Sums of one pass; the token entries are `token_loss` triples."""

    token: Tensor
    drafts: list[Tensor]  # one a depth
    router: Tensor  # [2] mean over layers: balance, z
    indexer: Tensor  # mean over attention layers


class Pass:
    """One forward pass over a batch; collects the side losses of its layers."""

    def __init__(self, model: Model, run: Pieces, batch: Batch, plan: Plan) -> None:
        self.model, self.run, self.batch, self.plan = model, run, batch, plan
        self.shape = model.shape
        self.sequences, self.length = batch.positions.shape
        device = batch.tokens.device
        self.place = torch.arange(self.length, device=device, dtype=torch.int32).repeat(self.sequences)
        self.tables = rotary_tables(batch.positions.flatten(), self.shape.rotary_dim, self.shape.rope_theta)
        self.router: list[Tensor] = []
        self.indexer: list[Tensor] = []

    def tokens(self, shift: int) -> Tensor:
        """Each row's token `shift` places on, [N]."""
        return self.batch.tokens[:, shift : shift + self.length].flatten()

    def weights(self, shift: int) -> Tensor:
        """The loss weight of each row's token `shift` places on, [N]."""
        return self.batch.weights[:, shift : shift + self.length].flatten()

    def delta(self, layer: Layer, streams: Tensor) -> Tensor:
        """One Gated DeltaNet layer."""
        x, weights, step, reads, own = self.run.delta_before(layer, streams, self.place)
        state = entering_states(step.unflatten(0, (self.sequences, -1))).flatten(0, 1)
        streams, losses = self.run.delta_after(layer, streams, x, weights, reads, own, state)
        self.router.append(losses)
        return streams

    def mask(self, part: AttentionRows) -> Tensor | None:
        """The keys each row may read in this pass, None for all earlier ones."""
        ratio = self.shape.indexer_compress_ratio
        if self.plan.budget_blocks is None or self.plan.budget_blocks >= self.length // ratio:
            return None
        with torch.no_grad():
            query, key = (x.unflatten(0, (self.sequences, -1)) for x in (part.index_query, part.index_key))
            rows = torch.arange(self.length, device=query.device)
            masks = [
                selected_keys(
                    block_scores(query[b : b + 1], key[b : b + 1], ratio, rows),
                    self.plan.budget_blocks,
                    ratio,
                )
                for b in range(self.sequences)
            ]
            return torch.cat(masks)

    def attention(self, layer: Layer, streams: Tensor) -> tuple[Tensor, AttentionRows]:
        """One attention layer; also what its rows brought."""
        weights, part = self.run.attention_before(layer, streams, self.tables)
        attended = attend(part, self.sequences, self.mask(part))
        streams, losses = self.run.attention_after(layer, streams, attended, part.gate, weights)
        self.router.append(losses)
        if self.plan.kl_rows is not None:
            ratio = self.shape.indexer_compress_ratio
            self.indexer.append(indexer_loss(part, self.sequences, self.plan.kl_rows, ratio))
        return streams, part

    def trunk(self) -> Tensor:
        """The streams [N, S * D] after the last layer."""
        trunk = self.model.model
        streams = trunk.embed_tokens(self.tokens(0)).repeat(1, self.shape.hc_count)
        for layer in trunk.layers:
            if layer.ple is not None:
                rows = layer.ple.ple_embedding.rows(self.batch.tokens[:, : self.length]).flatten(0, 1)
                streams = self.run.inject(layer, streams, rows, self.place)
            if layer.linear_attn is not None:
                streams = self.delta(layer, streams)
            else:
                streams, _ = self.attention(layer, streams)
        return streams

    def judge(self, mixer: HyperConnection, streams: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        """The `token_loss` triple of the streams against their targets."""
        return self.run.token_loss(mixer, self.model.lm_head, streams, targets, weights)

    def losses(self) -> Losses:
        """All losses of the batch under the plan."""
        streams = self.trunk()
        token = self.judge(self.model.model.hyper_connection_mixer, streams, self.tokens(1), self.weights(1))
        head = self.model.mtp
        embedded = self.model.model.embed_tokens(self.tokens(1))
        entered = self.run.enter_head(head, streams, embedded)
        drafted, part = self.attention(head.layers[0], entered)
        drafts = [self.judge(head.hyper_connection_mixer, drafted, self.tokens(2), self.weights(2))]
        if self.plan.chain_sequences:
            drafts += self.chain(drafted, embedded, part)
        return Losses(token, drafts, torch.stack(self.router).mean(0), self.indexer_mean())

    def indexer_mean(self) -> Tensor:
        """The mean indexer loss, zero when the plan samples no rows."""
        return torch.stack(self.indexer).mean() if self.indexer else torch.zeros((), device=self.place.device)

    def chain(self, drafted: Tensor, embedded: Tensor, part: AttentionRows) -> list[Tensor]:
        """The losses of the second and third draft on the first sequences, as a server would make them.

        A draft's row i takes the head's own streams of row i - 1; it reads true rows before its chain and
        the chain's.
        """
        head, layer = self.model.mtp, self.model.mtp.layers[0]
        sequences = self.plan.chain_sequences
        count = sequences * self.length
        true = AttentionRows(*(x[:count] for x in part[:4]), part.index_query[:0], part.index_key[:0])
        tables, place = self.tables[:count], self.place[:count]
        targets, weights = self.tokens(2)[:count], self.weights(2)[:count]
        streams, links, found = drafted[:count], [], []
        for depth in (2, 3):
            entered = head.enter(torch.roll(streams, 1, dims=0), embedded[:count])
            x, write = layer.attn_hyper_connection.read(entered)
            query, key, value, gate = layer.self_attn.project(x, tables)
            links = [(torch.roll(k, 1, dims=0), torch.roll(v, 1, dims=0)) for k, v in links] + [(key, value)]
            attended = chain_attention(query, true, links, sequences)
            streams, _ = layer.finish(entered, layer.self_attn.after(attended, gate), write)
            live = weights * (place >= depth - 1)
            found.append(self.judge(head.hyper_connection_mixer, streams, targets, live))
        return found


def chain_attention(
    query: Tensor, true: AttentionRows, links: list[tuple[Tensor, Tensor]], sequences: int
) -> Tensor:
    """Attention [N, H * dim] of a chained draft: true keys up to its chain's start, then one key a link.

    Links run from the chain's first row to the row itself, each already moved to the row it is read from.
    """
    share = query.shape[1] // true.key.shape[1]

    def grouped(x: Tensor) -> Tensor:
        return x.unflatten(0, (sequences, -1)).repeat_interleave(share, dim=2).transpose(1, 2)

    rows = query.unflatten(0, (sequences, -1)).transpose(1, 2)
    key, value = grouped(true.key), grouped(true.value)
    length = rows.shape[2]
    places = torch.arange(length, device=query.device)
    visible = places <= (places - len(links)).unsqueeze(-1)
    scores = (rows @ key.transpose(-1, -2)).float().masked_fill(~visible, float("-inf"))
    own = [(rows * grouped(k)).sum(-1, keepdim=True).float() for k, _ in links]
    weights = (torch.cat((scores, *own), dim=-1) / query.shape[-1] ** 0.5).softmax(-1).to(value.dtype)
    out = weights[..., :length] @ value
    for index, (_, v) in enumerate(links):
        out = out + weights[..., length + index : length + index + 1] * grouped(v)
    return out.transpose(1, 2).flatten(0, 1).flatten(-2)
