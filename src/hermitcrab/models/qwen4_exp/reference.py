"""The model again, in plain float32 torch: no kernels, no cache, a whole text at once, one function a block.

It states the equations of the model specification (`spec/model.md`; each function names its place there) as
directly as it can, and shares nothing with the forward but the loader's weights. The forward and the draft
head are held against it. Rows of a text are [rows, ...]; the residual streams are [rows, streams, hidden].
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from hermitcrab.models.qwen4_exp.checkpoint import Checkpoint
from hermitcrab.models.qwen4_exp.config import LayerKind, NgramConfig, OutputGate
from hermitcrab.weights.affine import AffineWeight

# inside the square root of the n-gram gate, and inside the sum of DeltaNet's L2 norm
_SMALL = 1e-6


@dataclass(frozen=True, slots=True)
class Text:
    """What the text model gives for every row of a text.

    `streams` [rows, streams, hidden] stand after the last layer and before the final mixer: the draft head
    reads them. `logits` [rows, vocabulary].
    """

    streams: Tensor
    logits: Tensor


class Reference:
    """The text model and its draft head over a checkpoint's weights, dequantized to float32."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.config = checkpoint.config
        self._weights: Mapping[str, Tensor] = {
            name: weight.dequantize(torch.float32) if isinstance(weight, AffineWeight) else weight.float()
            for name, weight in checkpoint.tensors.items()
        }
        self._table = checkpoint.ngram

    def text(self, tokens: Sequence[int]) -> Text:
        """The text model over all tokens: embedding into every stream, layers, final mixer, output head."""
        config = self.config
        streams = self._embedding(tokens).unsqueeze(1).repeat(1, config.streams.count, 1)
        for layer, kind in enumerate(config.layers):
            if config.ngram is not None and layer == config.ngram.layer:
                streams = streams + self._ngrams(streams, tokens, config.ngram)
            streams = self._layer(f"layers.{layer}", kind, streams)
        return Text(streams, self._output(streams, "hyper_connection_mixer"))

    def drafts(self, streams: Tensor, next_tokens: Sequence[int], depth: int) -> Tensor:
        """The draft head's logits [depth, vocabulary] for the tokens after the last of `next_tokens`.

        `streams` [rows, streams, hidden] are the text model's, `next_tokens[i]` follows row i. Each draft is
        the arg-max of the logits before it, and enters with the head's own output streams in place of the
        text model's (MTP input: its output streams feed the next draft).
        """
        line, entered = list(next_tokens), streams
        logits: list[Tensor] = []
        for _ in range(depth):
            after = self.head_streams(entered, line)
            logits.append(self._output(after[-1:], "mtp.hyper_connection_mixer")[0])
            line.append(int(logits[-1].argmax()))
            entered = torch.cat((entered, after[-1:]))
        return torch.stack(logits)

    def head_streams(self, streams: Tensor, next_tokens: Sequence[int]) -> Tensor:
        """MTP input, then the head's one attention layer; its output streams [rows, streams, hidden].

        fc_embedding(norm(embedding of the next token)) is added to each stream of fc_hidden(norm(h)); that
        norm is one over all streams together, fc_hidden is shared by the streams.
        """
        rows, count, hidden = streams.shape
        token = self._norm("mtp.pre_fc_norm_embedding", self._embedding(next_tokens))
        normed = self._norm("mtp.pre_fc_norm_hidden", streams.reshape(rows, count * hidden))
        entered = self._linear("mtp.fc_hidden", normed.view(rows, count, hidden))
        entered = entered + self._linear("mtp.fc_embedding", token).unsqueeze(1)
        return self._layer("mtp.layers.0", LayerKind.ATTENTION, entered)

    def _layer(self, name: str, kind: LayerKind, streams: Tensor) -> Tensor:
        """A token mixer and the experts, each behind a hyper-connection."""
        row, factors = self._read(f"{name}.attn_hyper_connection", streams)
        if kind is LayerKind.ATTENTION:
            mixed = self._attention(f"{name}.self_attn", row)
        else:
            mixed = self._deltanet(f"{name}.linear_attn", row)
        streams = streams + factors * mixed.unsqueeze(1)
        row, factors = self._read(f"{name}.mlp_hyper_connection", streams)
        return streams + factors * self._experts(f"{name}.mlp", row).unsqueeze(1)

    def _read(self, name: str, streams: Tensor) -> tuple[Tensor, Tensor]:
        """Hyper-connection read: silu(down(norm(h)) / n), sigmoid(up(.)), mean over streams of mix * norm(h).

        With it the write's factors [rows, streams, 1], 2 sigmoid(inject(norm(h)) / n), for n streams.
        """
        rows, count, _ = streams.shape
        normed = self._stream_norm(f"{name}.hc_norm", streams)
        flat = normed.reshape(rows, -1)
        rank = F.silu(self._linear(f"{name}.input_mix_weight_down", flat) / count)
        mix = torch.sigmoid(self._linear(f"{name}.input_mix_weight_up", rank)).view_as(normed)
        row = (mix * normed).mean(1)
        if f"{name}.block_inject_weight.weight" not in self._weights:
            return row, row.new_empty(0)
        factors = 2.0 * torch.sigmoid(self._linear(f"{name}.block_inject_weight", flat) / count)
        return row, factors.unsqueeze(-1)

    def _output(self, streams: Tensor, mixer: str) -> Tensor:
        """The final mixer (no inject) and the output head; logits [rows, vocabulary]."""
        return self._linear("lm_head", self._read(mixer, streams)[0])

    def _deltanet(self, name: str, x: Tensor) -> Tensor:
        """DeltaNet: conv over q|k|v then silu; q and k L2-normalised, q / sqrt(dim); the gated delta rule.

        S = exp(g) S; S = S + k (beta (v - k^T S)); out = q^T S, row by row; then norm * w, times the gate.
        """
        net, rows = self.config.deltanet, x.shape[0]
        mixed = F.silu(
            _causal_conv(self._linear(f"{name}.in_proj_qkv", x), self._weights[f"{name}.conv1d.weight"])
        )
        q, k, v = torch.split(mixed, [net.key_width, net.key_width, net.value_width], dim=-1)
        group = net.value_heads // net.key_heads
        q = _unit(q.view(rows, net.key_heads, net.key_dim)).repeat_interleave(group, 1) / math.sqrt(
            net.key_dim
        )
        k = _unit(k.view(rows, net.key_heads, net.key_dim)).repeat_interleave(group, 1)
        v = v.view(rows, net.value_heads, net.value_dim)
        beta = torch.sigmoid(self._linear(f"{name}.in_proj_b", x))
        step = F.softplus(self._linear(f"{name}.in_proj_a", x) + self._weights[f"{name}.dt_bias"])
        decay = torch.exp(-self._weights[f"{name}.A_log"].exp() * step)
        state = x.new_zeros(net.value_heads, net.key_dim, net.value_dim)
        outputs: list[Tensor] = []
        for row in range(rows):
            state = state * decay[row].view(-1, 1, 1)
            change = beta[row].unsqueeze(-1) * (v[row] - torch.einsum("hk,hkv->hv", k[row], state))
            state = state + torch.einsum("hk,hv->hkv", k[row], change)
            outputs.append(torch.einsum("hk,hkv->hv", q[row], state))
        normed = _unit_rms(torch.stack(outputs), self.config.norm_eps) * self._weights[f"{name}.norm.weight"]
        z = self._linear(f"{name}.in_proj_z", x)
        gate = torch.sigmoid(z) if net.output_gate is OutputGate.SIGMOID else F.silu(z)
        return self._linear(f"{name}.out_proj", normed.reshape(rows, -1) * gate)

    def _attention(self, name: str, x: Tensor) -> Tensor:
        """Attention: q_proj gives query and gate by head; norm, RoPE, softmax over visible keys, gate."""
        shape, rows = self.config.attention, x.shape[0]
        pairs = self._linear(f"{name}.q_proj", x).view(rows, shape.query_heads, 2, shape.head_dim)
        q, gate = pairs.unbind(2)
        kv_shape = (rows, shape.kv_heads, shape.head_dim)
        k = self._linear(f"{name}.k_proj", x).view(kv_shape)
        v = self._linear(f"{name}.v_proj", x).view(kv_shape)
        places = torch.arange(rows)
        q = self._rotate(self._norm(f"{name}.q_norm", q), places)
        k = self._rotate(self._norm(f"{name}.k_norm", k), places)
        group = shape.query_heads // shape.kv_heads
        scores = torch.einsum("qhd,khd->hqk", q, k.repeat_interleave(group, 1)) / math.sqrt(shape.head_dim)
        scores = scores.masked_fill(~self._visible(f"{name}.indexer", x), -torch.inf)
        attended = torch.einsum("hqk,khd->qhd", scores.softmax(-1), v.repeat_interleave(group, 1))
        return self._linear(f"{name}.o_proj", (attended * torch.sigmoid(gate)).reshape(rows, -1))

    def _visible(self, name: str, x: Tensor) -> Tensor:
        """Indexer: bool [rows, rows], the keys that each row reads.

        A block's key is RoPE(norm(mean of its raw keys)) at its first position; a block's score the sum over
        heads of relu(q.k) / sqrt(dim). A row reads the best finished blocks up to the budget, ties to the
        lower block, and the unfinished tail.
        """
        index, rows = self.config.indexer, x.shape[0]
        projected = self._linear(f"{name}.index_qk_proj", x)
        q, raw = torch.split(projected, [index.query_heads * index.head_dim, index.head_dim], dim=-1)
        q = self._norm(f"{name}.q_layernorm", q.view(rows, index.query_heads, index.head_dim))
        q = self._rotate(q, torch.arange(rows))
        blocks = rows // index.block_tokens
        means = raw[: blocks * index.block_tokens].view(blocks, index.block_tokens, index.head_dim).mean(1)
        firsts = torch.arange(blocks) * index.block_tokens
        keys = self._rotate(self._norm(f"{name}.k_layernorm", means).unsqueeze(1), firsts).squeeze(1)
        scores = torch.einsum("qhd,bd->qhb", q, keys).relu().sum(1) / math.sqrt(index.head_dim)
        visible = torch.zeros(rows, rows, dtype=torch.bool)
        for row in range(rows):
            finished = (row + 1) // index.block_tokens
            ranked = torch.sort(scores[row, :finished], descending=True, stable=True).indices
            for block in ranked[: index.budget_blocks].tolist():
                visible[row, block * index.block_tokens : (block + 1) * index.block_tokens] = True
            visible[row, finished * index.block_tokens : row + 1] = True
        return visible

    def _experts(self, name: str, x: Tensor) -> Tensor:
        """MoE: softmax over all experts, the best few (normalised on request), the gated shared expert."""
        moe = self.config.moe
        ranked = torch.sort(self._linear(f"{name}.gate", x).softmax(-1), dim=-1, descending=True, stable=True)
        weights, chosen = (part[:, : moe.experts_per_token] for part in (ranked.values, ranked.indices))
        if moe.is_normalised:
            weights = weights / weights.sum(-1, keepdim=True)
        gate_up = self._weights[f"{name}.experts.gate_up_proj"]
        down = self._weights[f"{name}.experts.down_proj"]
        total = torch.zeros_like(x)
        for row in range(x.shape[0]):
            for weight, expert in zip(weights[row], chosen[row].tolist(), strict=True):
                gate, up = (gate_up[expert] @ x[row]).chunk(2)
                total[row] += weight * (down[expert] @ (F.silu(gate) * up))
        shared = f"{name}.shared_expert"
        inner = F.silu(self._linear(f"{shared}.gate_proj", x)) * self._linear(f"{shared}.up_proj", x)
        return total + torch.sigmoid(self._linear(f"{shared}_gate", x)) * self._linear(
            f"{shared}.down_proj", inner
        )

    def _ngrams(self, streams: Tensor, tokens: Sequence[int], ngram: NgramConfig) -> Tensor:
        """PLE: hashed n-grams give a value, gated a stream by sigmoid(sign * sqrt|k.q|), and its convolution.

        Both are added to the streams.
        """
        assert self._table is not None, "a checked checkpoint has the table its config asks for"
        name, (rows, count, hidden) = f"layers.{ngram.layer}.ple", streams.shape
        ids = torch.tensor([ngram_ids(tokens, place, ngram) for place in range(rows)])
        embedded = self._table.gather(ids.flatten(), torch.float32).view(rows, ngram.embed_width)
        keys = self._linear(f"{name}.key_proj", embedded).view(rows, count, hidden)
        keys = self._stream_norm(f"{name}.norm_key", keys)
        queries = self._stream_norm(f"{name}.norm_query", streams)
        score = (keys * queries).sum(-1, keepdim=True) / math.sqrt(hidden)
        gate = torch.sigmoid(score.sign() * score.abs().clamp(min=_SMALL).sqrt())
        value = gate * self._linear(f"{name}.value_proj", embedded).unsqueeze(1)
        normed = self._stream_norm(f"{name}.norm_conv", value).reshape(rows, -1)
        taps = self._weights[f"{name}.conv1d.weight"]
        return value + F.silu(_causal_conv(normed, taps, ngram.conv_dilation)).view_as(value)

    def _rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        """RoPE on the first `rotary_dim` dims of x [rows, heads, dim], halves paired.

        M-RoPE's three axes hold the same position for text, so its interleaving changes nothing.
        """
        shape = self.config.attention
        exponents = torch.arange(0, shape.rotary_dim, 2, dtype=torch.float32) / shape.rotary_dim
        angles = positions.float().unsqueeze(1) * (1.0 / shape.rope_theta**exponents)
        cos, sin = angles.cos().unsqueeze(1), angles.sin().unsqueeze(1)
        low, high = x[..., : shape.rotary_dim].chunk(2, dim=-1)
        turned = (low * cos - high * sin, high * cos + low * sin, x[..., shape.rotary_dim :])
        return torch.cat(turned, dim=-1)

    def _norm(self, name: str, x: Tensor) -> Tensor:
        """Norms multiply by (1 + w), over the last dimension."""
        return _unit_rms(x, self.config.norm_eps) * (1.0 + self._weights[f"{name}.weight"])

    def _stream_norm(self, name: str, streams: Tensor) -> Tensor:
        """Norms of all streams side by side work per stream: [rows, streams, hidden]."""
        gain = 1.0 + self._weights[f"{name}.weight"].view(streams.shape[1:])
        return _unit_rms(streams, self.config.norm_eps) * gain

    def _linear(self, name: str, x: Tensor) -> Tensor:
        return x @ self._weights[f"{name}.weight"].T

    def _embedding(self, tokens: Sequence[int]) -> Tensor:
        return self._weights["embed_tokens.weight"][torch.tensor(list(tokens))]


def ngram_ids(tokens: Sequence[int], place: int, ngram: NgramConfig) -> list[int]:
    """PLE: table rows of the n-grams that end at `place`, head after head, 2-grams first.

    A head's row is the xor of token times multiplier, newest first, mod the head's prime, behind the heads
    before it. A token that lies before the text, or at or before a reset token that is older than `place`
    itself, counts as the reset token.
    """
    newest_first = [tokens[place]]
    for back in range(1, ngram.ngram_tokens):
        is_cut = back > place or ngram.reset_token in tokens[place - back : place]
        newest_first.append(ngram.reset_token if is_cut else tokens[place - back])
    ids: list[int] = []
    for head, (size, offset) in enumerate(zip(ngram.hash.head_rows, ngram.hash.head_offsets, strict=True)):
        mixed = 0
        for token, multiplier in zip(
            newest_first[: 2 + head // ngram.heads_per_ngram], ngram.hash.multipliers, strict=False
        ):
            mixed ^= token * multiplier
        ids.append(offset + mixed % size)
    return ids


def _causal_conv(x: Tensor, taps: Tensor, dilation: int = 1) -> Tensor:
    """Depthwise convolution of rows [rows, channels] by taps [channels, 1, kernel], zeros before the text."""
    past = (taps.shape[-1] - 1) * dilation
    padded = F.pad(x.T.unsqueeze(0), (past, 0))
    return F.conv1d(padded, taps, groups=taps.shape[0], dilation=dilation)[0].T


def _unit_rms(x: Tensor, eps: float) -> Tensor:
    return x / torch.sqrt(x.square().mean(-1, keepdim=True) + eps)


def _unit(x: Tensor) -> Tensor:
    """L2 norm with eps inside the sum."""
    return x / torch.sqrt(x.square().sum(-1, keepdim=True) + _SMALL)
