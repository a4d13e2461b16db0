"""The mixture of experts, computed densely: at sixteen small experts that is faster than sorting rows."""

import torch
from torch import Tensor, nn
from torch.nn import functional as fn

from training.shape import Shape


class Mlp(nn.Module):
    """The gated feed-forward block of the shared expert."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width = shape.shared_expert_intermediate_size
        self.gate_proj = nn.Linear(shape.hidden_size, width, bias=False)
        self.up_proj = nn.Linear(shape.hidden_size, width, bias=False)
        self.down_proj = nn.Linear(width, shape.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(fn.silu(self.gate_proj(x)) * self.up_proj(x))


class SwitchMlp(nn.Module):
    """The routed experts' weights, stacked on the expert."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        experts, width, hidden = shape.num_experts, shape.moe_intermediate_size, shape.hidden_size
        self.gate_proj = nn.Parameter(torch.empty(experts, width, hidden))
        self.up_proj = nn.Parameter(torch.empty(experts, width, hidden))
        self.down_proj = nn.Parameter(torch.empty(experts, hidden, width))

    def forward(self, x: Tensor, weights: Tensor) -> Tensor:
        """Every expert on every row [N, D], summed by `weights` [N, experts] (zero where not chosen)."""
        experts, width = self.gate_proj.shape[:2]
        inner = fn.silu(fn.linear(x, self.gate_proj.flatten(0, 1))) * fn.linear(x, self.up_proj.flatten(0, 1))
        inner = (inner.unflatten(-1, (experts, width)) * weights.unsqueeze(-1)).flatten(-2)
        return fn.linear(inner, self.down_proj.permute(1, 0, 2).flatten(1, 2))


class SparseMoe(nn.Module):
    """Top-k routed experts with normalised weights, and a gated shared expert."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.gate = nn.Linear(shape.hidden_size, shape.num_experts, bias=False)
        self.switch_mlp = SwitchMlp(shape)
        self.shared_expert = Mlp(shape)
        self.shared_expert_gate = nn.Linear(shape.hidden_size, 1, bias=False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The block's output [N, D], and [2] fp32: its load-balance and router-z losses."""
        logits = fn.linear(x, self.gate.weight).float()
        probabilities = logits.softmax(-1)
        top, chosen = probabilities.topk(self.shape.num_experts_per_tok, dim=-1)
        top = top / top.sum(-1, keepdim=True)
        weights = torch.zeros_like(probabilities).scatter(-1, chosen, top)
        output = self.switch_mlp(x, weights.to(x.dtype))
        output = output + torch.sigmoid(self.shared_expert_gate(x)) * self.shared_expert(x)
        load = (weights > 0).float().mean(0)
        balance = (
            (load * probabilities.mean(0)).sum() * self.shape.num_experts / self.shape.num_experts_per_tok
        )
        z = logits.logsumexp(-1).square().mean()
        return output, torch.stack((balance, z))
