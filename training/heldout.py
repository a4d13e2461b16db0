"""Loss on held-out text, by the forward that serves the checkpoint."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional as fn

from hermitcrab.kernels.deltanet import CHUNK_ROWS
from hermitcrab.kernels.linear import choose_path
from hermitcrab.kernels.measures import Measures
from hermitcrab.models.qwen4_exp.checkpoint import Checkpoint
from hermitcrab.models.qwen4_exp.model import Model
from hermitcrab.models.qwen4_exp.plan import Span
from hermitcrab.models.qwen4_exp.state import Sessions
from training.data.documents import Document


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Learned tokens, their mean loss in nats, and the share of them that is the arg-max."""

    documents: int
    tokens: int
    loss: float
    right: float


class Judge:
    """Runs documents one by one from position 0, in float32."""

    def __init__(self, checkpoint: Checkpoint, *, longest_tokens: int) -> None:
        measures = Measures(products=choose_path(torch.float32))
        self._model = Model(checkpoint, dtype=torch.float32, context_rows=longest_tokens, measures=measures)
        self._sessions = Sessions(checkpoint.config, [longest_tokens], torch.float32)

    @torch.inference_mode()
    def logits(self, ids: Sequence[int]) -> torch.Tensor:
        """Logits [rows, vocabulary] fp32 after each of the tokens."""
        self._sessions.clear(0)
        found = []
        for start in range(0, len(ids), CHUNK_ROWS):
            span = Span(0, start, tuple(ids[start : start + CHUNK_ROWS]))
            plan = self._model.plan([span], self._sessions, is_prompt=True)
            found.append(self._model.logits(self._model.forward(plan, self._sessions)))
        return torch.cat(found)

    def judge(self, documents: Sequence[Document]) -> HeldOut:
        """The figures over all learned tokens of the documents, which have no gaps in their positions."""
        total = tokens = right = 0.0
        for document in documents:
            ids, weights = torch.from_numpy(document.ids).long(), torch.from_numpy(document.weights)[1:]
            logits = self.logits(ids.tolist())[:-1]
            total += float((fn.cross_entropy(logits, ids[1:], reduction="none") * weights).sum())
            right += float(((logits.argmax(-1) == ids[1:]) * weights).sum())
            tokens += float(weights.sum())
        return HeldOut(len(documents), int(tokens), round(total / tokens, 5), round(right / tokens, 5))
