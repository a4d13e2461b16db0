"""The trained weights as one flat fp32 run, published to the model as bf16 after every step."""

import torch
from torch import Tensor

from training.export import is_quantized
from training.nets.model import Model
from training.quantize import rounded
from training.shape import GROUP_WEIGHTS

# tables and narrow projections learn by AdamW though they are matrices
_TABLES = ("embed_tokens.weight", "lm_head.weight", "ngram_embedding", "block_inject_weight.weight")
_NARROW = ("in_proj_a.weight", "in_proj_b.weight", "shared_expert_gate.weight")


class FlatWeights:
    """Owns the fp32 weights. The model's own parameters become views of their bf16 image.

    The run holds the matrices that learn by Muon, then the other quantized ones, then the rest.
    """

    def __init__(self, model: Model) -> None:
        named = list(model.named_parameters())
        matrices = [pair for pair in named if is_quantized(*pair) and not pair[0].endswith(_TABLES + _NARROW)]
        tables = [pair for pair in named if is_quantized(*pair) and pair[0].endswith(_TABLES + _NARROW)]
        rest = [pair for pair in named if not is_quantized(*pair)]
        self.parameters = [parameter for _, parameter in matrices + tables + rest]
        self.matrix_count = len(matrices)
        self.matrix_end = sum(parameter.numel() for _, parameter in matrices)
        self.quantized_end = self.matrix_end + sum(parameter.numel() for _, parameter in tables)
        self.master = torch.cat([parameter.detach().float().flatten() for parameter in self.parameters])
        self.image = self.master.bfloat16()
        self.gradient = torch.zeros_like(self.master)
        self.masters = self._views(self.master)
        self.gradients = self._views(self.gradient)
        for parameter, view in zip(self.parameters, self._views(self.image), strict=True):
            parameter.data = view

    def _views(self, run: Tensor) -> list[Tensor]:
        sizes = [parameter.numel() for parameter in self.parameters]
        return [part.view(p.shape) for part, p in zip(run.split(sizes), self.parameters, strict=True)]

    def gather(self) -> None:
        """Move the parameters' gradients into the fp32 run."""
        torch._foreach_copy_(self.gradients, [parameter.grad for parameter in self.parameters])
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def publish(self, *, rounds: bool) -> None:
        """Show the weights to the model; with `rounds` as they will read back from 6 bits."""
        self.image.copy_(self.master)
        if rounds:
            groups = self.image[: self.quantized_end].view(-1, GROUP_WEIGHTS)
            groups.copy_(rounded(groups))
