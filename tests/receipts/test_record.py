"""Two replies of one case: where they part, and what a check makes of that."""

from dataclasses import replace

import pytest
from receipts_bench import case, reply

from hermitcrab.receipts.record import Outcome, Pair, Reply, Verdict, first_difference, judge, not_available


def difference_index(alone: Reply, other: Reply) -> int | None:
    found = first_difference(Pair(alone, other))
    return None if found is None else found.index


def test_equal_tokens_from_equal_logits_do_not_differ() -> None:
    assert (
        difference_index(reply([4, 5, 6], marks=[1.0, 2.0, 3.0]), reply([4, 5, 6], marks=[1.0, 2.0, 3.0]))
        is None
    )


def test_the_first_other_token_is_named_with_both_sides() -> None:
    found = first_difference(Pair(reply([4, 5, 6], marks=[1, 2, 3]), reply([4, 7, 8], marks=[1, 2.5, 3])))
    assert found is not None
    assert (found.index, found.what) == (1, "another token")
    assert (found.alone.token, found.other.token) == (5, 7)
    assert (found.alone.best, found.other.best) == (((1, 2),), ((1, 2.5),))


def test_the_same_token_from_other_logits_differs() -> None:
    found = first_difference(Pair(reply([4, 5], marks=[1.0, 2.0]), reply([4, 5], marks=[1.0, 2.0000002])))
    assert found is not None
    assert (found.index, found.what) == (1, "the same token from other logits")


def test_a_shorter_reply_that_asked_for_less_is_compared_as_far_as_it_goes() -> None:
    assert difference_index(reply([4, 5, 6]), reply([4, 5], asked=case(2))) is None


def test_a_reply_that_ended_early_differs_unless_it_was_cancelled() -> None:
    short = reply([4, 5], asked=case(3))
    assert difference_index(reply([4, 5, 6]), short) == 2
    assert difference_index(reply([4, 5, 6]), replace(short, is_cancelled=True)) is None


def test_a_reply_longer_than_the_one_alone_differs() -> None:
    assert difference_index(reply([4, 5], asked=case(3)), reply([4, 5, 6])) == 2


def test_an_error_is_a_difference_in_its_own_words() -> None:
    found = first_difference(Pair(reply([4]), replace(reply([]), failure="the device is gone")))
    assert found is not None
    assert found.what == "ended by an error: the device is gone"


def test_an_outcome_counts_the_rows_whose_logits_were_compared() -> None:
    seen = reply([4, 5, 6], marks=[1, 2, 3])
    assert judge("check", [Pair(seen, seen), Pair(seen, reply([4, 5, 6]))], seconds=1.0).rows_compared == 3


def outcome(verdict: Verdict) -> Outcome:
    return Outcome("check", verdict)


@pytest.mark.parametrize("verdict", [Verdict.DIFFERENT, Verdict.NOT_SHOWN])
def test_a_difference_and_a_thing_not_shown_are_failures(verdict: Verdict) -> None:
    assert outcome(verdict).is_failure


@pytest.mark.parametrize("verdict", [Verdict.EQUAL, Verdict.NOT_AVAILABLE])
def test_equal_and_not_available_are_no_failures(verdict: Verdict) -> None:
    assert not outcome(verdict).is_failure


def test_a_check_that_compared_nothing_has_shown_nothing() -> None:
    assert judge("check", [], seconds=1.0).verdict is Verdict.NOT_SHOWN


def test_what_a_check_failed_to_bring_about_is_its_note() -> None:
    equal = Pair(reply([4]), reply([4]))
    found = judge("check", [equal], seconds=1.0, note="two moves", missing="no move")
    assert (found.verdict, found.note) == (Verdict.NOT_SHOWN, "no move")


def test_a_difference_outweighs_what_was_not_shown() -> None:
    pair = Pair(reply([4]), reply([5]))
    assert judge("check", [pair], seconds=1.0, missing="no move").verdict is Verdict.DIFFERENT


def test_a_receipt_that_cannot_be_made_is_never_called_equal() -> None:
    found = not_available("lone driver", "there is none", receipt="5")
    assert (found.verdict, found.receipt, found.note) == (Verdict.NOT_AVAILABLE, "5", "there is none")


def test_a_replys_digest_is_over_token_ids_of_four_bytes() -> None:
    assert reply([]).sha256.startswith("e3b0c44298fc1c14")
    assert reply([1]).sha256 != reply([256]).sha256
