"""What drafting knows of one stream: its text's copies, and how its drafts have landed so far."""

from collections.abc import Sequence
from dataclasses import dataclass

from hermitcrab.drafting.copies import FIRST_COPY_TOKENS, CopyIndex, next_copy_tokens
from hermitcrab.drafting.rates import LandingRates

# before anything has landed or missed: measured on prose, lists and code, heads land about so often, and what
# follows eight tokens mostly follows them again
HEAD_PRIOR = 0.75
COPY_PRIOR = 0.85


@dataclass(slots=True)
class Guesses:
    """One stream's record; changed on the engine thread only."""

    copies: CopyIndex
    copy_rates: LandingRates
    head_rates: LandingRates
    copy_tokens: int = FIRST_COPY_TOKENS

    def note_copy(self, *, drafted: int, landed: int, is_alone: bool) -> None:
        """A window had so many copied tokens."""
        self.copy_rates.observe(drafted=drafted, landed=landed)
        self.copy_tokens = next_copy_tokens(
            self.copy_tokens, drafted=drafted, landed=landed, is_alone=is_alone
        )

    def note_head(self, *, drafted: int, landed: int) -> None:
        """A window had so many drafts of the head."""
        self.head_rates.observe(drafted=drafted, landed=landed)


class House:
    """How drafts land over all streams: what a new stream starts from."""

    def __init__(self, *, most_drafts: int) -> None:
        self.copy_rates = LandingRates(most_drafts, prior=COPY_PRIOR)
        self.head_rates = LandingRates(most_drafts, prior=HEAD_PRIOR)

    def open(self, text: Sequence[int]) -> Guesses:
        """The record of a stream whose prompt and first token are `text`."""
        return Guesses(CopyIndex(text), self.copy_rates.inherit(), self.head_rates.inherit())
