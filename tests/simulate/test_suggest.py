"""The search for a list: never worse than its start, always within the memory, the same by seed."""

import pytest
from sim_bench import COSTS, at

from hermitcrab.errors import BudgetError
from hermitcrab.simulate.compare import Comparison, Plan
from hermitcrab.simulate.load import draw_load

CONTEXT = 32_768


def comparison(listed: tuple[int, ...], *, seed: int = 0, memory_bytes: int | None = None) -> Comparison:
    arrivals = draw_load("chats", count=10, per_minute=60, seed=seed)
    return Comparison(arrivals, Plan(CONTEXT, listed, 512, 0.25, memory_bytes), COSTS)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("listed", [(), (16_384,), (8192, 2048, 1024)])
def test_what_is_found_is_never_worse_than_the_start(listed: tuple[int, ...], seed: int) -> None:
    tried = comparison(listed, seed=seed)
    start, found = tried.sized(listed), tried.suggest(tries=5, seed=seed)
    assert found.outcome.total.mean_s <= start.total.mean_s
    assert found.outcome.refused <= start.refused
    assert found.outcome.memory_bytes <= tried.memory_bytes
    assert found.tried <= 5


def test_one_large_session_is_traded_for_many_small_ones_that_a_crowd_of_chats_needs() -> None:
    arrivals = tuple(at(0.0, prompt=50, reply=400) for _ in range(12))
    tried = Comparison(arrivals, Plan(CONTEXT, (16_384,), 512, 0.25), COSTS)
    found = tried.suggest(tries=30, seed=1)
    assert found.outcome.total.mean_s < 0.6 * tried.sized((16_384,)).total.mean_s
    assert len(found.listed) > 4


def test_the_same_seed_finds_the_same_list() -> None:
    one, other = (comparison((16_384,)).suggest(tries=5, seed=5) for _ in range(2))
    assert one == other


def test_one_try_is_the_start_itself() -> None:
    assert comparison((16_384,)).suggest(tries=1, seed=0).listed == (16_384,)


def test_a_list_larger_than_the_memory_is_refused() -> None:
    with pytest.raises(BudgetError, match=r"take 0\.00 GiB, more than the 0\.00 GiB of --memory-gib"):
        comparison((16_384,), memory_bytes=40_000)


def test_equal_sessions_are_as_many_whole_windows_as_the_memory_holds() -> None:
    # a whole window is 33,800 bytes, the list 17,416 and 9,224 on top
    assert comparison((16_384, 8192)).equal().sessions == "32768"
    assert comparison((32_768, 16_384)).equal().sessions == "32768x2"


def test_all_three_serve_the_whole_load() -> None:
    assert [len(outcome.served) for outcome in comparison((4096, 4096)).three()] == [10, 10, 10]
