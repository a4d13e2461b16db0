"""The prefixes of a prompt by name: a chain of digests, one at each multiple of the grid.

Two prompts with the same digest at a length have the same tokens up to there: each digest is of the one
before it and of the tokens since, and is long enough that nobody can make two texts meet.
"""

import hashlib
import sys
from array import array
from collections.abc import Sequence

_DIGEST_BYTES = 32


class PromptChain:
    """The digests of one prompt's prefixes, as long as whole steps of the grid reach."""

    __slots__ = ("_digests", "_grid_rows")

    def __init__(self, prompt: Sequence[int], *, grid_rows: int) -> None:
        tokens = array("I", prompt)
        if sys.byteorder == "big":
            tokens.byteswap()
        content, step = tokens.tobytes(), grid_rows * tokens.itemsize
        self._grid_rows = grid_rows
        self._digests = [b""]
        for start in range(0, len(content) - step + 1, step):
            piece = self._digests[-1] + content[start : start + step]
            self._digests.append(hashlib.blake2b(piece, digest_size=_DIGEST_BYTES).digest())

    def digest(self, rows: int) -> bytes:
        """The name of the first `rows` tokens, a multiple of the grid."""
        return self._digests[rows // self._grid_rows]

    def shares(self, other: "PromptChain", rows: int) -> bool:
        """True if both prompts have the same first `rows` tokens, a multiple of the grid."""
        place = rows // self._grid_rows
        return (
            place < len(self._digests)
            and place < len(other._digests)
            and self._digests[place] == other._digests[place]
        )

    def prefixes(self, most_rows: int) -> list[tuple[int, bytes]]:
        """Lengths and digests of all prefixes up to `most_rows` but the empty one, the longest first."""
        last = min(most_rows // self._grid_rows, len(self._digests) - 1)
        return [(place * self._grid_rows, self._digests[place]) for place in range(last, 0, -1)]
