"""`--slot-contexts`: what it names, and every refusal before anything is built."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermitcrab.core.slot_list import INT64_MAX, MARGIN_ROWS, parse_slot_contexts, rows_of
from hermitcrab.errors import SettingError
from hermitcrab.memory.budget import spell


def parse(text: str, *, sessions_allowed: int = 31, context_tokens: int = INT64_MAX) -> tuple[int, ...]:
    return parse_slot_contexts(text, sessions_allowed=sessions_allowed, context_tokens=context_tokens)


def refusal(text: str, *, sessions_allowed: int = 31, context_tokens: int = INT64_MAX) -> str:
    with pytest.raises(SettingError) as caught:
        parse(text, sessions_allowed=sessions_allowed, context_tokens=context_tokens)
    return str(caught.value)


def test_items_are_tokens_or_tokens_x_n_separated_by_commas() -> None:
    assert parse("65536,32768x3,16384x11") == (65536, *[32768] * 3, *[16384] * 11)


def test_a_sessions_rows_are_its_tokens_and_a_margin_of_32() -> None:
    assert rows_of(262144) == 262176


def test_spaces_around_items_are_allowed() -> None:
    assert parse(" 4096 , 512x2 ") == (4096, 512, 512)


@pytest.mark.parametrize(
    ("text", "place"), [("", 1), ("4096,,512", 2), ("4096,", 2), (",4096", 1), ("  ", 1)]
)
def test_an_empty_item_is_refused(text: str, place: int) -> None:
    assert f"item {place} is empty" in refusal(text)


@pytest.mark.parametrize(("text", "item"), [("0", "0"), ("4096,000", "000"), ("512x0", "512x0")])
def test_zero_is_refused(text: str, item: str) -> None:
    message = refusal(text)
    assert f"item {item!r}" in message
    assert "at least 1" in message


@pytest.mark.parametrize("item", ["-4096", "+4096", "512x-2", "512x+2"])
def test_a_sign_is_refused(item: str) -> None:
    message = refusal(f"1024,{item}")
    assert f"item {item!r}" in message
    assert "without a sign" in message


@pytest.mark.parametrize(
    "item", ["4k", "4_096", "4096.0", "0x10", "x3", "512x", "512x2x3", "512X2", "٤٠٩٦", "4 096", "512x ²"]
)
def test_a_non_number_is_refused(item: str) -> None:
    assert f"item {item!r}" in refusal(f"1024,{item}")


def test_a_repeat_count_above_the_sessions_still_allowed_is_refused() -> None:
    message = refusal("1024,512x3", sessions_allowed=3)
    assert "item '512x3'" in message
    assert "more sessions than the 2 still allowed" in message


def test_more_sessions_than_the_row_limit_are_refused() -> None:
    assert "more sessions than the 0 still allowed" in refusal("1024,512,256", sessions_allowed=2)


def test_as_many_sessions_as_allowed_are_taken() -> None:
    assert len(parse("1024,512x2", sessions_allowed=3)) == 3


@pytest.mark.parametrize("count", ["999999999999", "9" * 30, "9" * 5000])
def test_a_huge_repeat_count_is_refused_without_building_a_list(count: str) -> None:
    tracemalloc.start()
    try:
        message = refusal(f"1024,512x{count}")
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert "more sessions than the 30 still allowed" in message
    assert peak_bytes < 1 << 20


def test_tokens_that_leave_64_bit_range_with_the_margin_are_refused() -> None:
    most = INT64_MAX - MARGIN_ROWS
    assert parse(str(most)) == (most,)
    message = refusal(str(most + 1))
    assert f"item '{most + 1}'" in message
    assert f"at most {most} tokens" in message


def test_a_product_that_leaves_64_bit_range_is_refused() -> None:
    most = INT64_MAX // 2 - MARGIN_ROWS
    assert parse(f"{most}x2") == (most, most)
    message = refusal(f"{most + 1}x2")
    assert "leaves the 64-bit range" in message
    assert f"at most {most} tokens" in message


def test_tokens_of_thousands_of_digits_are_refused() -> None:
    assert "leaves the 64-bit range" in refusal("1" * 5000)


def test_a_session_larger_than_the_whole_window_is_refused() -> None:
    message = refusal("512,65536", context_tokens=32768)
    assert "item '65536'" in message
    assert "at most 32768 tokens" in message


@given(st.lists(st.tuples(st.integers(1, 1 << 40), st.integers(1, 4)), min_size=1, max_size=7))
def test_a_spelt_list_reads_back(items: list[tuple[int, int]]) -> None:
    text = ",".join(f"{tokens}x{count}" if count > 1 else str(tokens) for tokens, count in items)
    listed = parse(text)
    assert listed == tuple(tokens for tokens, count in items for _ in range(count))
    assert parse(spell(listed)) == listed


@given(st.text(alphabet="0123456789x,+- ٣k", max_size=24))
def test_any_text_is_a_list_of_allowed_sessions_or_a_setting_error(text: str) -> None:
    try:
        listed = parse(text, sessions_allowed=5)
    except SettingError:
        return
    assert 1 <= len(listed) <= 5
    assert all(1 <= tokens <= INT64_MAX - MARGIN_ROWS for tokens in listed)
