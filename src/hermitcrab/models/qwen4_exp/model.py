"""The `qwen4_exp` text model: embedding, layers, output head, and the draft head beside them."""

import torch
from torch import Tensor

from hermitcrab.kernels.linear import Linear
from hermitcrab.kernels.measures import Measures
from hermitcrab.kernels.rope import rope_tables
from hermitcrab.models.qwen4_exp.attention import Attention, Rotary
from hermitcrab.models.qwen4_exp.checkpoint import Checkpoint
from hermitcrab.models.qwen4_exp.config import LayerKind, ModelConfig
from hermitcrab.models.qwen4_exp.deltanet import DeltaNet
from hermitcrab.models.qwen4_exp.layer import DecoderLayer, TokenMixer, read_mixer
from hermitcrab.models.qwen4_exp.mtp import DraftHead
from hermitcrab.models.qwen4_exp.ngram import NgramLayer
from hermitcrab.models.qwen4_exp.plan import Plan, Span, plan_rows
from hermitcrab.models.qwen4_exp.source import WeightSource
from hermitcrab.models.qwen4_exp.state import Sessions


class Model:
    """The weights, arranged for one dtype and one kind of product, and the forward over sessions."""

    def __init__(
        self, checkpoint: Checkpoint, *, dtype: torch.dtype, context_rows: int, measures: Measures
    ) -> None:
        """`context_rows` is the largest session's capacity: positions beyond it cannot be asked for."""
        config = checkpoint.config
        source = WeightSource(checkpoint.tensors, dtype)
        self.config, self.dtype = config, dtype
        self._embedding = source.get("embed_tokens.weight")
        shape = config.attention
        rotary = Rotary(*rope_tables(context_rows, shape.rotary_dim, shape.rope_theta, dtype))
        self._layers = _read_layers(source, config, rotary, measures)
        self._ngram = None
        if config.ngram is not None:
            assert checkpoint.ngram is not None, "a checked checkpoint has the table its config asks for"
            self._ngram = NgramLayer(source, config, config.ngram, checkpoint.ngram, measures)
        self._mixer = read_mixer(source, "hyper_connection_mixer", config, measures, injects=False)
        self._head = Linear(source.get("lm_head.weight"), measures.products)
        self._draft_head = DraftHead(source, config, rotary, measures) if config.mtp_layers else None

    @property
    def has_draft_head(self) -> bool:
        """True if the checkpoint brought a draft head."""
        return self._draft_head is not None

    def plan(self, spans: list[Span], sessions: Sessions, *, is_prompt: bool) -> Plan:
        """Lay out a forward."""
        return plan_rows(spans, sessions, self.config.indexer, is_prompt=is_prompt)

    def forward(self, plan: Plan, sessions: Sessions) -> Tensor:
        """Run the plan's rows; their residual streams after the last layer [rows, streams, hidden]."""
        embedded = self.embed(plan.tokens)
        streams = embedded.unsqueeze(1).expand(-1, self.config.streams.count, -1)
        for index, layer in enumerate(self._layers):
            if self._ngram is not None and self.config.ngram is not None and index == self.config.ngram.layer:
                streams = self._ngram(streams, plan, sessions)
            streams = layer(streams, plan, sessions)
        return streams

    def keep(self, plan: Plan, place: int, rows: int, sessions: Sessions) -> None:
        """Make the first `rows` rows of the plan's span `place` part of its session, the rest never run."""
        if plan.padded is None:
            return
        span = plan.spans[place]
        tail = self.config.deltanet.conv_kernel - 1
        for layer, (history, states) in enumerate(zip(plan.conv_histories, plan.delta_states, strict=True)):
            sessions.states[layer, span.slot] = states[rows - 1][place]
            sessions.conv_tails[layer, span.slot] = history[place, rows : rows + tail]
        if self._ngram is not None and self.config.ngram is not None:
            tail = self.config.ngram.conv_tail_tokens
            sessions.ngram_tails[span.slot] = plan.ngram_histories[0][place, rows : rows + tail]
            sessions.histories[span.slot] = self._ngram.history_after(span, rows, sessions)

    def embed(self, tokens: list[int]) -> Tensor:
        """Embeddings [rows, hidden]."""
        return self._embedding.index_select(0, torch.tensor(tokens))

    def logits(self, streams: Tensor) -> Tensor:
        """Logits [rows, vocabulary] float32 from residual streams."""
        return self._head(self._mixer.read(streams)[0]).float()

    def draft_forward(
        self, streams: Tensor, next_tokens: list[int], plan: Plan, sessions: Sessions
    ) -> Tensor:
        """Run the draft head over rows whose streams and next tokens are given; its output streams."""
        assert self._draft_head is not None, "only a model with a draft head drafts"
        return self._draft_head(streams, self.embed(next_tokens), plan, sessions)

    def draft_logits(self, streams: Tensor) -> Tensor:
        """Logits [rows, vocabulary] float32 from the draft head's output streams."""
        assert self._draft_head is not None, "only a model with a draft head drafts"
        return self._head(self._draft_head.read(streams)).float()


def _read_layers(
    source: WeightSource, config: ModelConfig, rotary: Rotary, measures: Measures
) -> list[DecoderLayer]:
    layers: list[DecoderLayer] = []
    for index, kind in enumerate(config.layers):
        name = f"layers.{index}"
        place = config.layers[:index].count(kind)
        mixer: TokenMixer
        if kind is LayerKind.ATTENTION:
            mixer = Attention(
                source, f"{name}.self_attn", config, layer=place, rotary=rotary, measures=measures
            )
        else:
            mixer = DeltaNet(source, f"{name}.linear_attn", config, layer=place, measures=measures)
        layers.append(DecoderLayer(source, name, config, mixer, measures))
    return layers
