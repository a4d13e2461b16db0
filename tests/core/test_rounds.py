"""A round's parts: the windows, whose turn it is, what lands, where a reply stops."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lane_bench import ask, sized, solo, unsized

from hermitcrab.core.accept import kept_rows
from hermitcrab.core.api import Failed, Finished, FinishReason, StopWatch, Tokens
from hermitcrab.core.fake import CallKind
from hermitcrab.core.lanes import LaneRules
from hermitcrab.core.stops import Cut, StopRules, cut
from hermitcrab.core.stream import Limits, Stream, digest
from hermitcrab.core.turns import choose
from hermitcrab.core.windows import draft_room, share_rows
from hermitcrab.errors import LaneError, SettingError


class StopAt:
    """A stop watch that says stop at one token."""

    def __init__(self, token: int) -> None:
        self.token = token
        self.pushed: list[int] = []

    def push(self, token: int) -> bool:
        self.pushed.append(token)
        return token == self.token


def rules(
    *, max_new_tokens: int = 100, eos: frozenset[int] = frozenset(), watch: StopWatch | None = None
) -> StopRules:
    return StopRules(max_new_tokens, eos, watch)


def test_a_window_without_drafts_keeps_its_pending_row() -> None:
    assert kept_rows((5,), (7,)) == 1


def test_drafts_are_kept_while_each_equals_the_draw_before_it() -> None:
    assert kept_rows((5, 7, 8, 9), (7, 8, 1, 9)) == 3


def test_a_draft_behind_a_missed_one_does_not_count() -> None:
    assert kept_rows((5, 6, 8), (7, 8, 9)) == 1


@given(st.lists(st.integers(0, 2), min_size=1, max_size=8), st.data())
def test_kept_drafts_are_the_draws_and_the_next_one_is_not(tokens: list[int], data: st.DataObject) -> None:
    drawn = data.draw(st.lists(st.integers(0, 2), min_size=len(tokens), max_size=len(tokens)))
    kept = kept_rows(tokens, drawn)
    assert tokens[1:kept] == drawn[: kept - 1]
    assert kept == len(tokens) or tokens[kept] != drawn[kept - 1]


def test_tokens_without_a_stop_are_all_taken_and_delivered() -> None:
    assert cut((1, 2, 3), reply_tokens=0, rules=rules()) == Cut(3, 3, None)


def test_an_end_of_text_token_is_taken_and_not_delivered() -> None:
    assert cut((1, 9, 3), reply_tokens=0, rules=rules(eos=frozenset({8, 9}))) == Cut(2, 1, FinishReason.STOP)


def test_the_token_that_completes_a_stop_string_is_delivered() -> None:
    watch = StopAt(2)
    assert cut((1, 2, 3), reply_tokens=0, rules=rules(watch=watch)) == Cut(2, 2, FinishReason.STOP)
    assert watch.pushed == [1, 2]


def test_the_last_allowed_token_ends_with_length() -> None:
    assert cut((1, 2, 3), reply_tokens=4, rules=rules(max_new_tokens=6)) == Cut(2, 2, FinishReason.LENGTH)


def test_a_stop_at_the_last_allowed_token_is_a_stop() -> None:
    assert (
        cut((1,), reply_tokens=0, rules=rules(max_new_tokens=1, eos=frozenset({1}))).reason
        is FinishReason.STOP
    )
    assert (
        cut((1,), reply_tokens=0, rules=rules(max_new_tokens=1, watch=StopAt(1))).reason is FinishReason.STOP
    )


def test_the_stop_watch_does_not_hear_the_end_of_text() -> None:
    watch = StopAt(9)
    cut((9,), reply_tokens=0, rules=rules(eos=frozenset({9}), watch=watch))
    assert watch.pushed == []


def test_drafts_run_neither_past_the_reply_nor_past_the_session() -> None:
    assert draft_room(depth=3, remaining_tokens=100, rows=10, capacity_rows=100) == 3
    assert draft_room(depth=3, remaining_tokens=2, rows=10, capacity_rows=100) == 1
    assert draft_room(depth=3, remaining_tokens=100, rows=97, capacity_rows=100) == 2
    assert draft_room(depth=3, remaining_tokens=1, rows=99, capacity_rows=100) == 0


def test_rows_left_over_go_round_one_draft_a_window() -> None:
    assert share_rows([3, 3, 1], row_limit=8) == [2, 2, 1]
    assert share_rows([3, 0, 3], row_limit=7) == [2, 0, 2]


@given(st.lists(st.integers(0, 6), min_size=1, max_size=8), st.integers(0, 30))
def test_no_pending_row_is_cut_and_no_row_is_wasted(wanted: list[int], spare: int) -> None:
    granted = share_rows(wanted, row_limit=len(wanted) + spare)
    assert all(0 <= got <= want for got, want in zip(granted, wanted, strict=True))
    assert sum(granted) == min(spare, sum(wanted))


def served(name: str, served_turn: int) -> Stream:
    stream = Stream(ask(name), Limits(4, 8, 4), now_s=0.0)
    stream.stats.served_turn = served_turn
    return stream


def test_the_least_recently_served_come_first_and_of_those_never_served_the_oldest() -> None:
    streams = [served("a", 5), served("b", 0), served("c", 3), served("d", 0)]
    assert [stream.request.id for stream in choose(streams, stream_limit=3)] == ["b", "d", "c"]


def test_no_stream_starves_when_rows_run_out() -> None:
    bench = unsized(*[128] * 6, row_limit=4, draft_depth=0)
    bench.submit(*(ask(f"r{index}", max_new_tokens=60) for index in range(6)))
    bench.step_until_live(*(f"r{index}" for index in range(6)))
    before = [len(bench.tokens(f"r{index}")) for index in range(6)]
    bench.step(30)
    grown = [len(bench.tokens(f"r{index}")) - before[index] for index in range(6)]
    assert grown == [20] * 6


def test_a_reply_ends_at_its_end_of_text_token() -> None:
    plain = solo(ask("reply", max_new_tokens=40))
    eos = plain[10]
    first = plain.index(eos)
    bench = unsized(128)
    bench.submit(ask("reply", max_new_tokens=40, eos_ids=frozenset({eos})))
    bench.run()
    ear = bench.ears["reply"]
    assert ear.tokens == plain[:first]
    assert ear.terminal == Finished(FinishReason.STOP, ear.terminal.usage)
    assert ear.terminal.usage.completion_tokens == first + 1
    assert ear.terminal.usage.tokens_sha256 == digest(plain[: first + 1])


def test_a_reply_ends_with_the_token_that_completes_a_stop_string() -> None:
    plain = solo(ask("reply", max_new_tokens=40))
    bench = unsized(128)
    bench.submit(ask("reply", max_new_tokens=40, stop_watch=StopAt(plain[10])))
    bench.run()
    ear = bench.ears["reply"]
    assert ear.tokens == plain[: plain.index(plain[10]) + 1]
    assert ear.terminal == Finished(FinishReason.STOP, ear.terminal.usage)


def test_a_first_token_may_end_the_reply() -> None:
    bench = sized(64, 24)
    bench.submit(
        ask("eos", eos_ids=frozenset(range(16))),
        ask("one", max_new_tokens=1),
        ask("stop", stop_watch=StopAt(solo(ask("stop"))[0])),
    )
    bench.run()
    assert [len(bench.tokens(name)) for name in ("eos", "one", "stop")] == [0, 1, 1]
    assert CallKind.VERIFY not in [call.kind for call in bench.backend.calls]
    assert bench.is_clean


def test_a_stop_watch_that_raises_ends_its_own_stream_only() -> None:
    class Broken:
        def push(self, token: int) -> bool:
            raise ValueError("not a token")

    bench = sized(64, 64)
    bench.submit(ask("broken", stop_watch=Broken()), ask("peer"))
    bench.run()
    terminal = bench.ears["broken"].terminal
    assert isinstance(terminal, Failed)
    assert isinstance(terminal.error, LaneError)
    assert "not a token" in str(terminal.error)
    assert bench.tokens("peer") == solo(ask("peer"))
    assert bench.is_clean


def test_no_draft_is_asked_for_past_the_replys_limit() -> None:
    bench = unsized(128)
    bench.submit(ask("reply", max_new_tokens=6))
    bench.run()
    rows = [call.rows for call in bench.backend.calls if call.kind is CallKind.VERIFY]
    # one token from the prompt, then four, then the last alone
    assert rows == [(4,), (1,)]


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_the_draft_depth_of_the_rules_caps_the_heads(depth: int) -> None:
    bench = unsized(128, draft_depth=depth)
    bench.submit(ask("reply", max_new_tokens=40))
    bench.run()
    verifies = [call for call in bench.backend.calls if call.kind is CallKind.VERIFY]
    assert max(call.rows[0] for call in verifies) == 1 + depth
    assert (CallKind.DRAFT in [call.kind for call in bench.backend.calls]) == (depth > 0)


def test_a_backend_without_a_head_is_never_asked_to_draft() -> None:
    bench = unsized(128, window_rows=1)
    bench.submit(ask("reply", max_new_tokens=10))
    bench.run()
    assert CallKind.DRAFT not in [call.kind for call in bench.backend.calls]
    assert bench.ears["reply"].terminal.usage.drafted == 0


def test_each_rounds_tokens_arrive_as_one_event() -> None:
    bench = unsized(128)
    bench.submit(ask("reply", max_new_tokens=9))
    bench.run()
    sizes = [len(event.ids) for event in bench.ears["reply"].events if isinstance(event, Tokens)]
    assert sizes == [1, 4, 4]


def test_the_digest_is_of_four_little_endian_bytes_a_token() -> None:
    # sha-256 of 01 00 00 00 02 01 00 00
    assert digest([1, 258]) == "fb8bbe2ad3ab5292f19bc5d75bbab9b5fbddc5a78ce47ab41b2d3d59bca08596"


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({"grow_tokens": 0}, "--slot-grow"),
        ({"draft_depth": -1}, "draft depth"),
        ({"decode_share": 1.0}, "--decode-share"),
        ({"decode_share": float("nan")}, "--decode-share"),
    ],
)
def test_rules_outside_their_range_are_refused(values: dict[str, int], word: str) -> None:
    with pytest.raises(SettingError, match=word):
        LaneRules(**values)  # type: ignore[arg-type]  # wrong on purpose
