"""What is said of a load's requests together."""

import pytest

from hermitcrab.simulate.outcome import Outcome, Served, Spread, spread


def test_percentiles_are_nearest_ranks() -> None:
    assert spread([float(value) for value in range(1, 101)]) == Spread(50.5, 50.0, 95.0, 99.0)
    assert spread([7.0]) == Spread(7.0, 7.0, 7.0, 7.0)
    assert spread([]) == Spread(0.0, 0.0, 0.0, 0.0)


def test_throughput_is_reply_tokens_from_the_first_arrival_to_the_last_token() -> None:
    served = (
        Served(arrival_s=10.0, waited_s=0.0, first_token_s=1.0, total_s=4.0, reply_tokens=30),
        Served(arrival_s=12.0, waited_s=1.0, first_token_s=2.0, total_s=8.0, reply_tokens=70, moves=2),
    )
    outcome = Outcome("x", "4096", 0, served, refused=0, most_streams=2)
    assert outcome.tokens_per_s == pytest.approx(100 / 10.0)
    assert outcome.moves == 2


def test_where_nothing_was_served_there_is_no_throughput() -> None:
    assert Outcome("x", "4096", 0, (), refused=3, most_streams=0).tokens_per_s == 0.0
