"""Routed experts and the shared expert, in both forms: few experts run at once, many grouped."""

from dataclasses import dataclass

import pytest
import torch
from kernel_bench import DTYPES, assert_near, assert_rows_are_their_own, measures, random, sigmoid, silu
from torch import Tensor

from hermitcrab.kernels.experts import Experts, experts_of
from hermitcrab.kernels.router import Routes, route

HIDDEN, WIDTH, SHARED = 64, 20, 28

# the forms differ by the number of experts: at most 32 run at once
COUNTS = (1, 8, 32, 33, 48)


@dataclass(frozen=True)
class Weights:
    """One layer's experts."""

    gate_up: Tensor
    down: Tensor
    shared_gate_up: Tensor
    shared_down: Tensor
    shared_gate: Tensor

    @classmethod
    def some(cls, count: int, dtype: torch.dtype = torch.float32) -> "Weights":
        shapes = (
            (count, 2 * WIDTH, HIDDEN),
            (count, HIDDEN, WIDTH),
            (2 * SHARED, HIDDEN),
            (HIDDEN, SHARED),
            (1, HIDDEN),
        )
        return cls(
            *((random(*shape, seed=seed) * shape[-1] ** -0.5).to(dtype) for seed, shape in enumerate(shapes))
        )

    def experts(self) -> Experts:
        return experts_of(
            self.gate_up,
            self.down,
            self.shared_gate_up,
            self.shared_down,
            self.shared_gate,
            measures=measures(self.gate_up.dtype),
        )

    def oracle(self, rows: Tensor, routes: Routes) -> Tensor:
        """The equation in float64."""
        x = rows.double()
        gate, up = (x @ self.shared_gate_up.double().T).chunk(2, dim=-1)
        total = (silu(gate) * up) @ self.shared_down.double().T * sigmoid(x @ self.shared_gate.double().T)
        for row in range(x.shape[0]):
            for expert, weight in zip(
                routes.experts[row].tolist(), routes.weights[row].tolist(), strict=True
            ):
                gate, up = (self.gate_up[expert].double() @ x[row]).chunk(2)
                total[row] += weight * (self.down[expert].double() @ (silu(gate) * up))
        return total


def routes_of(rows: int, experts: int, chosen: int, *, seed: int = 9) -> Routes:
    return route(random(rows, experts, seed=seed), min(chosen, experts), is_normalised=True)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("count", COUNTS)
def test_a_row_is_its_own(dtype: torch.dtype, count: int) -> None:
    experts = Weights.some(count, dtype).experts()
    rows, routes = random(24, HIDDEN, seed=8, dtype=dtype), routes_of(24, count, 4)
    assert_rows_are_their_own(
        lambda index: experts(rows[index], Routes(routes.experts[index], routes.weights[index]))
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("count", COUNTS)
def test_outputs_are_the_oracles(dtype: torch.dtype, count: int) -> None:
    weights = Weights.some(count, dtype)
    rows, routes = random(9, HIDDEN, seed=10, dtype=dtype), routes_of(9, count, 4)
    output = weights.experts()(rows, routes)
    assert output.dtype == dtype
    assert_near(output, weights.oracle(rows, routes), dtype)


@pytest.mark.parametrize("count", COUNTS)
def test_rows_that_all_choose_one_expert_are_the_oracles(count: int) -> None:
    weights = Weights.some(count)
    rows = random(24, HIDDEN, seed=11)
    routes = Routes(torch.full((24, 1), count - 1), torch.ones(24, 1))
    assert_near(weights.experts()(rows, routes), weights.oracle(rows, routes))


@pytest.mark.parametrize("count", COUNTS)
def test_all_experts_may_be_chosen(count: int) -> None:
    weights = Weights.some(count)
    rows, routes = random(5, HIDDEN, seed=12), routes_of(5, count, count)
    assert_near(weights.experts()(rows, routes), weights.oracle(rows, routes))


@pytest.mark.parametrize("count", [8, 48])
def test_an_expert_that_no_row_chose_leaves_no_trace(count: int) -> None:
    weights = Weights.some(count)
    rows = random(6, HIDDEN, seed=13)
    routes = Routes(torch.tensor([[0, 2]]).expand(6, -1), torch.tensor([[0.75, 0.25]]).expand(6, -1))
    expected = weights.experts()(rows, routes)
    weights.gate_up[1] *= 100.0
    weights.down[1] *= 100.0
    assert torch.equal(weights.experts()(rows, routes), expected)


@pytest.mark.parametrize("count", [8, 48])
def test_the_weights_and_rows_given_are_left_as_they_were(count: int) -> None:
    weights = Weights.some(count)
    rows, routes = random(6, HIDDEN, seed=14), routes_of(6, count, 3)
    parts = (*vars(weights).values(), rows, routes.experts, routes.weights)
    before = [part.clone() for part in parts]
    weights.experts()(rows, routes)
    assert all(torch.equal(*pair) for pair in zip(before, parts, strict=True))
