"""Reply tokens to text as they come: characters held until whole, stop strings found and never shown.

The result does not depend on how the tokens were grouped. The same class runs twice for a reply: on the
engine thread as its stop watch, which only says when to end, and on the client's side, which shows the text.
"""

import codecs
from collections.abc import Iterable, Sequence

from hermitcrab.server.text.vocabulary import Vocabulary


class TextStream:
    """The text of one reply, marks included, up to the first stop string that completes.

    One that completes within the first `min_tokens` tokens does not count.
    """

    def __init__(self, vocabulary: Vocabulary, stops: Sequence[str] = (), *, min_tokens: int = 0) -> None:
        self._vocabulary = vocabulary
        self._stops = tuple(stops)
        self._min_tokens = min_tokens
        self._tokens = 0
        # how much of the held text came too early for a stop string to end in it
        self._early_characters = 0
        self._longest = max((len(stop) for stop in self._stops), default=0)
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._held = ""
        self._stopped_by: str | None = None

    @property
    def stopped_by(self) -> str | None:
        """The stop string that ended the text, marks included; None while none is complete."""
        return self._stopped_by

    @property
    def is_stopped(self) -> bool:
        """True once a stop string is complete; no text comes after it."""
        return self._stopped_by is not None

    def push(self, tokens: Iterable[int]) -> str:
        """Take reply tokens, in order; returns the text that is now certain to be shown."""
        return "".join(self._take_token(token) for token in tokens)

    def finish(self) -> str:
        """The reply has ended: returns what was held back, a broken character as U+FFFD."""
        shown = self._take(self._decoder.decode(b"", final=True))
        if not self.is_stopped:
            shown, self._held = shown + self._held, ""
        return shown

    def _take_token(self, token: int) -> str:
        self._tokens += 1
        shown = self._take(self._decode(token))
        if self._tokens <= self._min_tokens:
            self._early_characters = len(self._held)
        return shown

    def _decode(self, token: int) -> str:
        mark = self._vocabulary.mark_of(token)
        if mark is None:
            return self._decoder.decode(self._vocabulary.bytes_of(token))
        broken = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return broken + mark

    def _take(self, text: str) -> str:
        if self.is_stopped:
            return ""
        text = self._held + text
        found = self._first_stop(text) if self._tokens > self._min_tokens else None
        if found is not None:
            at, self._stopped_by = found
            self._held = ""
            return text[:at]
        certain = len(text) - self._undecided(text)
        self._held = text[certain:]
        self._early_characters = max(0, self._early_characters - certain)
        return text[:certain]

    def _first_stop(self, text: str) -> tuple[int, str] | None:
        """Where the stop string that completes first begins; of those that end together, the longest."""
        early = self._early_characters
        ends = [
            (at + len(stop), at, stop)
            for stop in self._stops
            if (at := text.find(stop, max(0, early - len(stop) + 1))) >= 0
        ]
        return min(ends)[1:] if ends else None

    def _undecided(self, text: str) -> int:
        """How many of the last characters may turn out to begin a stop string."""
        for length in range(min(len(text), self._longest - 1), 0, -1):
            tail = text[-length:]
            if any(stop.startswith(tail) for stop in self._stops):
                return length
        return 0


class TextStopWatch:
    """Tells the engine when a stop string is complete, by the same rule that cuts the shown text."""

    def __init__(self, vocabulary: Vocabulary, stops: Sequence[str], *, min_tokens: int = 0) -> None:
        self._stream = TextStream(vocabulary, stops, min_tokens=min_tokens)

    def push(self, token: int) -> bool:
        """Take the next reply token; True when a stop string is now complete."""
        self._stream.push((token,))
        return self._stream.is_stopped
