"""Every kernel test runs with one torch thread and with two: a split over threads must not show in a row."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(params=[1, 2], ids=["one-thread", "two-threads"], autouse=True)
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)
