"""A layer's experts on a CPU: all at once where they are few, else grouped by expert.

    out = sum over a row's experts of weight * down(silu(gate(x)) * up(x))
          + sigmoid(shared gate(x)) * shared(x)

Which form is used follows from the weights' shapes alone. The dense form runs every expert for every row as
two products and gives the experts that a row did not choose the weight 0: the row's sum is then in order of
expert id, shared expert last. The grouped form adds in the row's own slot order. Either way a row's bits are
its own.
"""

from typing import Protocol

import torch
from torch import Tensor

from hermitcrab.kernels.activations import activations_of
from hermitcrab.kernels.linear import Linear
from hermitcrab.kernels.measures import Measures
from hermitcrab.kernels.router import Routes

# the dense form reads all experts for every row: as long as they are this few, that beats many small products
_MOST_DENSE = 32


class Experts(Protocol):
    """Runs a layer's experts: rows [rows, hidden] and their routes -> [rows, hidden]."""

    def __call__(self, rows: Tensor, routes: Routes) -> Tensor: ...


def experts_of(
    gate_up: Tensor,
    down: Tensor,
    shared_gate_up: Tensor,
    shared_down: Tensor,
    shared_gate: Tensor,
    *,
    measures: Measures,
) -> Experts:
    """The form that fits the shapes.

    gate_up [experts, 2 * width, hidden], down [experts, hidden, width], shared_gate_up [2 * shared, hidden],
    shared_down [hidden, shared], shared_gate [1, hidden].
    """
    form = _DenseExperts if gate_up.shape[0] <= _MOST_DENSE else _GroupedExperts
    return form(gate_up, down, shared_gate_up, shared_down, shared_gate, measures)


class _DenseExperts:
    """Every expert for every row: one product in, one out."""

    def __init__(
        self, gate_up: Tensor, down: Tensor, shared_gate_up: Tensor, shared_down: Tensor, shared_gate: Tensor,
        measures: Measures,
    ) -> None:  # fmt: skip
        self._experts, _, hidden = gate_up.shape
        self._width = down.shape[-1]
        gates, ups = torch.split(gate_up, self._width, dim=1)
        shared = shared_down.shape[-1]
        self._inner = self._experts * self._width + shared
        # gates side by side, then ups, so that one pass over each half activates and multiplies
        into = (
            gates.reshape(-1, hidden),
            shared_gate_up[:shared],
            ups.reshape(-1, hidden),
            shared_gate_up[shared:],
            shared_gate,
        )
        # gates come halved, for silu and sigmoid; the half that sigmoid leaves out goes into shared_down
        merged = torch.cat(into)
        merged[: self._inner] *= 0.5
        merged[2 * self._inner :] *= 0.5
        self._into = Linear(merged, measures.products)
        out = (down.permute(1, 0, 2).reshape(hidden, -1), shared_down * 0.5)
        self._out = Linear(torch.cat(out, dim=1), measures.products)
        self._dtype = gate_up.dtype
        self._activations = activations_of(measures)

    def __call__(self, rows: Tensor, routes: Routes) -> Tensor:
        count = rows.shape[0]
        into = self._into(rows)
        hidden = self._activations.silu_of_half(into[:, : self._inner]).mul_(
            into[:, self._inner : 2 * self._inner]
        )
        weights = torch.zeros(count, self._experts).scatter_(1, routes.experts, routes.weights)
        routed = self._experts * self._width
        hidden[:, :routed].view(count, self._experts, self._width).mul_(weights.unsqueeze(-1))
        hidden[:, routed:].mul_(self._activations.twice_sigmoid_of_half(into[:, 2 * self._inner :]))
        return self._out(hidden.to(self._dtype))


class _GroupedExperts:
    """Each expert for the rows that chose it; results are added in the row's slot order."""

    def __init__(
        self, gate_up: Tensor, down: Tensor, shared_gate_up: Tensor, shared_down: Tensor, shared_gate: Tensor,
        measures: Measures,
    ) -> None:  # fmt: skip
        self._into = [Linear(_gates_halved(weight), measures.products) for weight in gate_up]
        self._out = [Linear(weight, measures.products) for weight in down]
        self._shared_into = Linear(_gates_halved(shared_gate_up), measures.products)
        self._shared_out = Linear(shared_down * 0.5, measures.products)
        self._shared_gate = Linear(shared_gate * 0.5, measures.products)
        self._dtype = gate_up.dtype
        self._activations = activations_of(measures)

    def __call__(self, rows: Tensor, routes: Routes) -> Tensor:
        per_row = routes.experts.shape[1]
        pairs = routes.experts.flatten()
        outputs = torch.empty(pairs.shape[0], self._out[0].out_width)
        for expert in sorted(set(pairs.tolist())):
            places = (pairs == expert).nonzero().squeeze(1)
            chosen = rows.index_select(0, places // per_row)
            outputs[places] = self._gated(self._into[expert](chosen), self._out[expert])
        outputs = outputs.view(-1, per_row, outputs.shape[-1])
        total = outputs[:, 0] * routes.weights[:, :1]
        for slot in range(1, per_row):
            total = torch.addcmul(total, outputs[:, slot], routes.weights[:, slot : slot + 1])
        shared = self._gated(self._shared_into(rows), self._shared_out)
        factor = self._activations.twice_sigmoid_of_half(self._shared_gate(rows))
        return torch.addcmul(total, shared, factor).to(self._dtype)

    def _gated(self, into: Tensor, out: Linear) -> Tensor:
        gate, up = into.chunk(2, dim=-1)
        return out(self._activations.silu_of_half(gate).mul_(up).to(self._dtype)).float()


def _gates_halved(gate_up: Tensor) -> Tensor:
    """A fused weight [2 * width, hidden] with its upper half, the gate, times 1/2."""
    gate, up = gate_up.chunk(2)
    return torch.cat((gate * 0.5, up))
