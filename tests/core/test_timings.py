"""What status keeps about moves and times: every request once, every move by its number."""

import pytest
from lane_bench import ask, sized, unsized

from hermitcrab.core.status import RECENT_MOVES
from hermitcrab.core.timings import TOKEN_BOUNDS_S, WAIT_BOUNDS_S, Histogram, Tally
from hermitcrab.errors import DeviceFailed


def test_a_value_belongs_to_the_first_bucket_whose_bound_it_does_not_pass() -> None:
    tally = Tally((1.0, 2.0))
    for seconds in (0.0, 1.0, 1.5, 2.0, 2.5, 100.0):
        tally.note(seconds)
    histogram = tally.histogram()
    assert histogram == Histogram((1.0, 2.0), (2, 2, 2), 107.0)
    assert histogram.count == 6


def test_a_histogram_that_was_taken_stays_as_it_was() -> None:
    tally = Tally((1.0,))
    taken = tally.histogram()
    tally.note(0.5)
    assert taken.count == 0


def test_times_are_counted_once_a_request_when_it_ends() -> None:
    bench = unsized(64, draft_depth=0)
    bench.submit(ask("first", max_new_tokens=3), ask("second", max_new_tokens=3))
    while bench.loop.has_requests:
        bench.loop.step()
        bench.clock.advance(1.0)
    # a step each: the prompt with the first token, then two rounds
    timings = bench.loop.snapshot.timings
    assert (timings.queue.count, timings.queue.sum_s) == (2, 3.0)
    assert (timings.first_token.count, timings.first_token.sum_s) == (2, 3.0)
    assert (timings.token.count, timings.token.sum_s) == (2, 2.0)
    assert timings.pause.count == 0


def test_a_request_that_never_left_the_queue_has_no_times() -> None:
    bench = unsized(64)
    bench.submit(ask("runs"), ask("queued"))
    bench.step()
    bench.loop.cancel("queued")
    bench.run()
    assert bench.loop.snapshot.timings.queue.count == 1


def test_a_reply_of_one_token_has_no_time_by_token() -> None:
    bench = unsized(64)
    bench.submit(ask("a", max_new_tokens=1))
    bench.run()
    timings = bench.loop.snapshot.timings
    assert (timings.first_token.count, timings.token.count) == (1, 0)


def test_a_pause_is_counted_for_the_request_that_had_it_even_when_it_ends_there() -> None:
    bench = sized(128, 24, 24)
    bench.submit(ask("a", max_new_tokens=80), ask("b", max_new_tokens=80))
    bench.step_until_paused("b")
    bench.clock.advance(7.0)
    bench.loop.cancel("b")
    bench.run()
    pause = bench.loop.snapshot.timings.pause
    assert (pause.count, pause.sum_s) == (1, 7.0)


def test_replies_that_came_to_their_length_are_told_apart() -> None:
    bench = unsized(64)
    bench.submit(ask("long", max_new_tokens=8), ask("short", eos_ids=frozenset(range(16))))
    bench.run()
    status = bench.loop.snapshot
    assert (status.requests_finished, status.ended_by_length) == (2, 1)


def test_a_move_is_told_with_its_place_and_age() -> None:
    bench = sized(128, 24, 24)
    bench.submit(ask("a", max_new_tokens=80))
    bench.run()
    bench.clock.advance(3.0)
    (move,) = bench.loop.take_snapshot().recent_moves
    assert (move.number, move.request_id, move.source_slot, move.target_slot) == (1, "a", 1, 0)
    assert move.age_s == 3.0
    assert 0 < move.tokens <= 24


def test_the_last_moves_are_kept_and_their_numbers_go_on() -> None:
    bench = sized(128, 24)
    for turn in range(RECENT_MOVES + 3):
        bench.submit(ask(f"a{turn}", max_new_tokens=80))
        bench.run()
    status = bench.loop.snapshot
    assert status.moves == RECENT_MOVES + 3
    assert [move.number for move in status.recent_moves] == list(range(4, RECENT_MOVES + 4))


def test_a_failed_move_is_no_move() -> None:
    def refuse(call: object) -> None:
        if getattr(call, "kind", None) == "move":
            raise DeviceFailed("the copy failed")

    bench = sized(128, 24, on_call=refuse)
    bench.submit(ask("a", max_new_tokens=80))
    bench.run()
    status = bench.loop.snapshot
    assert (status.moves, status.recent_moves, status.requests_failed) == (0, (), 1)


@pytest.mark.parametrize("bounds_s", [TOKEN_BOUNDS_S, WAIT_BOUNDS_S])
def test_bounds_only_grow(bounds_s: tuple[float, ...]) -> None:
    assert list(bounds_s) == sorted(set(bounds_s))
