"""The real lanes on small loads: times worked out by hand."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sim_bench import COSTS, ODD_COSTS, at

from hermitcrab.simulate.lanes import GRAINS, WINDOW_ROWS, House, simulate_lanes
from hermitcrab.simulate.load import Arrival, draw_load
from hermitcrab.simulate.outcome import Outcome, Served

CONTEXT = 4096
EQUAL = House((CONTEXT,), None)


def run(*arrivals: Arrival, house: House = EQUAL) -> Outcome:
    return simulate_lanes(arrivals, house, COSTS, name="x")


def only(outcome: Outcome) -> Served:
    (served,) = outcome.served
    return served


def test_a_request_alone_takes_its_prompt_and_then_a_round_for_each_later_token() -> None:
    served = only(run(at(5.0, prompt=100, reply=11)))
    assert served.waited_s == pytest.approx(0.0)
    assert served.first_token_s == pytest.approx(0.100)
    assert served.total_s == pytest.approx(0.100 + 10 * 0.010)
    assert served.reply_tokens == 11


def test_a_second_request_waits_for_the_only_session() -> None:
    first, second = run(at(0.0, prompt=100, reply=11), at(0.05, prompt=200, reply=1)).served
    assert first.total_s == pytest.approx(0.2)
    assert second.waited_s == pytest.approx(0.15)
    assert second.first_token_s == pytest.approx(0.15 + 0.2)


def test_two_that_run_together_share_rounds() -> None:
    house = House((CONTEXT, CONTEXT), None)
    outcome = run(at(0.0, prompt=100, reply=1001), at(0.0, prompt=100, reply=1001), house=house)
    # between the prompts 4 rounds of the first, a quarter of the time; then 996 of both, 4 of the second
    ends_s = [served.total_s for served in outcome.served]
    assert ends_s == pytest.approx([0.2 + 0.040 + 996 * 0.011, 0.2 + 0.040 + 996 * 0.011 + 0.040])
    assert outcome.most_streams == 2


def test_an_arrival_in_a_leap_is_served_after_the_round_it_falls_into() -> None:
    house = House((CONTEXT, CONTEXT), None)
    outcome = run(at(0.0, prompt=100, reply=1001), at(0.2049, prompt=100, reply=1), house=house)
    short = min(outcome.served, key=lambda served: served.total_s)
    # rounds end at 0.200 and 0.210
    assert short.waited_s == pytest.approx(0.210 - 0.2049)
    assert short.first_token_s == pytest.approx(0.210 - 0.2049 + 0.1)


def test_a_reply_that_outgrows_its_session_moves_once_and_pays_for_it() -> None:
    house = House((CONTEXT, 512), grow_tokens=64)
    served = only(run(at(0.0, prompt=100, reply=1001), house=house))
    assert served.moves == 1
    assert served.total_s == pytest.approx(0.1 + 1000 * 0.010 + 0.1)


def test_two_that_outgrow_one_session_at_once_take_turns_in_the_larger_one() -> None:
    house = House((CONTEXT, 512, 512), grow_tokens=64)
    outcome = run(at(0.0, reply=2001), at(0.0, reply=2001), house=house)
    assert outcome.moves == 2
    assert outcome.interruptions == 1
    first, second = outcome.served
    assert first.waited_s == pytest.approx(0.0)
    assert second.waited_s == pytest.approx(first.total_s - 0.2 - 0.010 - 0.1 - 411 * 0.011, abs=0.5)
    assert second.total_s > first.total_s


def test_a_prompt_that_no_session_holds_is_refused_and_counted() -> None:
    outcome = run(at(0.0, prompt=CONTEXT), at(0.0))
    assert (outcome.refused, len(outcome.served)) == (1, 1)


def test_a_reply_is_cut_to_what_its_request_asked_for() -> None:
    assert only(run(at(0.0, reply=500, most=20))).reply_tokens == 20


def test_a_reply_is_cut_to_the_room_in_the_window() -> None:
    assert only(run(at(0.0, prompt=CONTEXT - 10, reply=500))).reply_tokens == 10


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1 << 32), count=st.integers(1, 8), rate=st.floats(1.0, 600.0))
def test_leaps_give_the_times_of_single_rounds(seed: int, count: int, rate: float) -> None:
    arrivals = draw_load("chats", count=count, per_minute=rate, seed=seed)
    arrivals = tuple(Arrival(a.arrival_s, a.prompt_tokens, min(a.reply_tokens, 100)) for a in arrivals)
    house = House((32_768,) * 3, None)
    leaping = simulate_lanes(arrivals, house, ODD_COSTS, name="x")
    plodding = simulate_lanes(arrivals, house, ODD_COSTS, name="x", leaps=False)
    assert len(leaping.served) == len(plodding.served)
    for one, other in zip(leaping.served, plodding.served, strict=True):
        assert one.total_s == pytest.approx(other.total_s)
        assert one.first_token_s == pytest.approx(other.first_token_s)
        assert one.waited_s == pytest.approx(other.waited_s, abs=1e-9)


def test_the_same_seed_gives_the_same_result() -> None:
    def once() -> Outcome:
        arrivals = draw_load("mixed", count=20, per_minute=20, seed=3)
        return simulate_lanes(arrivals, House((262_144, 16_384, 16_384), 4096), COSTS, name="x")

    assert once() == once()


def test_sessions_are_left_no_more_than_a_leap_early() -> None:
    # as long as the session can hold, less what a window needs: it never moves
    reply = 512 - 100
    house = House((CONTEXT, 512), grow_tokens=64)
    served = only(run(at(0.0, prompt=100, reply=reply - 2 * WINDOW_ROWS, most=reply), house=house))
    assert served.moves == 0


def test_a_coarse_grain_tells_nearly_the_same() -> None:
    arrivals = draw_load("mixed", count=20, per_minute=30, seed=4)
    house = House((262_144, 16_384, 16_384, 4096), 1024)
    exact = simulate_lanes(arrivals, house, COSTS, name="x")
    for grain in GRAINS:
        coarse = simulate_lanes(arrivals, house, COSTS, name="x", grain=grain)
        assert len(coarse.served) == len(exact.served)
        assert coarse.total.mean_s == pytest.approx(exact.total.mean_s, rel=0.03)
        assert coarse.waiting.mean_s == pytest.approx(exact.waiting.mean_s, rel=0.05)
        assert coarse.tokens_per_s == pytest.approx(exact.tokens_per_s, rel=0.03)
