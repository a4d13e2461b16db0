"""The n-gram embedding (PLE): hashed n-grams of the text, gated into every residual stream, convolved."""

import torch
from torch import Tensor

from hermitcrab.kernels.activations import activations_of
from hermitcrab.kernels.conv1d import causal_conv
from hermitcrab.kernels.linear import Linear
from hermitcrab.kernels.measures import Measures
from hermitcrab.kernels.ngram import ngram_rows
from hermitcrab.kernels.norm import rms_norm
from hermitcrab.models.qwen4_exp.config import ModelConfig, NgramConfig
from hermitcrab.models.qwen4_exp.plan import Plan, Span
from hermitcrab.models.qwen4_exp.source import WeightSource
from hermitcrab.models.qwen4_exp.state import Sessions
from hermitcrab.weights.table import RowTable

# inside the square root, as the family's training code has it
_GATE_EPS = 1e-6


class NgramLayer:
    """What one layer's residual streams get from the text's n-grams before the layer runs."""

    def __init__(
        self,
        source: WeightSource,
        config: ModelConfig,
        ngram: NgramConfig,
        table: RowTable,
        measures: Measures,
    ) -> None:
        name = f"layers.{ngram.layer}.ple"
        self._ngram, self._table, self._dtype, self._eps = ngram, table, source.dtype, config.norm_eps
        self._streams, self._hidden = config.streams.count, config.hidden
        self._activations = activations_of(measures)
        # what the gate's sigmoid leaves out goes into the value; silu's half into the taps
        projections = (source.get(f"{name}.key_proj.weight"), source.get(f"{name}.value_proj.weight") * 0.5)
        self._into = Linear(torch.cat(projections), measures.products)
        shape = (config.streams.count, config.hidden)
        self._key_gain = source.gain(f"{name}.norm_key").view(shape)
        self._query_gain = source.gain(f"{name}.norm_query").view(shape)
        self._conv_gain = source.gain(f"{name}.norm_conv").view(shape)
        self._taps = source.wide(f"{name}.conv1d.weight").squeeze(1).t().mul(0.5).contiguous()

    def __call__(self, streams: Tensor, plan: Plan, sessions: Sessions) -> Tensor:
        """Add to the streams [rows, streams, hidden]; commits or leaves its state like DeltaNet does."""
        rows = streams.shape[0]
        into = self._into(self._embed(plan, sessions))
        width = self._streams * self._hidden
        keys = rms_norm(into[:, :width].reshape(rows, self._streams, self._hidden), self._key_gain, self._eps)
        queries = rms_norm(streams, self._query_gain, self._eps)
        score = keys.mul_(queries).sum(-1, keepdim=True).mul_(self._hidden**-0.5)
        half = score.abs().clamp_min_(_GATE_EPS).sqrt_().mul_(0.5) * score.sign()
        value = self._activations.twice_sigmoid_of_half(half) * into[:, width:].float().unsqueeze(1)
        normed = rms_norm(value, self._conv_gain, self._eps).to(self._dtype).view(rows, -1)
        convolved = self._convolve(normed, plan, sessions)
        added = convolved.view_as(value).add_(value)
        return streams + added.to(self._dtype)

    def _embed(self, plan: Plan, sessions: Sessions) -> Tensor:
        ids: list[int] = []
        for span in plan.spans:
            ids.extend(self._row_ids(span, sessions))
            if plan.is_prompt or plan.padded is None:
                sessions.histories[span.slot] = self.history_after(span, len(span.tokens), sessions)
        embedded = self._table.gather(torch.tensor(ids), self._dtype)
        return embedded.view(-1, self._ngram.embed_width)

    def _row_ids(self, span: Span, sessions: Sessions) -> list[int]:
        constants = self._ngram.hash
        return ngram_rows(
            span.tokens,
            sessions.histories[span.slot],
            multipliers=constants.multipliers,
            head_rows=constants.head_rows,
            head_offsets=constants.head_offsets,
            heads_per_ngram=self._ngram.heads_per_ngram,
            reset_token=self._ngram.reset_token,
        )

    def history_after(self, span: Span, kept: int, sessions: Sessions) -> tuple[int, ...]:
        """The session's last tokens once the first `kept` rows of a span are part of it."""
        line = (*sessions.histories[span.slot], *span.tokens[:kept])
        return line[len(line) - self._ngram.ngram_tokens + 1 :]

    def _convolve(self, normed: Tensor, plan: Plan, sessions: Sessions) -> Tensor:
        history = torch.cat((sessions.ngram_tails.index_select(0, plan.slots), plan.by_span(normed)), dim=1)
        if plan.is_prompt or plan.padded is None:
            sessions.ngram_tails.index_copy_(0, plan.slots, history[:, -self._ngram.conv_tail_tokens :])
        else:
            plan.ngram_histories.append(history)
        convolved = causal_conv(history.float(), self._taps, self._ngram.conv_dilation)
        return self._activations.silu_of_half(plan.by_row(convolved))
