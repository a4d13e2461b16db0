"""What the check at load switches off stays off: widths of windows, rounds of several streams."""

import pytest
from lane_bench import SAMPLED, ask, solo, solos, unsized

from hermitcrab.core.fake import CallKind
from hermitcrab.core.load_check import NOT_RUN, CheckState, LoadCheck
from hermitcrab.core.windows import exact_drafts


def reduced(*, off_widths: tuple[int, ...] = (), is_sharing_off: bool = False) -> LoadCheck:
    return LoadCheck(
        CheckState.REDUCED,
        prompt_tokens=(24, 520),
        window_rows=4,
        off_widths=off_widths,
        is_sharing_off=is_sharing_off,
        reasons=("this and that",),
        unchecked=("the far side",),
        seconds=0.5,
    )


@pytest.mark.parametrize(
    ("drafts", "widths", "granted"),
    [(3, (1, 2, 3, 4), 3), (3, (1, 2, 4), 3), (2, (1, 2, 4), 1), (3, (1,), 0), (0, (1, 2), 0)],
)
def test_drafts_are_cut_to_the_next_exact_width(drafts: int, widths: tuple[int, ...], granted: int) -> None:
    assert exact_drafts(drafts, widths) == granted


@pytest.mark.parametrize("off_widths", [(2,), (3,), (4,), (2, 3), (2, 3, 4)])
def test_a_width_that_is_off_is_never_run_and_the_reply_is_the_same(off_widths: tuple[int, ...]) -> None:
    bench = unsized(128, 128, load_check=reduced(off_widths=off_widths))
    requests = [ask(name, max_new_tokens=40, sampling=SAMPLED) for name in ("a", "b")]
    bench.submit(*requests)
    bench.run()
    widths = {rows for call in bench.backend.calls if call.kind is CallKind.VERIFY for rows in call.rows}
    assert not widths & set(off_widths)
    assert [bench.tokens(request.id) for request in requests] == solos(requests)
    assert bench.is_clean


def test_the_widest_width_that_is_left_is_used() -> None:
    bench = unsized(128, load_check=reduced(off_widths=(3, 4)))
    bench.submit(ask("a", max_new_tokens=40))
    bench.run()
    assert max(call.rows[0] for call in bench.backend.calls if call.kind is CallKind.VERIFY) == 2


def test_without_sharing_a_round_has_one_stream_and_all_get_their_turn() -> None:
    bench = unsized(128, 128, 128, load_check=reduced(is_sharing_off=True))
    requests = [ask(name, max_new_tokens=30) for name in ("a", "b", "c")]
    bench.submit(*requests)
    bench.run()
    rounds = [call.slots for call in bench.backend.calls if call.kind is CallKind.VERIFY]
    assert {len(slots) for slots in rounds} == {1}
    assert {slots[0] for slots in rounds[:6]} == {0, 1, 2}
    assert [bench.tokens(request.id) for request in requests] == solos(requests)
    assert bench.is_clean


def test_short_replies_that_keep_coming_take_no_turn_from_a_long_one() -> None:
    bench = unsized(128, 128, load_check=reduced(is_sharing_off=True), draft_depth=0)
    bench.submit(ask("long", max_new_tokens=20))
    bench.step_until_live("long")
    for number in range(40):
        bench.submit(ask(f"short {number}", max_new_tokens=2))
        bench.step(2)
    assert bench.tokens("long") == solo(ask("long", max_new_tokens=20))


def test_the_status_shows_the_check() -> None:
    check = reduced(off_widths=(3,))
    assert unsized(128, load_check=check).loop.take_snapshot().load_check == check
    assert unsized(128).loop.take_snapshot().load_check == NOT_RUN


def test_the_context_does_not_shrink_or_grow_with_a_width_that_is_off() -> None:
    off = unsized(128, load_check=reduced(off_widths=(2, 3, 4)))
    assert off.loop.gate.context_tokens == unsized(128).loop.gate.context_tokens


def test_its_lines_say_what_is_off_and_what_could_not_be_checked() -> None:
    assert reduced(off_widths=(3,)).lines == (
        "load check: parts switched off, at 24 and 520 tokens, in 0.50 s",
        "load check: switched off: this and that",
        "load check: not checked: the far side",
    )
    assert NOT_RUN.lines == ("load check: not run",)
