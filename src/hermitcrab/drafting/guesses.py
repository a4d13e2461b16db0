"""What drafting knows of one stream: its text's copies, and how its drafts have landed so far."""

from collections.abc import Sequence
from dataclasses import dataclass

from hermitcrab.drafting.copies import FIRST_COPY_TOKENS, CopyIndex, next_copy_tokens
from hermitcrab.drafting.rates import LandingRates

# before anything has landed or missed: high enough that drafts get a try, and soon forgotten
HEAD_PRIOR = 0.75
COPY_PRIOR = 0.9

# a stream without drafts tries its head again when so many rows wait for it, then twice as many, and so on:
# a try costs about what absorbing those rows does
FIRST_LOOK_ROWS = 8


@dataclass(slots=True)
class Guesses:
    """One stream's record; changed on the engine thread only."""

    copies: CopyIndex
    copy_rates: LandingRates
    head_rates: LandingRates
    most_drafts: int
    copy_tokens: int = FIRST_COPY_TOKENS
    look_rows: int = FIRST_LOOK_ROWS

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
        self.look_rows = FIRST_LOOK_ROWS if landed == drafted else self.look_rows

    def note_look(self) -> None:
        """The head is given a try although drafts are not thought to pay; the next one comes later."""
        self.look_rows *= 2


def open_guesses(text: Sequence[int], *, most_drafts: int) -> Guesses:
    """The record of a stream whose prompt and first token are `text`; it knows nothing of other streams."""
    return Guesses(
        CopyIndex(text),
        LandingRates(most_drafts, prior=COPY_PRIOR),
        LandingRates(most_drafts, prior=HEAD_PRIOR),
        most_drafts,
    )
