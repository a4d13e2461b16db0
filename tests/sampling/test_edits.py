"""The edits of a row: penalties as OpenAI has them, biases, tokens held back, masks."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermitcrab.errors import DeviceFailed, RequestError
from hermitcrab.sampling.edits import Edits, edited, is_in, mask_of, without
from hermitcrab.sampling.params import Penalties, Sampling
from hermitcrab.sampling.rule import draw

GREEDY = Sampling()
TOKENS = st.integers(0, 11)


def test_a_frequency_penalty_counts_each_time_and_a_presence_penalty_once() -> None:
    row = [3.0, 2.0, 1.0]
    counts = {0: 2, 1: 1}
    assert edited(row, Edits(Penalties(frequency=0.5), counts)) == [2.0, 1.5, 1.0]
    assert edited(row, Edits(Penalties(presence=0.5), counts)) == [2.5, 1.5, 1.0]


def test_negative_penalties_make_a_token_likelier() -> None:
    assert edited([0.0, 0.0], Edits(Penalties(frequency=-1.0), {1: 2})) == [0.0, 2.0]


def test_a_repetition_penalty_divides_what_is_above_zero_and_multiplies_what_is_below() -> None:
    edits = Edits(Penalties(repetition=2.0), {0: 7}, prompt_ids=frozenset({1}))
    assert edited([3.0, -3.0, 1.0], edits) == [1.5, -6.0, 1.0]


def test_only_the_repetition_penalty_looks_at_the_prompt() -> None:
    edits = Edits(Penalties(presence=1.0, frequency=1.0), prompt_ids=frozenset({0}))
    assert edited([3.0, 1.0], edits) == [3.0, 1.0]


def test_a_bias_is_added_after_the_penalties() -> None:
    edits = Edits(Penalties(repetition=2.0, presence=0.5, bias=((0, 10.0),)), {0: 1})
    assert edited([4.0], edits) == [4.0 / 2.0 - 0.5 + 10.0]


def test_drafts_on_the_way_to_a_row_count_as_reply_tokens() -> None:
    penalties = Penalties(presence=0.5, frequency=0.25, repetition=1.5)
    row = [1.0, 2.0, 3.0, -4.0]
    assert edited(row, Edits(penalties, {0: 1, 3: 1}, ahead=(3, 1, 3))) == edited(
        row, Edits(penalties, {0: 1, 3: 3, 1: 1})
    )


def test_held_back_tokens_and_those_outside_the_mask_are_never_drawn() -> None:
    row = [9.0, 8.0, 7.0, 6.0]
    assert draw(row, 0, GREEDY, Edits(banned=frozenset({0, 1}))) == 2
    assert draw(row, 0, GREEDY, Edits(mask=mask_of([3, 1], vocab_tokens=4))) == 1
    hot = Sampling(temperature=50.0, seed=4)
    assert {draw(row, at, hot, Edits(banned=frozenset({0, 1}))) for at in range(99)} == {2, 3}


def test_a_greedy_row_with_edits_is_the_arg_max_after_them_ties_to_the_lower_id() -> None:
    assert draw([5.0, 1.0, 1.0], 0, GREEDY, Edits(Penalties(bias=((0, -4.0),)))) == 0
    assert draw([5.0, 1.0, 1.0], 0, GREEDY, Edits(Penalties(bias=((0, -4.5),)))) == 1


def test_a_forced_token_is_taken_whatever_the_logits_are() -> None:
    assert draw([9.0, 0.0], 3, Sampling(temperature=1.0), Edits(forced=1, banned=frozenset({1}))) == 1


def test_edits_that_leave_nothing_and_logits_that_are_none_are_refused() -> None:
    with pytest.raises(DeviceFailed, match="position 7"):
        draw([1.0, 2.0], 7, GREEDY, Edits(banned=frozenset({0, 1})))
    with pytest.raises(DeviceFailed, match="position 7"):
        draw([1.0, math.nan], 7, GREEDY, Edits(forced=0))


@settings(deadline=None)
@given(st.sets(TOKENS), st.sets(TOKENS))
def test_a_mask_has_the_tokens_it_was_made_of_but_those_taken_out(kept: set[int], out: set[int]) -> None:
    mask = without(mask_of(kept, vocab_tokens=12), out | {99})
    assert {token for token in range(40) if is_in(mask, token)} == kept - out


@settings(deadline=None)
@given(
    st.lists(st.integers(-40, 40), min_size=12, max_size=12),
    st.dictionaries(TOKENS, st.integers(1, 5)),
    st.lists(TOKENS, max_size=4),
    st.integers(0, 100),
)
def test_edits_that_are_off_change_no_draw(
    logits: list[int], counts: dict[int, int], ahead: list[int], position: int
) -> None:
    row = [logit / 8 for logit in logits]
    sampling = Sampling(temperature=0.7, top_p=0.9, seed=2)
    assert draw(row, position, sampling, Edits(counts=counts, ahead=tuple(ahead))) == draw(
        row, position, sampling
    )


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"presence": 2.5}, "presence_penalty"),
        ({"frequency": -2.5}, "frequency_penalty"),
        ({"repetition": 0.0}, "repetition_penalty"),
        ({"repetition": math.nan}, "repetition_penalty"),
        ({"presence": math.nan}, "presence_penalty"),
        ({"bias": ((3, 101.0),)}, "logit_bias"),
        ({"bias": ((3, 1.0), (3, 2.0))}, "logit_bias"),
    ],
)
def test_penalties_outside_their_range_are_refused_by_name(values: dict[str, float], field: str) -> None:
    with pytest.raises(RequestError) as refused:
        Penalties(**values)  # type: ignore[arg-type]  # wrong values are the point
    assert refused.value.param == field
