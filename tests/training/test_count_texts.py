"""The counts that are trained on are right: every start, end and step, whole or cut from a longer one."""

import itertools
import random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from training.data import counts
from training.data.counts import Count, close_count, far_count, long_count, phrase, random_count
from training.data.documents import Encoder, Talk, user
from training.shape import IM_END_ID

seeds = st.integers(0, 2**32)


def counted(start: int, end: int, step: int) -> list[int]:
    """The count, number by number."""
    found, number = [], start
    while (number <= end) if step > 0 else (number >= end):
        found.append(number)
        number += step
    return found


@given(start=st.integers(0, 99_999), span=st.integers(0, 3_000), step=st.integers(1, 999))
def test_a_count_up_says_every_number_that_does_not_pass_its_end(start: int, span: int, step: int) -> None:
    said = Count(start, start + span, step).text()
    assert said == " ".join(map(str, counted(start, start + span, step)))


@given(end=st.integers(0, 99_999), span=st.integers(0, 3_000), step=st.integers(1, 999))
def test_a_count_down_says_every_number_that_does_not_pass_its_end(end: int, span: int, step: int) -> None:
    said = Count(end + span, end, -step).text()
    assert said == " ".join(map(str, counted(end + span, end, -step)))


@given(seed=seeds, most=st.integers(4, 400))
def test_a_random_count_is_never_empty_too_long_or_out_of_range(seed: int, most: int) -> None:
    count = random_count(random.Random(seed), most)
    numbers = count.numbers()
    assert 1 <= len(numbers) <= most
    assert 0 <= min(numbers) <= max(numbers) <= counts.LARGEST


@given(seed=seeds, most=st.integers(4, 400))
def test_a_close_count_is_never_empty_too_long_or_out_of_range(seed: int, most: int) -> None:
    count = close_count(random.Random(seed), most)
    numbers = count.numbers()
    assert 1 <= len(numbers) <= most
    assert 0 <= min(count.start, count.end) < max(count.start, count.end) <= counts.LARGEST


def test_close_counts_go_both_ways_from_every_width_onto_and_past_their_ends() -> None:
    rng = random.Random(2)
    found = [close_count(rng, 8) for _ in range(1_000)]
    ways = {(len(str(one.start)), one.step > 0, one.numbers()[-1] == one.end) for one in found}
    assert ways == set(itertools.product(range(1, 6), (True, False), (True, False)))


@given(seed=seeds)
def test_a_far_count_goes_from_its_start_towards_its_end(seed: int) -> None:
    count = far_count(random.Random(seed))
    assert (count.end > count.start) == (count.step > 0)
    assert 0 <= min(count.start, count.end) <= max(count.start, count.end) <= counts.LARGEST


def test_an_opening_is_the_first_numbers_of_a_count_and_a_closing_its_last(encoder: Encoder) -> None:
    count = Count(9_990, 10_090, 7)
    numbers, rng = list(count.numbers()), random.Random(4)
    first, last = (part(rng, encoder, count) for part in (counts.opening, counts.closing))
    for document, ends in ((first, False), (last, True)):
        assert (document.ids[-1] == IM_END_ID) == ends
    said = [encoder.tokenizer.decode(document.ids.tolist()).split() for document in (first, last)]
    assert int(said[0][-1]) in numbers[1:4]
    assert [int(number) for number in said[1][-3:]] == numbers[-3:]


@given(seed=seeds)
def test_what_asks_for_a_count_names_its_end_and_its_step(seed: int) -> None:
    rng = random.Random(seed)
    count = random_count(rng, 50)
    words = phrase(rng, count).rstrip(".!?").replace(",", "").split()
    assert str(count.end) in words
    assert count.step in (1, -1) or str(abs(count.step)) in words
    assert str(count.start) in words or (count.start, count.step) == (1, 1)


@given(seed=seeds, most_tokens=st.integers(500, 8_000))
def test_a_long_count_comes_close_to_its_room_but_not_past_it(seed: int, most_tokens: int) -> None:
    count = long_count(random.Random(seed), most_tokens)
    tokens = len(count.text()) + 1
    assert tokens <= most_tokens
    has_room_for_one_more = tokens + 6 <= most_tokens
    assert not has_room_for_one_more or max(count.numbers()) + abs(count.step) > counts.LARGEST


def test_a_digit_is_a_token_and_so_is_the_space_between_numbers(encoder: Encoder) -> None:
    text = Count(1, 4000, 1).text()
    ids = encoder.ids(text)
    assert len(ids) == len(text)
    assert ids == encoder.digits(text).tolist()
    assert encoder.tokenizer.decode(ids) == text


def test_a_count_to_4000_is_18893_tokens_with_its_end(encoder: Encoder) -> None:
    document = encoder.reply(Talk([user("Count from 1 to 4000")]), encoder.digits(Count(1, 4000, 1).text()))
    learned = document.ids[np.flatnonzero(document.weights)]
    assert len(learned) == 18_893
    assert learned[-1] == IM_END_ID


def test_a_cut_count_is_a_stretch_of_one_count_at_the_positions_it_has_in_the_whole(encoder: Encoder) -> None:
    for seed in range(30):
        document = counts.cut(random.Random(seed), encoder, 400)
        learned = np.flatnonzero(document.weights)
        end = int(document.ids[-1] == IM_END_ID)
        said = encoder.tokenizer.decode(document.ids[learned[0] : len(document.ids) - end].tolist())
        numbers = [int(number) for number in said.split()]
        steps = {after - before for before, after in itertools.pairwise(numbers)}
        assert len(steps) <= 1
        assert (np.diff(document.positions) >= 1).all()
        assert (np.diff(document.positions) > 1).sum() <= 1
