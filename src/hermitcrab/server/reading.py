"""A chat reply's tokens to the pieces a client gets: reasoning, content, tool calls.

Streamed or not, a reply goes through one `ReplyReader`, so both say the same.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from hermitcrab.server.text.chat import ChatText
from hermitcrab.server.text.marks import THINK_CLOSE, THINK_OPEN, spelled
from hermitcrab.server.text.thinking import Reasoning, ThinkingSplit
from hermitcrab.server.tools.qwen_xml import Content, ToolCall, ToolCallSplit

Piece = Reasoning | Content | ToolCall


class ReplyReader:
    """Reads one reply. `parameters` has the offered functions' schemas by name."""

    def __init__(
        self,
        text: ChatText,
        *,
        stops: Iterable[str],
        is_thinking: bool,
        min_tokens: int = 0,
        parameters: Mapping[str, Mapping[str, Any]],
    ) -> None:
        self._vocabulary = text.vocabulary
        self._stream = text.reply_text(tuple(stops), min_tokens=min_tokens)
        self._thinking = ThinkingSplit(is_open=is_thinking)
        self._calls = ToolCallSplit(parameters)
        self._is_thinking = is_thinking
        self._reasoning_tokens = 0
        self._has_called = False

    @property
    def reasoning_tokens(self) -> int:
        """Tokens read so far that belong to thinking, its own marks included."""
        return self._reasoning_tokens

    @property
    def has_called(self) -> bool:
        """True once a tool call has been read."""
        return self._has_called

    @property
    def stopped_by(self) -> str | None:
        """The stop string that ended the reply, as the client spells it."""
        stop = self._stream.stopped_by
        return None if stop is None else spelled(stop)

    def push(self, tokens: Iterable[int]) -> list[Piece]:
        """Take reply tokens, in order."""
        taken = tuple(tokens)
        for token in taken:
            self._count(token)
        return self._sort(self._stream.push(taken))

    def finish(self) -> list[Piece]:
        """The reply has ended: the pieces that were held back."""
        return [*self._sort(self._stream.finish()), *self._note(self._calls.finish())]

    def _count(self, token: int) -> None:
        mark = self._vocabulary.mark_of(token)
        self._reasoning_tokens += self._is_thinking or mark == THINK_OPEN
        if mark in (THINK_OPEN, THINK_CLOSE):
            self._is_thinking = mark == THINK_OPEN

    def _sort(self, text: str) -> list[Piece]:
        pieces: list[Piece] = []
        for part in self._thinking.push(text):
            pieces += [part] if isinstance(part, Reasoning) else self._note(self._calls.push(part.text))
        return pieces

    def _note(self, pieces: list[Content | ToolCall]) -> list[Content | ToolCall]:
        self._has_called = self._has_called or any(isinstance(piece, ToolCall) for piece in pieces)
        return pieces
