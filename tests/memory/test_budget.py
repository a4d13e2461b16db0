"""Sessions under the load limit: the arithmetic, every refusal, and what would fit."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermitcrab.errors import BudgetError
from hermitcrab.memory.budget import GIB, MARGIN_BYTES, Ledger, Line, SessionBudget, spell

# the flagship's: bytes a row, and DeltaNet state a session
ROW_BYTES = 30_784
STATE_BYTES = 115_500_000


def flagship_bytes(rows: int) -> int:
    return STATE_BYTES + rows * ROW_BYTES


def budget(room_bytes: int) -> SessionBudget:
    """A budget with exactly so much room."""
    cap_bytes = room_bytes + MARGIN_BYTES + 10 * GIB
    ledger = Ledger(
        device_bytes=2 * cap_bytes,
        ready_bytes=9 * GIB,
        reserved_bytes=GIB,
        limit_bytes=cap_bytes,
    )
    assert ledger.room_bytes == room_bytes
    return SessionBudget(ledger, flagship_bytes, margin_rows=32)


def test_the_cap_is_70_percent_of_the_device_when_nobody_said() -> None:
    assert Ledger(device_bytes=256 * GIB, ready_bytes=0).cap_bytes == 256 * GIB * 70 // 100


def test_a_limit_may_raise_the_cap_up_to_the_device() -> None:
    assert Ledger(device_bytes=100, ready_bytes=0, limit_bytes=90).cap_bytes == 90
    assert Ledger(device_bytes=100, ready_bytes=0, limit_bytes=500).cap_bytes == 100


def test_a_limit_may_lower_the_cap() -> None:
    assert Ledger(device_bytes=100, ready_bytes=0, limit_bytes=50).cap_bytes == 50


def test_room_is_cap_less_ready_less_margin_less_reserved() -> None:
    ledger = Ledger(device_bytes=100 * GIB, ready_bytes=40 * GIB, reserved_bytes=5 * GIB)
    assert ledger.room_bytes == 70 * GIB - 40 * GIB - 2 * GIB - 5 * GIB


def test_sixteen_sized_sessions_take_less_than_three_whole_windows() -> None:
    listed = (65536, *[32768] * 3, *[16384] * 11)
    sized = budget(1000 * GIB).check_list(262144, listed)
    assert sized - flagship_bytes(262144 + 32) == pytest.approx(11.6 * GIB, rel=0.02)
    assert sized < budget(1000 * GIB).check_parallel(262144, 4)


def test_a_list_that_fits_to_the_byte_is_taken() -> None:
    needed = flagship_bytes(4128) + 2 * flagship_bytes(1056)
    assert budget(needed).check_list(4096, (1024, 1024)) == needed


def refusal(room_bytes: int, context_tokens: int, listed: tuple[int, ...]) -> str:
    with pytest.raises(BudgetError) as caught:
        budget(room_bytes).check_list(context_tokens, listed)
    return str(caught.value)


def test_a_list_one_byte_too_large_is_refused_with_need_room_and_every_item() -> None:
    needed = flagship_bytes(4128) + 2 * flagship_bytes(1056) + flagship_bytes(544)
    message = refusal(needed - 1, 4096, (1024, 1024, 512))
    assert f"({needed} bytes)" in message
    assert f"({needed - 1} bytes)" in message
    assert (
        f"1 x 4096 tokens: {flagship_bytes(4128) / GIB:.2f} GiB ({flagship_bytes(4128)} bytes) each"
        in message
    )
    assert (
        f"2 x 1024 tokens: {flagship_bytes(1056) / GIB:.2f} GiB ({flagship_bytes(1056)} bytes) each"
        in message
    )
    assert (
        f"1 x 512 tokens: {flagship_bytes(544) / GIB:.2f} GiB ({flagship_bytes(544)} bytes) each" in message
    )


def test_a_refusal_shows_how_the_room_comes_about() -> None:
    message = refusal(GIB, 4096, (65536,))
    cap_bytes = GIB + MARGIN_BYTES + 10 * GIB
    for amount in (cap_bytes, 9 * GIB, MARGIN_BYTES, GIB):
        assert f"({amount} bytes)" in message
    assert "--load-limit-gb" in message


def test_a_refusal_without_a_limit_says_where_the_cap_comes_from() -> None:
    tight = SessionBudget(Ledger(device_bytes=4 * GIB, ready_bytes=0), flagship_bytes, margin_rows=32)
    with pytest.raises(BudgetError, match=r"70 % of the device's 4\.00 GiB"):
        tight.check_list(65536, (65536,))


def suggested(message: str) -> tuple[int, ...]:
    (text,) = re.findall(r"The largest list of this shape that fits: --slot-contexts (\S+)", message)
    return tuple(
        int(tokens)
        for item in text.split(",")
        for tokens in [item.split("x")[0]] * int((item + "x1").split("x")[1])
    )


@given(
    st.integers(1000, 40_000),
    st.lists(st.integers(1, 40_000), min_size=1, max_size=6),
    st.floats(0.0, 1.0, exclude_max=True),
)
def test_the_suggested_list_fits_has_the_same_shape_and_the_next_larger_does_not_fit(
    context_tokens: int, listed: list[int], part: float
) -> None:
    least = flagship_bytes(context_tokens + 32) + len(listed) * flagship_bytes(33)
    needed = flagship_bytes(context_tokens + 32) + sum(flagship_bytes(tokens + 32) for tokens in listed)
    room_bytes = least + int((needed - 1 - least) * part)
    if room_bytes >= needed or room_bytes < least:
        return
    fitting = suggested(refusal(room_bytes, context_tokens, tuple(listed)))
    assert len(fitting) == len(listed)
    assert budget(room_bytes).check_list(context_tokens, fitting) <= room_bytes
    largest = max(listed)
    assert list(fitting) == [max(1, tokens * max(fitting) // largest) for tokens in listed]
    next_larger = [max(1, tokens * (max(fitting) + 1) // largest) for tokens in listed]
    with pytest.raises(BudgetError):
        budget(room_bytes).check_list(context_tokens, next_larger)


def test_a_window_that_leaves_no_room_for_any_list_is_shrunk_with_it() -> None:
    message = refusal(flagship_bytes(2080) + flagship_bytes(1056) - 1, 4096, (2048,))
    assert "The largest of this shape that fits: --context 2047 --slot-contexts 1023" in message


def test_more_sessions_than_any_size_would_fit_are_told_how_many_do() -> None:
    message = refusal(3 * flagship_bytes(33), 4096, (512,) * 7)
    assert "at most 3 fit" in message
    assert "list fewer sessions" in message


def test_a_machine_where_the_margin_is_more_than_the_cap_leaves_is_told_so() -> None:
    small = SessionBudget(Ledger(device_bytes=3 * GIB, ready_bytes=GIB // 2), flagship_bytes, margin_rows=32)
    with pytest.raises(BudgetError) as caught:
        small.choose_parallel(4096)
    message = str(caught.value)
    assert "margin 2.00 GiB" in message
    assert "there is room for 0.00 GiB" in message
    assert "What is needed before any session passes the cap by 0.40 GiB" in message
    assert "Raise --load-limit-gb, up to the device's 3.00 GiB" in message


@pytest.mark.parametrize(("windows", "chosen"), [(1, 1), (2, 2), (3, 3), (4, 4), (9, 4)])
def test_without_a_count_as_many_whole_windows_as_fit_are_opened_up_to_four(
    windows: int, chosen: int
) -> None:
    assert budget(windows * flagship_bytes(262176)).choose_parallel(262144) == chosen


def test_without_room_for_one_window_the_largest_that_fits_is_named() -> None:
    with pytest.raises(BudgetError, match="The largest window that fits: --context 4095"):
        budget(flagship_bytes(4128) - 1).choose_parallel(262144)


def test_a_count_that_does_not_fit_is_refused_with_the_most_that_do() -> None:
    room_bytes = 3 * flagship_bytes(4128)
    assert budget(room_bytes).check_parallel(4096, 3) == room_bytes
    with pytest.raises(BudgetError, match="The most that fit: --parallel 3") as caught:
        budget(room_bytes).check_parallel(4096, 8)
    assert "8 x 4096 tokens" in str(caught.value)


@given(st.integers(0, 40 * GIB), st.integers(64, 262144))
def test_the_count_chosen_fits_and_one_more_does_not(room_bytes: int, context_tokens: int) -> None:
    try:
        chosen = budget(room_bytes).choose_parallel(context_tokens)
    except BudgetError:
        assert flagship_bytes(context_tokens + 32) > room_bytes
        return
    assert 1 <= chosen <= 4
    assert chosen * flagship_bytes(context_tokens + 32) <= room_bytes
    assert chosen == 4 or (chosen + 1) * flagship_bytes(context_tokens + 32) > room_bytes


def test_equal_neighbours_are_spelt_as_a_repeat() -> None:
    assert spell((65536, 32768, 32768, 32768, 65536)) == "65536,32768x3,65536"


def test_what_loading_takes_counts_where_it_is_more_than_the_prompt_caches_share() -> None:
    ledger = Ledger(
        device_bytes=100 * GIB, ready_bytes=40 * GIB, reserved_bytes=5 * GIB, limit_bytes=90 * GIB
    )
    assert replace(ledger, loading_bytes=5 * GIB).room_bytes == ledger.room_bytes
    assert replace(ledger, loading_bytes=9 * GIB).room_bytes == ledger.room_bytes - 4 * GIB


def test_a_refusal_names_what_is_resident_part_by_part() -> None:
    ledger = Ledger(
        device_bytes=3 * GIB,
        ready_bytes=700,
        parts=(Line("weights", 600), Line("n-gram table", 100)),
        loading_bytes=1,
    )
    with pytest.raises(BudgetError) as caught:
        SessionBudget(ledger, flagship_bytes, margin_rows=32).check_list(65536, ())
    message = str(caught.value)
    assert "ready: weights 0.00 GiB (600 bytes)" in message
    assert "ready: n-gram table 0.00 GiB (100 bytes)" in message
    assert "- loading 0.00 GiB (1 bytes)" in message


def with_buffers(room_bytes: int) -> SessionBudget:
    """A budget whose sessions share a MiB for each row of the largest and a GiB for each session."""
    ledger = Ledger(device_bytes=room_bytes + MARGIN_BYTES, ready_bytes=0, limit_bytes=1 << 60)
    return SessionBudget(
        ledger, flagship_bytes, margin_rows=32, work_bytes=lambda rows: (max(rows) << 20) + len(rows) * GIB
    )


def test_shared_buffers_count_once_for_all_sessions() -> None:
    needed = flagship_bytes(4128) + flagship_bytes(1056) + (4128 << 20) + 2 * GIB
    assert with_buffers(needed).check_list(4096, (1024,)) == needed
    with pytest.raises(BudgetError, match=r"work buffers of a prompt pass and a round: 6\.03 GiB"):
        with_buffers(needed - 1).check_list(4096, (1024,))


def test_a_window_shrunk_to_fit_needs_smaller_buffers_too() -> None:
    with pytest.raises(BudgetError) as caught:
        with_buffers(5 * GIB).check_list(65536, ())
    (text,) = re.findall(r"--context (\d+)", str(caught.value))
    assert with_buffers(5 * GIB).fits((int(text),))
    assert not with_buffers(5 * GIB).fits((int(text) + 1,))


def test_windows_are_counted_with_their_buffers() -> None:
    room_bytes = 3 * (flagship_bytes(1056) + GIB) + (1056 << 20)
    assert with_buffers(room_bytes).choose_parallel(1024) == 3
    assert with_buffers(room_bytes - 1).choose_parallel(1024) == 2


def test_so_many_more_sessions_fit_as_are_counted() -> None:
    made = with_buffers(20 * GIB)
    more = made.more_of((4096,), 1024)
    assert made.fits((4096, *(1024,) * more))
    assert not made.fits((4096, *(1024,) * (more + 1)))
