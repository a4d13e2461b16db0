"""Reasoning and answer apart, as the text comes.

The model may open its thinking itself or find it opened by the prompt. Thinking that is cut off stays
reasoning. The line breaks the template puts around a thinking block belong to neither side.
"""

import re
from dataclasses import dataclass

from hermitcrab.server.text.marks import THINK_CLOSE, THINK_OPEN, spelled

_BORDER = re.compile(f"[{THINK_OPEN}{THINK_CLOSE}]")


@dataclass(frozen=True, slots=True)
class Reasoning:
    """A piece of thinking, for the reader's eyes only."""

    text: str


@dataclass(frozen=True, slots=True)
class Answer:
    """A piece of the answer; tool marks may be in it."""

    text: str


class ThinkingSplit:
    """Sorts one reply's text into reasoning and answer; what they join to does not depend on how it came."""

    def __init__(self, *, is_open: bool) -> None:
        self._is_thinking = is_open
        self._at_border = is_open
        self._breaks = ""

    def push(self, text: str) -> list[Reasoning | Answer]:
        """Take the next text; returns pieces in order, none of them empty."""
        pieces: list[Reasoning | Answer] = []
        start = 0
        for match in _BORDER.finditer(text):
            pieces += self._piece(text[start : match.start()])
            pieces += self._cross(match.group())
            start = match.end()
        return pieces + self._piece(text[start:])

    def _cross(self, mark: str) -> list[Reasoning | Answer]:
        if (mark == THINK_OPEN) == self._is_thinking:
            # a mark that opens what is open, or closes nothing: the model's own words, shown as such
            return self._piece(spelled(mark))
        self._is_thinking = not self._is_thinking
        self._at_border, self._breaks = True, ""
        return []

    def _piece(self, text: str) -> list[Reasoning | Answer]:
        if self._at_border:
            text = text.lstrip("\n")
        if not text:
            return []
        self._at_border = False
        if not self._is_thinking:
            return [Answer(text)]
        text = self._breaks + text
        shown = text.rstrip("\n")
        self._breaks = text[len(shown) :]
        return [Reasoning(spelled(shown))] if shown else []
