"""What a grammar tells the lanes: which tokens may come next, on every row of a window."""

from collections.abc import Sequence
from typing import Protocol


class GrammarRules(Protocol):
    """One reply's grammar and how far the reply has come in it; owned by the engine thread once submitted.

    Nothing is ever rolled back: what stands is told by `advance`, and drafts, which may not stand, are walked
    from there each time by `allowed`.
    """

    def allowed(self, ahead: Sequence[int]) -> bytes | None:
        """The tokens that may follow the reply so far and then `ahead`, as bits by `sampling.edits.mask_of`.

        End-of-text tokens are among them where the text may end. None where nothing may follow: `ahead` is
        not in the grammar, or the text is complete and the grammar has no end-of-text token.
        """
        ...

    def advance(self, token: int) -> None:
        """Take in the next token of the reply, one that `allowed` had; never an end-of-text token."""
        ...
