"""Reply tokens to text: whole characters, stop strings, no matter how the tokens come."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from hermitcrab.server.text.chat import ChatText
from hermitcrab.server.text.marks import THINK_CLOSE
from hermitcrab.server.text.stream import TextStopWatch, TextStream

CUTS = st.lists(st.integers(0, 40), max_size=6)
SMALL_TEXT = st.text(alphabet="ab<é日👋\n", max_size=24)


def pieces(text: ChatText, ids: Sequence[int], cuts: Sequence[int], stops: Sequence[str] = ()) -> list[str]:
    """What a stream shows when its tokens come in groups that end at `cuts`."""
    stream = text.reply_text(stops)
    borders = [0, *sorted(cut % (len(ids) + 1) for cut in cuts), len(ids)]
    shown = [stream.push(ids[start:end]) for start, end in pairwise(borders)]
    return [*shown, stream.finish()]


def cut_at_first_stop(whole: str, stops: Sequence[str]) -> str:
    """The text before the stop string that a reader, one character at a time, completes first."""
    for end in range(len(whole) + 1):
        ended = [stop for stop in stops if whole[:end].endswith(stop)]
        if ended:
            return whole[: end - max(map(len, ended))]
    return whole


@settings(deadline=None)
@given(ids=st.lists(st.integers(3, 399), max_size=30), cuts=CUTS)
def test_streamed_text_is_what_the_library_decodes_whole(
    text: ChatText, tokenizer: Tokenizer, ids: list[int], cuts: list[int]
) -> None:
    plain = [token for token in ids if text.vocabulary.mark_of(token) is None]
    assert "".join(pieces(text, plain, cuts)) == tokenizer.decode(plain)


@settings(deadline=None, max_examples=300)
@given(
    said=SMALL_TEXT,
    stops=st.lists(st.text(alphabet="ab<é", min_size=1, max_size=4), min_size=1, max_size=3),
    min_tokens=st.integers(0, 12),
    cut=st.integers(0, 40),
)
def test_a_stop_string_counts_from_the_fewest_tokens_on(
    text: ChatText, said: str, stops: list[str], min_tokens: int, cut: int
) -> None:
    ids = text.vocabulary.encode(said)
    early = len(text.reply_text(()).push(ids[:min_tokens]))
    ends = [end for end in range(early + 1, len(said) + 1) if said[:end].endswith(tuple(stops))]
    shown = said
    if ends:
        longest = max(len(stop) for stop in stops if said[: ends[0]].endswith(stop))
        shown = said[: ends[0] - longest]
    stream = text.reply_text(stops, min_tokens=min_tokens)
    at = cut % (len(ids) + 1)
    assert stream.push(ids[:at]) + stream.push(ids[at:]) + stream.finish() == shown
    watch = TextStopWatch(text.vocabulary, stops, min_tokens=min_tokens)
    assert any(watch.push(token) for token in ids) == bool(ends)


def test_text_that_was_held_early_and_shown_since_hides_no_later_stop_string(text: ChatText) -> None:
    early = text.vocabulary.encode("aba")
    stream = text.reply_text(["abab", "é"], min_tokens=len(early))
    assert stream.push([*early, *text.vocabulary.encode("d"), *text.vocabulary.encode("é")]) == "abad"
    assert stream.is_stopped


@settings(deadline=None)
@given(said=SMALL_TEXT, cuts=CUTS)
def test_no_piece_shows_half_a_character(text: ChatText, said: str, cuts: list[int]) -> None:
    ids = text.vocabulary.encode(said)
    assert "\ufffd" not in "".join(pieces(text, ids, cuts))


def test_a_character_cut_off_by_the_end_shows_as_a_replacement(text: ChatText) -> None:
    ids = text.vocabulary.encode("👋")
    assert len(ids) > 1
    assert pieces(text, ids[:-1], []) == ["", "\ufffd"]


@settings(deadline=None, max_examples=300)
@given(
    said=SMALL_TEXT,
    cuts=CUTS,
    stops=st.lists(st.text(alphabet="ab<é👋\n", min_size=1, max_size=4), min_size=1, max_size=3),
)
def test_a_stop_string_cuts_at_the_same_place_however_the_tokens_come(
    text: ChatText, said: str, cuts: list[int], stops: list[str]
) -> None:
    ids = text.vocabulary.encode(said)
    assert "".join(pieces(text, ids, cuts, stops)) == cut_at_first_stop(said, stops)


@settings(deadline=None, max_examples=200)
@given(said=SMALL_TEXT, stops=st.lists(st.text(alphabet="ab<é👋\n", min_size=1, max_size=4), min_size=1))
def test_nothing_shown_before_the_end_has_to_be_taken_back(
    text: ChatText, said: str, stops: list[str]
) -> None:
    final = cut_at_first_stop(said, stops)
    stream = text.reply_text(stops)
    shown = ""
    for token in text.vocabulary.encode(said):
        shown += stream.push((token,))
        assert final.startswith(shown)


@pytest.mark.parametrize("length", range(1, 13))
def test_a_stop_of_any_length_at_any_offset_is_cut_exactly(text: ChatText, length: int) -> None:
    stop = "stop it now!"[:length]
    for offset in range(16):
        said = "x" * offset + stop + " and more"
        assert "".join(pieces(text, text.vocabulary.encode(said), [], [stop])) == "x" * offset


@settings(deadline=None, max_examples=200)
@given(said=SMALL_TEXT, stops=st.lists(st.text(alphabet="ab<\n", min_size=1, max_size=4), min_size=1))
def test_the_stop_watch_fires_at_the_token_where_the_shown_text_ends(
    text: ChatText, said: str, stops: list[str]
) -> None:
    watch, stream = text.stop_watch(stops), text.reply_text(stops)
    assert watch is not None
    for token in text.vocabulary.encode(said):
        stream.push((token,))
        assert watch.push(token) == stream.is_stopped


def test_a_text_held_for_a_stop_that_does_not_come_is_released_at_the_end(text: ChatText) -> None:
    assert pieces(text, text.vocabulary.encode("done <en"), [], ["<end>"]) == ["done ", "<en"]


def test_without_stop_strings_there_is_nothing_for_the_engine_to_watch(text: ChatText) -> None:
    assert text.stop_watch(()) is None


def test_a_hidden_control_token_adds_nothing_to_the_text(text: ChatText) -> None:
    start = text.vocabulary.id_of("<|im_start|>")
    assert start is not None
    assert pieces(text, [start, *text.vocabulary.encode("hi")], []) == ["hi", ""]


def test_a_structural_token_is_a_mark_and_its_spelling_is_letters(text: ChatText) -> None:
    close = text.vocabulary.id_of("</think>")
    assert close is not None
    spelled_out = text.vocabulary.encode(text.vocabulary.broken("</think>"))
    assert close not in spelled_out
    assert "".join(pieces(text, [close, *spelled_out], [])) == THINK_CLOSE + "</think>"


def test_a_stop_string_that_spells_a_structural_token_stops_at_the_token(text: ChatText) -> None:
    assert "".join(pieces(text, text.vocabulary.encode("so</think>then"), [], ["</think>"])) == "so"


def test_an_id_without_a_token_adds_nothing(text: ChatText) -> None:
    assert pieces(text, [100_000], []) == ["", ""]


def test_a_stream_that_has_stopped_takes_no_more_text(text: ChatText) -> None:
    stream = TextStream(text.vocabulary, ("b",))
    assert stream.push(text.vocabulary.encode("ab")) == "a"
    assert stream.push(text.vocabulary.encode("ccc")) + stream.finish() == ""


def test_a_stop_watch_needs_one_token_at_a_time_only(text: ChatText) -> None:
    watch = TextStopWatch(text.vocabulary, ("yes",))
    assert [watch.push(token) for token in text.vocabulary.encode("o yes")][-1] is True
