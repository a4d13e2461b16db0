"""The n-gram hash in plain integers."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hermitcrab.kernels.ngram import ngram_rows

RESET = 2
MULTIPLIERS = (3, 1_000_003, (1 << 53) + 7)
HEAD_ROWS = (101, 103, 107, 109)
HEAD_OFFSETS = (0, 101, 204, 311)

texts = st.lists(st.sampled_from([RESET, 0, 1, 5, 248_319]), min_size=1, max_size=12)


def rows_of(tokens: list[int], history: list[int]) -> list[int]:
    return ngram_rows(
        tokens,
        history,
        multipliers=MULTIPLIERS,
        head_rows=HEAD_ROWS,
        head_offsets=HEAD_OFFSETS,
        heads_per_ngram=2,
        reset_token=RESET,
    )


def naive(line: list[int], place: int) -> list[int]:
    """2-grams by two heads, then 3-grams by two; a segment ends with its reset token."""
    start = max([at + 1 for at in range(place) if line[at] == RESET], default=0)
    window = [line[place - back] if place - back >= start else RESET for back in range(3)]
    two = window[0] * MULTIPLIERS[0] ^ window[1] * MULTIPLIERS[1]
    three = two ^ window[2] * MULTIPLIERS[2]
    return [
        offset + mixed % size
        for mixed, size, offset in zip((two, two, three, three), HEAD_ROWS, HEAD_OFFSETS, strict=True)
    ]


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=texts)
def test_rows_are_the_oracles(text: list[int]) -> None:
    expected = [row for place in range(len(text)) for row in naive(text, place)]
    assert rows_of(text, [RESET, RESET]) == expected


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=texts, data=st.data())
def test_a_text_cut_anywhere_gives_the_same_rows(text: list[int], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(text)))
    history = [RESET, RESET, *text[:cut]][-2:]
    whole = rows_of(text, [RESET, RESET])
    assert rows_of(text[:cut], [RESET, RESET]) + rows_of(text[cut:], history) == whole


def test_no_tokens_have_no_rows() -> None:
    assert rows_of([], [5, 6]) == []


def test_nothing_before_a_reset_is_seen_behind_it() -> None:
    assert rows_of([9, 9], [7, RESET]) == rows_of([9, 9], [8, RESET])
    assert rows_of([9], [RESET, 7]) != rows_of([9], [RESET, 8])


def test_a_reset_itself_sees_the_tokens_before_it() -> None:
    assert rows_of([RESET], [7, 8]) != rows_of([RESET], [7, 9])
