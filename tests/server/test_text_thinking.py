"""Reasoning and answer come apart the same way however the text comes."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from hermitcrab.server.text.marks import THINK_CLOSE, THINK_OPEN
from hermitcrab.server.text.thinking import Answer, Reasoning, ThinkingSplit


def split(parts: Sequence[str], *, is_open: bool) -> tuple[str, str]:
    """Reasoning and answer of a text that comes in parts."""
    sorter = ThinkingSplit(is_open=is_open)
    pieces = [piece for part in parts for piece in sorter.push(part)]
    assert all(piece.text for piece in pieces)
    return (
        "".join(piece.text for piece in pieces if isinstance(piece, Reasoning)),
        "".join(piece.text for piece in pieces if isinstance(piece, Answer)),
    )


def test_thinking_opened_by_the_prompt_ends_at_the_mark() -> None:
    assert split([f"hm\n{THINK_CLOSE}\n\nyes"], is_open=True) == ("hm", "yes")


def test_thinking_opened_by_the_reply_is_reasoning_too() -> None:
    assert split([f"{THINK_OPEN}\nhm\n{THINK_CLOSE}\n\nyes"], is_open=False) == ("hm", "yes")


def test_cut_off_thinking_stays_reasoning() -> None:
    assert split(["I was about"], is_open=True) == ("I was about", "")


def test_line_breaks_inside_thinking_are_kept() -> None:
    assert split([f"\na\n\nb\n{THINK_CLOSE}c\n"], is_open=True) == ("a\n\nb", "c\n")


def test_a_reply_without_thinking_is_answer_to_the_letter() -> None:
    assert split(["\n\n yes\n"], is_open=False) == ("", "\n\n yes\n")


def test_a_mark_that_closes_nothing_is_shown_as_written() -> None:
    assert split([f"a{THINK_CLOSE}b"], is_open=False) == ("", "a</think>b")


def test_a_mark_that_opens_what_is_open_is_shown_as_written() -> None:
    assert split([f"a{THINK_OPEN}b{THINK_CLOSE}c"], is_open=True) == ("a<think>b", "c")


@given(
    text=st.text(alphabet=["a", "\n", " ", THINK_OPEN, THINK_CLOSE], max_size=20),
    cut=st.integers(0, 20),
    is_open=st.booleans(),
)
def test_the_parts_it_comes_in_do_not_matter(text: str, cut: int, is_open: bool) -> None:
    assert split([text[:cut], text[cut:]], is_open=is_open) == split([text], is_open=is_open)
    assert split(list(text), is_open=is_open) == split([text], is_open=is_open)
