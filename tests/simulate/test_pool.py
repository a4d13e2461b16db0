"""The ideal pool on small loads: times worked out by hand."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sim_bench import COSTS, ODD_COSTS, at

from hermitcrab.simulate.lanes import House, simulate_lanes
from hermitcrab.simulate.load import Arrival, draw_load
from hermitcrab.simulate.outcome import Outcome
from hermitcrab.simulate.pool import simulate_pool


def run(*arrivals: Arrival, memory_bytes: int = 100_000, stream_limit: int = 64) -> Outcome:
    return simulate_pool(
        arrivals,
        COSTS,
        memory_bytes=memory_bytes,
        context_tokens=4096,
        stream_limit=stream_limit,
        decode_share=0.25,
        name="pool",
    )


def test_a_request_alone_takes_its_prompt_and_then_a_round_for_each_later_token() -> None:
    (served,) = run(at(3.0, prompt=100, reply=11)).served
    assert (served.waited_s, served.first_token_s) == pytest.approx((0.0, 0.1))
    assert served.total_s == pytest.approx(0.1 + 10 * 0.010)


def test_two_that_run_together_share_rounds() -> None:
    outcome = run(at(0.0, reply=1001), at(0.0, reply=1001))
    # between the prompts 4 rounds of the first, a quarter of the time; then 996 of both, 4 of the second
    ends_s = [served.total_s for served in outcome.served]
    assert ends_s == pytest.approx([0.2 + 0.040 + 996 * 0.011, 0.2 + 0.040 + 996 * 0.011 + 0.040])


def test_a_request_waits_until_its_prompt_fits() -> None:
    # 1000 bytes of state and 101 rows each
    first, second = run(at(0.0), at(0.0), memory_bytes=2 * 1101 - 1).served
    assert first.waited_s == pytest.approx(0.0)
    assert second.waited_s == pytest.approx(first.total_s)


def test_a_small_request_passes_one_that_does_not_fit() -> None:
    outcome = run(at(0.0, reply=101), at(0.01, prompt=3000), at(0.02, prompt=10), memory_bytes=5000)
    by_arrival = {served.arrival_s: served for served in outcome.served}
    assert by_arrival[0.02].total_s < by_arrival[0.0].total_s
    assert by_arrival[0.01].waited_s == pytest.approx(by_arrival[0.0].total_s - 0.01)


def test_a_full_pool_takes_the_youngest_out_and_reads_it_again() -> None:
    outcome = run(at(0.0, reply=151), at(0.0, reply=151), memory_bytes=2 * 1000 + 300)
    first, second = outcome.served
    # 300 rows: 202 at first, 4 in the rounds between the prompts, then 2 in each of 47 shared rounds
    evicted_s = 0.2 + 0.040 + 47 * 0.011
    assert (first.interruptions, second.interruptions) == (0, 1)
    assert first.total_s == pytest.approx(evicted_s + (150 - 4 - 47) * 0.010)
    assert second.waited_s == pytest.approx(first.total_s - evicted_s)
    # its prompt and 47 of its 48 tokens are read again, then the other 103 made
    assert outcome.recomputed_rows == 147
    assert second.total_s == pytest.approx(first.total_s + 0.147 + 103 * 0.010)


def test_no_more_run_at_once_than_a_round_has_rows_for() -> None:
    assert run(at(0.0), at(0.0), at(0.0), stream_limit=2).most_streams == 2


def test_a_prompt_longer_than_the_window_is_refused() -> None:
    assert run(at(0.0, prompt=4096), at(0.0)).refused == 1


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_where_nothing_is_short_the_pool_takes_as_long_as_sessions(seed: int) -> None:
    arrivals = draw_load("chats", count=6, per_minute=60, seed=seed)
    lanes = simulate_lanes(arrivals, House((32_768,) * 6, None), ODD_COSTS, name="x")
    pool = simulate_pool(
        arrivals,
        ODD_COSTS,
        memory_bytes=1 << 40,
        context_tokens=32_768,
        stream_limit=6,
        decode_share=0.25,
        name="x",
    )
    for one, other in zip(lanes.served, pool.served, strict=True):
        assert one.first_token_s == pytest.approx(other.first_token_s)
        assert one.total_s == pytest.approx(other.total_s)
