"""Copies of the context: what followed the last eight tokens before is proposed again."""

from hypothesis import given
from hypothesis import strategies as st

from hermitcrab.drafting import copies
from hermitcrab.drafting.copies import FIRST_COPY_TOKENS, GRAM_TOKENS, CopyIndex, next_copy_tokens

TOKENS = st.lists(st.integers(0, 2), max_size=80)


def by_search(tokens: list[int], most_tokens: int) -> tuple[int, ...]:
    """The same, by looking at every place from the end."""
    end = len(tokens)
    run = tokens[end - GRAM_TOKENS :]
    for place in range(end - 1, GRAM_TOKENS - 1, -1):
        if tokens[place - GRAM_TOKENS : place] == run:
            going_on = list(tokens)
            for index in range(most_tokens):
                going_on.append(going_on[place + index])
            return tuple(going_on[end:])
    return ()


@given(TOKENS, st.integers(1, 20))
def test_a_copy_is_what_followed_the_last_place_of_the_last_tokens(
    tokens: list[int], most_tokens: int
) -> None:
    assert CopyIndex(tokens).propose(most_tokens) == by_search(tokens, most_tokens)


@given(st.lists(TOKENS, max_size=8), st.integers(1, 20))
def test_a_text_that_came_in_pieces_has_the_same_copies(pieces: list[list[int]], most_tokens: int) -> None:
    index, text = CopyIndex([]), list[int]()
    for piece in pieces:
        index.extend(piece)
        text += piece
        assert index.propose(most_tokens) == CopyIndex(text).propose(most_tokens)


def test_a_text_that_is_new_has_no_copy() -> None:
    assert CopyIndex(range(100)).propose(7) == ()


def test_seven_equal_tokens_are_too_few_and_eight_are_enough() -> None:
    run = list(range(10, 18))
    assert CopyIndex([1, *run, 2, 3, 9, *run[1:]]).propose(2) == ()
    assert CopyIndex([1, *run, 2, 3, 9, *run]).propose(2) == (2, 3)


def test_the_latest_place_counts() -> None:
    run = list(range(10, 18))
    assert CopyIndex([*run, 1, *run, 2, *run]).propose(1) == (2,)


def test_a_copy_goes_on_into_itself_where_the_text_has_a_period() -> None:
    assert CopyIndex([1, 2, 3] * 4).propose(7) == (1, 2, 3, 1, 2, 3, 1)


def test_nothing_is_proposed_where_nothing_is_wanted() -> None:
    assert CopyIndex([1] * 20).propose(0) == ()


def test_texts_shorter_than_a_run_have_no_copy() -> None:
    assert [CopyIndex([1] * count).propose(3) for count in range(GRAM_TOKENS + 1)] == [()] * (GRAM_TOKENS + 1)
    assert CopyIndex([1] * (GRAM_TOKENS + 1)).propose(3) == (1, 1, 1)


def test_a_long_text_is_taken_in_over_several_proposals() -> None:
    run = list(range(10, 18))
    text = [*range(100, 100 + 2 * copies.CATCH_UP_TOKENS), *run, 1, 2, *run]
    index = CopyIndex(text)
    assert [index.propose(2) for _ in range(3)] == [(), (), (1, 2)]


def test_runs_of_one_hash_are_told_apart() -> None:
    # -1 and -2 have the same hash
    first, second = [-1] * GRAM_TOKENS, [-2] * GRAM_TOKENS
    assert hash(tuple(first)) == hash(tuple(second))
    assert CopyIndex([0, *first, 5, *second]).propose(2) == ()


def test_copies_double_for_a_stream_alone_while_they_land_up_to_the_widest_window() -> None:
    tokens, lengths = FIRST_COPY_TOKENS, []
    for _ in range(3):
        tokens = next_copy_tokens(tokens, all_landed=True, is_alone=True, most_tokens=15)
        lengths.append(tokens)
    assert lengths == [14, 15, 15]


def test_a_miss_or_company_brings_copies_back_to_their_first_length() -> None:
    assert next_copy_tokens(14, all_landed=False, is_alone=True, most_tokens=15) == FIRST_COPY_TOKENS
    assert next_copy_tokens(14, all_landed=True, is_alone=False, most_tokens=15) == FIRST_COPY_TOKENS
