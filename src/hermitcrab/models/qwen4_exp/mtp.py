"""The draft head (MTP): from a row's residual streams and the next token, the token after that.

    streams' = fc_hidden(norm(h)) + fc_embedding(norm(embedding of the next token)), on every stream
    then one attention layer with experts; its own mixer and the model's output head give logits

`norm(h)` is one norm over all streams side by side, `fc_hidden` serves every stream. The head's output
streams are the `h` of the next draft.
"""

from torch import Tensor

from hermitcrab.kernels.linear import Linear
from hermitcrab.kernels.measures import Measures
from hermitcrab.kernels.norm import rms_norm
from hermitcrab.models.qwen4_exp.attention import Attention, Rotary
from hermitcrab.models.qwen4_exp.config import LayerKind, ModelConfig
from hermitcrab.models.qwen4_exp.layer import DecoderLayer, read_mixer
from hermitcrab.models.qwen4_exp.plan import Plan
from hermitcrab.models.qwen4_exp.source import WeightSource
from hermitcrab.models.qwen4_exp.state import Sessions


class DraftHead:
    """The head's layer, whose caches are the last attention layer of the sessions."""

    def __init__(self, source: WeightSource, config: ModelConfig, rotary: Rotary, measures: Measures) -> None:
        self._dtype, self._eps = source.dtype, config.norm_eps
        self._embedding_gain = source.gain("mtp.pre_fc_norm_embedding")
        self._hidden_gain = source.gain("mtp.pre_fc_norm_hidden")
        self._into_embedding = Linear(source.get("mtp.fc_embedding.weight"), measures.products)
        self._into_hidden = Linear(source.get("mtp.fc_hidden.weight"), measures.products)
        layer = config.layers.count(LayerKind.ATTENTION)
        attention = Attention(
            source, "mtp.layers.0.self_attn", config, layer=layer, rotary=rotary, measures=measures
        )
        self._layer = DecoderLayer(source, "mtp.layers.0", config, attention, measures)
        self._mixer = read_mixer(source, "mtp.hyper_connection_mixer", config, measures, injects=False)

    def __call__(self, streams: Tensor, embedded: Tensor, plan: Plan, sessions: Sessions) -> Tensor:
        """Output streams of the rows' streams [rows, streams, hidden] and next embeddings [rows, hidden]."""
        rows, count, hidden = streams.shape
        normed = rms_norm(streams.reshape(rows, -1), self._hidden_gain, self._eps).to(self._dtype)
        token = rms_norm(embedded, self._embedding_gain, self._eps).to(self._dtype)
        entered = self._into_hidden(normed.view(rows * count, hidden)).view(rows, count, hidden)
        return self._layer(entered + self._into_embedding(token).unsqueeze(1), plan, sessions)

    def read(self, streams: Tensor) -> Tensor:
        """What the output head reads: [rows, hidden]."""
        return self._mixer.read(streams)[0]
