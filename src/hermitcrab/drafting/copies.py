"""Drafts copied from the context: where the last tokens stood before, what followed them may follow again."""

from collections.abc import Sequence

# so many last tokens must have occurred before: fewer match by chance, more leave copies unseen for longer
GRAM_TOKENS = 8

# the first copy's length, and that of any copy after one that missed
FIRST_COPY_TOKENS = 7

# tokens that one `propose` takes into the index at most (about 2 ms), so that a long prompt stops no round
CATCH_UP_TOKENS = 4096


class CopyIndex:
    """A growing text, and where each run of GRAM_TOKENS tokens stood last in it; constant work a token."""

    def __init__(self, tokens: Sequence[int]) -> None:
        self._tokens = list(tokens)
        # hash of a run -> the place behind it; a collision is found by comparing
        self._places: dict[int, int] = {}
        self._indexed = GRAM_TOKENS - 1

    def extend(self, tokens: Sequence[int]) -> None:
        """Put tokens at the end."""
        self._tokens.extend(tokens)

    def propose(self, most_tokens: int) -> tuple[int, ...]:
        """What followed the text's last GRAM_TOKENS tokens where they stood last, up to `most_tokens` tokens.

        A copy that reaches the text's end goes on into itself, as a text with a period does. Nothing where
        the run is new.
        """
        self._catch_up()
        tokens, end = self._tokens, len(self._tokens)
        run = tokens[max(0, end - GRAM_TOKENS) :]
        place = self._places.get(hash(tuple(run)))
        if place is None or most_tokens < 1 or tokens[place - GRAM_TOKENS : place] != run:
            return ()
        copied = tokens[place : place + most_tokens]
        period = end - place
        while len(copied) < most_tokens:
            copied.append(copied[len(copied) - period])
        return tuple(copied)

    def _catch_up(self) -> None:
        """Index runs that end before the text's end: the last one must not find itself."""
        last = min(len(self._tokens) - 1, self._indexed + CATCH_UP_TOKENS)
        for end in range(self._indexed + 1, last + 1):
            self._places[hash(tuple(self._tokens[end - GRAM_TOKENS : end]))] = end
        self._indexed = max(self._indexed, last)


def next_copy_tokens(copy_tokens: int, *, all_landed: bool, is_alone: bool, most_tokens: int) -> int:
    """How long the next copy may be: doubled for a stream that runs alone while its copies land whole."""
    return min(2 * copy_tokens, most_tokens) if all_landed and is_alone else FIRST_COPY_TOKENS
