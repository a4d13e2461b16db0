"""Choose each row's experts: the highest logits, ties to the lower expert id."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Routes:
    """Each row's experts, best first: ids int64 and weights float32, both [rows, experts_per_token]."""

    experts: Tensor
    weights: Tensor


def route(logits: Tensor, experts_per_token: int, *, is_normalised: bool) -> Routes:
    """Softmax over logits [rows, experts], the best few kept; their weights sum to 1 if normalised."""
    # a stable sort is a total order: (logit descending, id ascending)
    ranked = torch.sort(logits.float(), dim=-1, descending=True, stable=True)
    experts = ranked.indices[:, :experts_per_token]
    if is_normalised:
        # the softmax of the chosen is the chosen part of the softmax, made to sum to 1
        return Routes(experts, ranked.values[:, :experts_per_token].softmax(-1))
    return Routes(experts, ranked.values.softmax(-1)[:, :experts_per_token])
