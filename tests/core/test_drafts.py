"""Drafting in rounds: copies before chains, depth by measured cost, rows that wait for the head."""

from collections.abc import Callable, Sequence

import pytest
from lane_bench import Bench, ask, sized, solo, unsized

from hermitcrab.core.api import Failed, Request
from hermitcrab.core.backend import DraftRequest
from hermitcrab.core.fake import Call, CallKind, FakeBackend
from hermitcrab.core.lanes import LaneRules
from hermitcrab.core.load_check import CheckState, LoadCheck
from hermitcrab.errors import DeviceFailed
from hermitcrab.sampling.noise import mix64

Lands = Callable[[int, int], bool]

REPEATED = tuple(place * place * place % 61 for place in range(50))


def none_lands(position: int, index: int) -> bool:
    return False


def half_land(position: int, index: int) -> bool:
    return mix64(position * 8 + index) % 2 == 0


def all_land(position: int, index: int) -> bool:
    return True


def with_costs(bench: Bench, *, fixed_s: float, row_s: float, draft_s: float) -> Bench:
    """The bench's clock moves by so much a round, a row of it, and a call to the head."""

    def pass_time(call: Call) -> None:
        match call.kind:
            case CallKind.VERIFY:
                bench.clock.advance(fixed_s + row_s * sum(call.rows))
            case CallKind.DRAFT:
                bench.clock.advance(draft_s)
            case _:
                pass

    bench.backend.on_call = pass_time
    return bench


def run_streams(
    streams: int,
    lands: Lands,
    *,
    row_s: float,
    draft_depth: int | None = None,
    tokens: int = 300,
    draft_s: float = 0.2,
) -> Bench:
    """So many streams at once on a backend whose rounds cost 1 s and `row_s` a row."""
    bench = unsized(*[1024] * streams, lands=lands, draft_depth=draft_depth, vocab_tokens=64, backlog_rows=64)
    with_costs(bench, fixed_s=1.0, row_s=row_s, draft_s=draft_s)
    bench.submit(*(ask(f"r{index}", max_new_tokens=tokens) for index in range(streams)))
    bench.run()
    return bench


def windows(bench: Bench) -> list[tuple[int, ...]]:
    """Rows of every round's windows."""
    return [call.rows for call in bench.backend.calls if call.kind is CallKind.VERIFY]


def repeating(request: Request) -> tuple[int, ...]:
    """A reply that says its middle part over and over."""
    start = sum(request.prompt) % 16
    return (start, *(token for part in range(12) for token in (*REPEATED, part)))


def copier(
    *, streams: int = 1, draft_depth: int | None = None, head_depth: int = 0, **backend: object
) -> Bench:
    """Streams whose replies repeat themselves, by default without a head."""
    requests = [ask(f"r{index}", max_new_tokens=600) for index in range(streams)]
    replies = {request.prompt: repeating(request) for request in requests}
    settings: dict[str, object] = {
        "draft_depth": head_depth,
        "window_rows": 16,
        "vocab_tokens": 64,
        **backend,
    }
    bench = Bench(
        FakeBackend([1024] * streams, script=replies.__getitem__, **settings),  # type: ignore[arg-type]
        LaneRules(draft_depth=draft_depth),
    )
    bench.submit(*requests)
    bench.run()
    for request in requests:
        assert bench.tokens(request.id) == list(replies[request.prompt][:600])
    assert bench.is_clean
    return bench


@pytest.mark.parametrize("streams", [1, 6])
@pytest.mark.parametrize("lands", [none_lands, half_land, all_land])
@pytest.mark.parametrize("row_s", [0.01, 0.2, 2.0])
def test_drafting_never_makes_rounds_slower_than_none_by_more_than_its_looks(
    streams: int, lands: Lands, row_s: float
) -> None:
    drafted = run_streams(streams, lands, row_s=row_s)
    plain = run_streams(streams, lands, row_s=row_s, draft_depth=0)
    assert drafted.clock.now_s() <= 1.06 * plain.clock.now_s()
    assert [drafted.tokens(f"r{index}") for index in range(streams)] == [
        plain.tokens(f"r{index}") for index in range(streams)
    ]
    assert drafted.is_clean


@pytest.mark.parametrize("streams", [1, 8])
def test_drafts_that_land_in_cheap_rows_are_worth_more_than_half_as_much_again(streams: int) -> None:
    drafted = run_streams(streams, all_land, row_s=0.01)
    plain = run_streams(streams, all_land, row_s=0.01, draft_depth=0)
    assert drafted.clock.now_s() < plain.clock.now_s() / 1.5


def test_drafts_that_do_not_pay_become_as_rare_as_looks() -> None:
    late = windows(run_streams(1, none_lands, row_s=0.4))[50:]
    assert sum(rows != (1,) for rows in late) <= 4


def test_drafts_that_begin_to_land_are_found_out() -> None:
    late = windows(run_streams(1, lambda position, index: position > 200, row_s=0.05, tokens=600))[-10:-1]
    assert min(rows[0] for rows in late) == 4


def test_the_same_costs_give_the_same_rounds() -> None:
    assert windows(run_streams(3, half_land, row_s=0.1)) == windows(run_streams(3, half_land, row_s=0.1))


class Uneven(FakeBackend):
    """The drafts of the first slot all land, those of the others never do."""

    def draft(self, requests: Sequence[DraftRequest]) -> list[tuple[int, ...]]:
        return [
            tokens if request.slot == 0 else tuple((token + 1) % 64 for token in tokens)
            for request, tokens in zip(requests, super().draft(requests), strict=True)
        ]


def test_a_stream_whose_drafts_land_drafts_beside_one_whose_drafts_do_not() -> None:
    bench = Bench(Uneven([1024, 1024], vocab_tokens=64), LaneRules())
    with_costs(bench, fixed_s=1.0, row_s=0.25, draft_s=0.05)
    bench.submit(*(ask(name, max_new_tokens=300) for name in ("lands", "misses")))
    bench.run()
    lands, misses = (bench.ears[name].terminal.usage for name in ("lands", "misses"))
    assert lands.drafted > 200
    # its looks: two drafts each, a few dozen times in 300 rounds
    assert misses.drafted / misses.rounds < 0.3 < 2 < lands.drafted / lands.rounds


def test_a_context_that_repeats_is_copied_without_a_head() -> None:
    bench = copier()
    status = bench.loop.take_snapshot()
    assert status.copied == status.drafted > 0
    assert status.copies_accepted == status.accepted > 50
    assert CallKind.DRAFT not in [call.kind for call in bench.backend.calls]


def test_copies_of_a_stream_alone_double_and_those_of_streams_in_company_do_not() -> None:
    assert max(max(rows) for rows in windows(copier())) == 16
    assert max(max(rows) for rows in windows(copier(streams=3))) == 8


@pytest.mark.parametrize("draft_depth", [0, 1, 3])
def test_the_draft_depth_of_the_rules_caps_copies(draft_depth: int) -> None:
    assert max(rows[0] for rows in windows(copier(draft_depth=draft_depth))) == 1 + draft_depth


def test_copies_keep_to_exact_widths() -> None:
    check = LoadCheck(CheckState.REDUCED, window_rows=16, off_widths=(8, 9, 15, 16))
    widths = {rows[0] for rows in windows(copier(load_check=check))}
    assert max(widths) == 14
    assert not widths & {8, 9}


def test_a_copy_comes_before_the_heads_chain() -> None:
    """The head would be right as well, and as deep."""
    bench = copier(draft_depth=None, head_depth=7, window_rows=8)
    status = bench.loop.take_snapshot()
    assert 0 < status.copied < status.drafted
    # while the text is new the head drafts; once it repeats, copies do
    assert status.copies_accepted > 50


def test_the_head_drafts_where_copies_of_a_stream_have_missed() -> None:
    """Eight equal tokens, then another each time: the copy is wrong, the head is right."""
    reply = tuple(token for place in range(15) for token in (*REPEATED[:8], place))
    bench = Bench(
        FakeBackend([512], script=lambda prompt: reply, window_rows=8, draft_depth=7, vocab_tokens=64),
        LaneRules(),
    )
    bench.submit(ask("reply", max_new_tokens=len(reply)))
    bench.run()
    status = bench.loop.take_snapshot()
    assert status.accepted - status.copies_accepted > 80
    assert bench.tokens("reply") == list(reply)


def test_rows_wait_for_the_head_while_drafts_do_not_pay_and_are_absorbed_before_they_are_lost() -> None:
    bench = run_streams(2, none_lands, row_s=2.0)
    absorbed = [rows for call in bench.backend.calls if call.kind is CallKind.DRAFT for rows in call.rows]
    backlog_rows = bench.backend.facts().backlog_rows
    assert backlog_rows - 4 <= max(absorbed) <= backlog_rows
    assert len(absorbed) < 2 * 300 / (backlog_rows - 4) + 40
    assert bench.is_clean


class NoHeadForOne(FakeBackend):
    """The head fails whenever the second slot alone asks it."""

    def draft(self, requests: Sequence[DraftRequest]) -> list[tuple[int, ...]]:
        if [request.slot for request in requests] == [1]:
            raise DeviceFailed("the head failed")
        return super().draft(requests)


def test_a_head_that_fails_ends_the_streams_it_was_asked_for_and_no_other() -> None:
    copies, drafts = ask("copies", max_new_tokens=400), ask("drafts", max_new_tokens=400)
    scripts = {copies.prompt: repeating(copies)}
    backend = NoHeadForOne(
        [512, 512], script=lambda prompt: scripts.get(prompt, ()), window_rows=8, vocab_tokens=64
    )
    bench = Bench(backend, LaneRules())
    bench.submit(copies, drafts)
    bench.run()
    assert isinstance(bench.ears["drafts"].terminal, Failed)
    assert bench.tokens("copies") == list(repeating(copies))[:400]
    assert bench.is_clean


def test_drafts_by_rule_have_the_deepest_chain_in_every_window_whatever_it_costs() -> None:
    bench = Bench(FakeBackend([512], lands=none_lands), LaneRules(drafts_always=True))
    with_costs(bench, fixed_s=0.0, row_s=1.0, draft_s=1.0)
    bench.submit(ask("reply", max_new_tokens=50))
    bench.run()
    assert windows(bench)[:40] == [(4,)] * 40
    assert bench.tokens("reply") == solo(ask("reply", max_new_tokens=50))


def test_a_stream_that_moves_takes_the_rows_that_wait_for_its_head_along() -> None:
    bench = with_costs(sized(256, 64, 24, lands=none_lands), fixed_s=0.1, row_s=1.0, draft_s=1.0)
    bench.submit(ask("mover", max_new_tokens=200))
    bench.run()
    assert bench.ears["mover"].terminal.usage.moves == 2
    assert bench.tokens("mover") == solo(ask("mover", max_new_tokens=200))
    assert bench.is_clean
