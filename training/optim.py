"""Muon for the matrices, AdamW for everything else, on the flat fp32 run."""

from collections import defaultdict

import torch
from torch import Tensor

from training.weights import FlatWeights

MOMENTUM = 0.95
BETAS = (0.9, 0.98)
EPSILON = 1e-10
MATRIX_DECAY = 0.05
LARGEST_NORM = 1.0
# Newton-Schulz coefficients that pull singular values towards one in five rounds
_NS = (3.4445, -4.7750, 2.0315)


def orthogonal(update: Tensor) -> Tensor:
    """The nearest orthogonal matrices of [n, rows, columns], roughly, in bf16."""
    x = update.bfloat16()
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    a, b, c = _NS
    for _ in range(5):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if tall else x


class Optimizer:
    """Owns the momenta of a run of flat weights."""

    def __init__(self, weights: FlatWeights) -> None:
        self.weights = weights
        self.momentum = torch.zeros_like(weights.master[: weights.matrix_end])
        self.first = torch.zeros_like(weights.master[weights.matrix_end :])
        self.second = torch.zeros_like(self.first)
        self.steps = 0
        self.by_shape: dict[torch.Size, list[int]] = defaultdict(list)
        for index, view in enumerate(weights.masters[: weights.matrix_count]):
            self.by_shape[view.shape].append(index)

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """One update of all weights from the gathered gradients."""
        self.steps += 1
        self._muon(rate)
        self._adam(rate)

    def _muon(self, rate: float) -> None:
        end = self.weights.matrix_end
        gradient, master = self.weights.gradient[:end], self.weights.master[:end]
        self.momentum.lerp_(gradient, 1 - MOMENTUM)
        gradient.lerp_(self.momentum, MOMENTUM)
        master.mul_(1 - rate * MATRIX_DECAY)
        for shape, members in self.by_shape.items():
            stacked = torch.stack([self.weights.gradients[index] for index in members])
            scale = rate * 0.2 * max(shape[-2:]) ** 0.5
            moves = orthogonal(stacked.flatten(0, -3)).view(stacked.shape).float() * -scale
            torch._foreach_add_([self.weights.masters[index] for index in members], list(moves.unbind()))

    def _adam(self, rate: float) -> None:
        start = self.weights.matrix_end
        gradient, master = self.weights.gradient[start:], self.weights.master[start:]
        gradient.mul_((LARGEST_NORM / (gradient.norm() + 1e-6)).clamp(max=1.0))
        self.first.lerp_(gradient, 1 - BETAS[0])
        self.second.lerp_(gradient.square(), 1 - BETAS[1])
        first = self.first / (1 - BETAS[0] ** self.steps)
        second = self.second / (1 - BETAS[1] ** self.steps)
        master.addcdiv_(first, second.sqrt().add_(EPSILON), value=-rate)
