"""The check of rows itself: it sees company, place and neighbours' contents."""

import pytest
import torch
from kernel_bench import assert_rows_are_their_own, random
from torch import Tensor

TABLE = random(24, 16, seed=1)


def counted(index: Tensor) -> Tensor:
    return TABLE[index] + (1e-7 if len(index) > 17 else 0.0)


def placed(index: Tensor) -> Tensor:
    return TABLE[index] * (1.0 + 1e-6 * (torch.arange(len(index)) == 11).unsqueeze(1))


def mixed(index: Tensor) -> Tensor:
    return TABLE[index] + 1e-6 * TABLE[index].mean(0)


@pytest.mark.parametrize("operation", [counted, placed, mixed])
def test_an_operation_whose_rows_depend_on_others_is_caught(operation: object) -> None:
    assert callable(operation)
    with pytest.raises(AssertionError, match="among"):
        assert_rows_are_their_own(operation)
