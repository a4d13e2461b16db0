"""What the prompt cache may take: what was asked for, before the sessions, or a share of what they leave."""

import pytest

from hermitcrab.assemble import choose_cache, choose_sessions, find_model
from hermitcrab.errors import BudgetError
from hermitcrab.memory.cache_share import GIB, MOST_BYTES, cache_share
from hermitcrab.settings import ModelSettings, SessionSettings


def sessions(*, limit_gb: float, cache_gb: float | None, parallel: int = 1) -> SessionSettings:
    return SessionSettings(load_limit_gb=limit_gb, cache_gb=cache_gb, parallel=parallel)


def cache_of(asked: SessionSettings) -> int:
    model = find_model(ModelSettings())
    return choose_cache(model, asked, choose_sessions(model, asked))


@pytest.mark.parametrize(
    ("left_bytes", "share_bytes"),
    [(-5, 0), (0, 0), (4 * GIB, GIB), (32 * GIB, MOST_BYTES), (99 * GIB, MOST_BYTES)],
)
def test_the_share_is_a_quarter_up_to_a_bound(left_bytes: int, share_bytes: int) -> None:
    assert cache_share(left_bytes) == share_bytes


def test_what_was_asked_for_is_taken() -> None:
    assert cache_of(sessions(limit_gb=4.0, cache_gb=0.25)) == 250_000_000
    assert cache_of(sessions(limit_gb=4.0, cache_gb=0.0)) == 0


def test_the_default_stays_within_what_the_sessions_leave() -> None:
    alone = cache_of(sessions(limit_gb=3.5, cache_gb=None))
    beside = cache_of(sessions(limit_gb=3.5, cache_gb=None, parallel=3))
    assert 0 < beside < alone < 0.25 * 3.5e9


def test_sessions_that_do_not_fit_beside_the_cache_are_refused_with_its_bytes() -> None:
    assert choose_sessions(find_model(ModelSettings()), sessions(limit_gb=3.5, cache_gb=0.0))
    with pytest.raises(BudgetError, match=r"prompt cache 2\.79 GiB"):
        cache_of(sessions(limit_gb=3.5, cache_gb=3.0))
