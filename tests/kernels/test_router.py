"""The choice of experts."""

import pytest
import torch
from kernel_bench import assert_near, assert_rows_are_their_own, random

from hermitcrab.kernels.router import route


@pytest.mark.parametrize("is_normalised", [True, False])
@pytest.mark.parametrize(("experts", "chosen"), [(8, 2), (5, 3), (512, 10), (1, 1)])
def test_a_row_is_its_own(experts: int, chosen: int, is_normalised: bool) -> None:
    # few different values: most rows tie at the cut
    table = (random(24, experts, seed=1) * 2.0).round()

    def run(index: torch.Tensor) -> tuple[torch.Tensor, ...]:
        routes = route(table[index], chosen, is_normalised=is_normalised)
        return routes.experts, routes.weights

    assert_rows_are_their_own(run)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("is_normalised", [True, False])
def test_experts_stand_by_logit_then_id_and_weights_are_their_softmax(
    dtype: torch.dtype, is_normalised: bool
) -> None:
    # bfloat16 logits tie often
    logits = random(40, 64, seed=2, dtype=dtype)
    routes = route(logits, 10, is_normalised=is_normalised)
    for row in range(40):
        ranked = sorted(range(64), key=lambda expert: (-float(logits[row, expert]), expert))[:10]
        assert routes.experts[row].tolist() == ranked
    weights = torch.softmax(logits.double(), -1).gather(1, routes.experts)
    expected = weights / weights.sum(-1, keepdim=True) if is_normalised else weights
    assert routes.weights.dtype == torch.float32
    assert_near(routes.weights, expected)


def test_equal_logits_choose_the_lowest_ids() -> None:
    routes = route(torch.zeros(3, 512), 10, is_normalised=True)
    assert routes.experts.tolist() == [list(range(10))] * 3
    assert_near(routes.weights, torch.full((3, 10), 0.1, dtype=torch.float64))


def test_ties_at_the_cut_go_to_the_lower_ids() -> None:
    logits = torch.full((1, 40), -5.0)
    logits[0, [3, 30]] = 2.0
    logits[0, [7, 9, 20, 39]] = 1.0
    assert route(logits, 4, is_normalised=True).experts.tolist() == [[3, 30, 7, 9]]


def test_all_experts_may_be_chosen() -> None:
    logits = random(4, 6, seed=3)
    routes = route(logits, 6, is_normalised=False)
    assert [sorted(row) for row in routes.experts.tolist()] == [list(range(6))] * 4
    assert_near(routes.weights.sum(-1), torch.ones(4, dtype=torch.float64))


def test_extreme_logits_give_finite_weights() -> None:
    routes = route(torch.tensor([[1e4, -1e4, 0.0, 3e38]]), 2, is_normalised=True)
    assert routes.experts.tolist() == [[3, 0]]
    assert routes.weights.tolist() == [[1.0, 0.0]]
