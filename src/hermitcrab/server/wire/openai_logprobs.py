"""Log probabilities in OpenAI's two shapes: chat's list of tokens, and completions' parallel lists."""

from collections.abc import Sequence
from typing import Any

from hermitcrab.sampling.logprobs import TokenLogprobs
from hermitcrab.server.text.marks import spelled
from hermitcrab.server.text.stream import TextStream
from hermitcrab.server.text.vocabulary import Vocabulary


def chat_logprobs(rows: Sequence[TokenLogprobs], vocabulary: Vocabulary) -> dict[str, Any]:
    """A choice's `logprobs`, whole or for a part of it: an item for each reply token, thinking included."""
    return {
        "content": [
            {
                **_named(row.token, row.logprob, vocabulary),
                "top_logprobs": [_named(token, logprob, vocabulary) for token, logprob in row.top],
            }
            for row in rows
        ],
        "refusal": None,
    }


def _named(token: int, logprob: float, vocabulary: Vocabulary) -> dict[str, Any]:
    spelling = vocabulary.spelling_of(token)
    return {
        "token": spelling.decode("utf-8", errors="replace"),
        "logprob": logprob,
        "bytes": list(spelling),
    }


class TextLogprobs:
    """One choice's `logprobs` of a plain completion, as its tokens come; offsets are those in its text."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        # stop strings hold text back, not tokens: offsets are those of the text without them
        self._text = TextStream(vocabulary)
        self._characters = 0

    def body(self, rows: Sequence[TokenLogprobs]) -> dict[str, Any]:
        """The parallel lists for the next tokens."""
        offsets = []
        for row in rows:
            offsets.append(self._characters)
            self._characters += len(spelled(self._text.push((row.token,))))
        return {
            "tokens": [self._name(row.token) for row in rows],
            "token_logprobs": [row.logprob for row in rows],
            "top_logprobs": [{self._name(token): logprob for token, logprob in row.top} for row in rows],
            "text_offset": offsets,
        }

    def _name(self, token: int) -> str:
        """The token's text; its bytes in hexadecimal, as OpenAI has it, where they are no text alone."""
        spelling = self._vocabulary.spelling_of(token)
        try:
            return spelling.decode("utf-8")
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in spelling)
