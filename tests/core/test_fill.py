"""Prompts fill in passes between rounds: cut on the grid, none starves, rounds keep their share of time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lane_bench import Bench, ask, sized, unsized

from hermitcrab.core.api import Progress, Progressed
from hermitcrab.core.fake import Call, CallKind, FakeBackend
from hermitcrab.core.fill import DecodeShare, next_prompt
from hermitcrab.core.lanes import LaneRules
from hermitcrab.core.stream import Limits, Stream


def timed(bench: Bench, *, pass_s: float, round_s: float) -> list[CallKind]:
    """Give each pass and each round a duration; the list grows with what ran."""
    ran: list[CallKind] = []

    def hook(call: Call) -> None:
        if call.kind in (CallKind.PREFILL, CallKind.VERIFY):
            ran.append(call.kind)
            bench.clock.advance(pass_s if call.kind is CallKind.PREFILL else round_s)

    bench.backend.on_call = hook
    return ran


def filling(name: str, left_rows: int) -> Stream:
    stream = Stream(ask(name, prompt_tokens=100), Limits(100, 8, 4), now_s=0.0)
    stream.window.rows = 100 - left_rows
    return stream


def test_passes_start_on_the_grid_and_end_with_the_prompt() -> None:
    bench = unsized(64, prompt_grid_rows=4, prompt_pass_rows=8)
    bench.submit(ask("prompt", prompt_tokens=21))
    bench.run()
    assert [call.rows for call in bench.backend.calls if call.kind is CallKind.PREFILL] == [(8,), (8,), (5,)]


def test_the_first_token_is_drawn_after_the_last_pass() -> None:
    bench = unsized(64)
    bench.submit(ask("prompt", prompt_tokens=10, max_new_tokens=1))
    bench.run()
    kinds = [call.kind for call in bench.backend.calls]
    assert kinds == [CallKind.PREFILL, CallKind.PREFILL, CallKind.DRAW_FIRST, CallKind.RELEASE]


def test_progress_tells_the_prompt_rows_done() -> None:
    bench = unsized(64)
    bench.submit(ask("prompt", prompt_tokens=21))
    bench.run()
    progress = [event for event in bench.ears["prompt"].events if isinstance(event, Progressed)]
    assert progress == [
        Progressed(Progress.QUEUED, 0),
        Progressed(Progress.FILLING, 0),
        Progressed(Progress.FILLING, 8),
        Progressed(Progress.FILLING, 16),
        Progressed(Progress.FILLING, 21),
    ]


def test_passes_alternate_between_the_shortest_rest_and_the_oldest_prompt() -> None:
    streams = [filling("old", 90), filling("middle", 50), filling("short", 10)]
    assert next_prompt(streams, passes_run=0).request.id == "short"
    assert next_prompt(streams, passes_run=1).request.id == "old"


def test_a_short_prompt_starts_before_a_long_one_that_came_first() -> None:
    bench = unsized(256, 256)
    bench.submit(
        ask("long", prompt_tokens=200, max_new_tokens=1), ask("short", prompt_tokens=5, max_new_tokens=1)
    )
    bench.step(4)
    assert [len(bench.tokens(name)) for name in ("long", "short")] == [0, 1]


def test_a_long_prompt_is_not_starved_by_short_ones() -> None:
    bench = unsized(256, 64)
    bench.submit(ask("long", prompt_tokens=200, max_new_tokens=1))
    steps = 0
    while not bench.tokens("long"):
        bench.submit(ask(f"short{steps}", prompt_tokens=5, max_new_tokens=1))
        bench.step()
        steps += 1
    # 25 passes of its own, and no more others than that between them
    assert steps <= 52


def test_a_long_prompt_leaves_running_replies_a_token_after_every_pass() -> None:
    bench = sized(1024, 512)
    ran = timed(bench, pass_s=1.0, round_s=0.01)
    bench.submit(ask("reply", max_new_tokens=500))
    bench.step_until_live("reply")
    ran.clear()
    bench.submit(ask("prompt", prompt_tokens=900, max_new_tokens=8))
    bench.step(100)
    longest_gap = max(len(gap) for gap in "".join(kind[0] for kind in ran).split("v"))
    assert longest_gap == 1


@pytest.mark.parametrize("share", [0.25, 0.5, 0.75])
def test_rounds_get_their_share_of_the_time_while_a_prompt_fills(share: float) -> None:
    bench = Bench(FakeBackend((4096, 4096), draft_depth=0), LaneRules(decode_share=share))
    ran = timed(bench, pass_s=1.0, round_s=0.1)
    bench.submit(ask("reply", max_new_tokens=4000))
    bench.step_until_live("reply")
    ran.clear()
    bench.submit(ask("prompt", prompt_tokens=800))
    while not bench.tokens("prompt"):
        bench.step()
    round_s = 0.1 * ran.count(CallKind.VERIFY)
    assert round_s / (round_s + ran.count(CallKind.PREFILL)) == pytest.approx(share, abs=0.02)


def test_a_new_prompt_starts_at_once_beside_running_replies() -> None:
    bench = sized(1024, 512)
    ran = timed(bench, pass_s=1.0, round_s=0.01)
    bench.submit(ask("reply", max_new_tokens=500))
    bench.step_until_live("reply")
    bench.step(50)
    ran.clear()
    bench.submit(ask("prompt", prompt_tokens=8))
    bench.step(2)
    assert CallKind.PREFILL in ran


def test_only_rounds_are_run_without_prompts_and_only_passes_without_replies() -> None:
    share = DecodeShare(0.25)
    assert share.is_round_due(has_live=True, has_filling=False)
    assert not share.is_round_due(has_live=False, has_filling=True)


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0, 10)), min_size=1, max_size=50), st.floats(0, 0.95))
def test_a_round_follows_every_pass_at_any_share_and_any_durations(
    durations: list[tuple[float, float]], decode_share: float
) -> None:
    share = DecodeShare(decode_share)
    for pass_s, round_s in durations:
        if share.is_round_due(has_live=True, has_filling=True):
            share.count_round(round_s)
        else:
            share.count_pass(pass_s)
            assert share.is_round_due(has_live=True, has_filling=True)


def test_time_from_before_both_kinds_of_work_were_there_does_not_count() -> None:
    share = DecodeShare(0.25)
    share.count_round(1000.0)
    assert share.is_round_due(has_live=True, has_filling=False)
    share.count_pass(1.0)
    share.count_round(0.1)
    assert share.is_round_due(has_live=True, has_filling=True)
