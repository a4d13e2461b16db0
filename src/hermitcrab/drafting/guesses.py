"""What drafting knows of one stream: its text's copies, and how its drafts have landed so far."""

from collections.abc import Sequence
from dataclasses import dataclass

from hermitcrab.drafting.copies import FIRST_COPY_TOKENS, CopyIndex, next_copy_tokens
from hermitcrab.drafting.rates import LandingRates

# before anything has landed or missed: high enough that drafts get a try, and soon forgotten
HEAD_PRIOR = 0.75
COPY_PRIOR = 0.9


@dataclass(slots=True)
class Guesses:
    """One stream's record; changed on the engine thread only."""

    copies: CopyIndex
    copy_rates: LandingRates
    head_rates: LandingRates
    most_drafts: int
    copy_tokens: int = FIRST_COPY_TOKENS

    def note_copy(self, *, drafted: int, landed: int, is_alone: bool) -> None:
        """A window had so many copied tokens."""
        self.copy_rates.observe(drafted=drafted, landed=landed)
        self.copy_tokens = next_copy_tokens(
            self.copy_tokens,
            all_landed=landed == drafted,
            is_alone=is_alone,
            most_tokens=self.most_drafts,
        )

    def note_head(self, *, drafted: int, landed: int) -> None:
        """A window had so many drafts of the head."""
        self.head_rates.observe(drafted=drafted, landed=landed)


class House:
    """How drafts land over all streams: what a new stream starts from."""

    def __init__(self, *, most_drafts: int) -> None:
        self._most_drafts = most_drafts
        self.copy_rates = LandingRates(most_drafts, prior=COPY_PRIOR)
        self.head_rates = LandingRates(most_drafts, prior=HEAD_PRIOR)

    def open(self, text: Sequence[int]) -> Guesses:
        """The record of a stream whose prompt and first token are `text`."""
        return Guesses(
            CopyIndex(text), self.copy_rates.inherit(), self.head_rates.inherit(), self._most_drafts
        )
