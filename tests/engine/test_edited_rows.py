"""The engine's edits and log probabilities, which equal the plain ones, and its draws of edited rows."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hermitcrab.engine.draws import draw_rows
from hermitcrab.engine.edits import PastTokens, edited_row
from hermitcrab.engine.logprobs import row_logprobs
from hermitcrab.errors import DeviceFailed
from hermitcrab.sampling.edits import Edits, edited, mask_of
from hermitcrab.sampling.logprobs import token_logprobs
from hermitcrab.sampling.params import Penalties, Sampling
from hermitcrab.sampling.rule import draw

VOCAB_TOKENS = 19
TOKENS = st.integers(0, VOCAB_TOKENS - 1)
# in thirds, so that sums and quotients round
NUMBERS = st.integers(-60, 60).map(lambda third: third / 3)
ROWS = st.lists(NUMBERS, min_size=VOCAB_TOKENS, max_size=VOCAB_TOKENS).map(
    lambda row: np.array(row, dtype=np.float32)
)
PENALTIES = st.builds(
    Penalties,
    presence=st.floats(-2, 2),
    frequency=st.floats(-2, 2),
    repetition=st.floats(0.5, 2.0),
    bias=st.dictionaries(TOKENS, st.floats(-100, 100), max_size=4).map(lambda bias: tuple(bias.items())),
)
EDITS = st.builds(
    Edits,
    penalties=PENALTIES,
    counts=st.dictionaries(TOKENS, st.integers(1, 9)),
    ahead=st.lists(TOKENS, max_size=5).map(tuple),
    prompt_ids=st.frozensets(TOKENS),
    # ids that are no tokens too: a model may name ends that it does not have
    banned=st.frozensets(st.integers(0, 40), max_size=6),
    mask=st.none() | st.sets(TOKENS, min_size=1).map(lambda kept: mask_of(kept, vocab_tokens=VOCAB_TOKENS)),
)
SAMPLINGS = st.builds(
    Sampling,
    temperature=st.sampled_from([0.0, 0.6, 1.3]),
    top_k=st.sampled_from([0, 1, 5, 19]),
    top_p=st.sampled_from([1.0, 0.9]),
    min_p=st.sampled_from([0.0, 0.05]),
    seed=st.integers(0, 5),
)


@settings(deadline=None)
@given(ROWS, EDITS)
def test_an_edited_row_has_the_plain_rules_bits(row: np.ndarray, edits: Edits) -> None:
    before = row.copy()
    assert edited_row(row, edits, PastTokens()).tolist() == edited(row.tolist(), edits)
    assert np.array_equal(row, before)


@settings(deadline=None)
@given(ROWS, st.lists(st.none() | EDITS, min_size=1, max_size=4), SAMPLINGS)
def test_edited_rows_are_drawn_by_the_plain_rule_whatever_rides_along(
    row: np.ndarray, edits: list[Edits | None], sampling: Sampling
) -> None:
    def plain(edit: Edits | None) -> int | None:
        try:
            return draw(row.tolist(), 7, sampling, edit)
        except DeviceFailed:
            return None

    expected = [plain(edit) for edit in edits]
    table = torch.from_numpy(np.stack([row] * len(edits)))
    if None in expected:
        with pytest.raises(DeviceFailed, match="position 7"):
            draw_rows(table, [7] * len(edits), [sampling] * len(edits), edits)
    else:
        assert draw_rows(table, [7] * len(edits), [sampling] * len(edits), edits) == expected


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_short_list_of_a_large_vocabulary_is_drawn_from_what_the_edits_leave(temperature: float) -> None:
    generator = torch.Generator().manual_seed(5)
    table = torch.randn(3, 3000, generator=generator)
    edits = [Edits(mask=mask_of(range(at, 3000, 97), vocab_tokens=3000)) for at in range(3)]
    sampling = Sampling(temperature=temperature, top_k=20, seed=9)
    drawn = draw_rows(table, [4, 5, 6], [sampling] * 3, edits)
    assert drawn == [
        draw(row.tolist(), position, sampling, edit)
        for row, position, edit in zip(table, [4, 5, 6], edits, strict=True)
    ]
    assert [token % 97 for token in drawn] == [0, 1, 2]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_edits_that_leave_nothing_are_refused(temperature: float) -> None:
    nothing = [None, Edits(mask=mask_of([1], vocab_tokens=4), banned=frozenset({1}))]
    with pytest.raises(DeviceFailed, match="position 6"):
        draw_rows(torch.zeros(2, 4), [5, 6], [Sampling(temperature=temperature)] * 2, nothing)


def test_a_forced_token_is_taken_from_a_row_that_is_one() -> None:
    forced = [Edits(forced=2)]
    assert draw_rows(torch.zeros(1, 4), [3], [Sampling()], forced) == [2]
    with pytest.raises(DeviceFailed, match="position 3"):
        draw_rows(torch.tensor([[0.0, torch.nan]]), [3], [Sampling()], forced)


@settings(deadline=None)
@given(ROWS, TOKENS, st.integers(0, 30))
def test_log_probabilities_equal_the_plain_ones(row: np.ndarray, token: int, top: int) -> None:
    told, plain = row_logprobs(row, token, top=top), token_logprobs(row.tolist(), token, top=top)
    assert (told.token, [other for other, _ in told.top]) == (token, [other for other, _ in plain.top])
    # the sum of the exponentials is added in another order
    assert [told.logprob, *(value for _, value in told.top)] == pytest.approx(
        [plain.logprob, *(value for _, value in plain.top)], abs=1e-12
    )


@settings(deadline=None)
@given(st.integers(0, 2**31), st.integers(0, 2**31))
def test_log_probabilities_are_a_function_of_their_row(seed: int, other_seed: int) -> None:
    row = torch.randn(1, 257, generator=torch.Generator().manual_seed(seed))
    others = torch.randn(3, 257, generator=torch.Generator().manual_seed(other_seed))
    beside = torch.cat((others[:2], row, others[2:])).numpy()
    assert row_logprobs(beside[2], 11, top=5) == row_logprobs(row.numpy()[0], 11, top=5)
