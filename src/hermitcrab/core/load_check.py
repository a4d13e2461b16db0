"""What the check at load found: the windows and the rounds that do not give a row the bits it has alone."""

from dataclasses import dataclass
from enum import StrEnum


class CheckState(StrEnum):
    """How the check at load ended."""

    PASSED = "passed"
    REDUCED = "parts switched off"
    NOT_RUN = "not run"


@dataclass(frozen=True, slots=True)
class LoadCheck:
    """The check's result.

    Ran at prompts of `prompt_tokens`, over windows of up to `window_rows` rows. Windows of `off_widths` rows
    are never run, and a round has one stream where `is_sharing_off`; `reasons` has a sentence for each of
    them. `unchecked` says what could not be checked with the sessions there are.
    """

    state: CheckState
    prompt_tokens: tuple[int, ...] = ()
    window_rows: int = 1
    off_widths: tuple[int, ...] = ()
    is_sharing_off: bool = False
    reasons: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def lines(self) -> tuple[str, ...]:
        """What an operator should read at the start."""
        if self.state is CheckState.NOT_RUN:
            return ("load check: not run", *self._unchecked_lines)
        lengths = " and ".join(str(tokens) for tokens in self.prompt_tokens)
        return (
            f"load check: {self.state}, at {lengths} tokens, in {self.seconds:.2f} s",
            *(f"load check: switched off: {reason}" for reason in self.reasons),
            *self._unchecked_lines,
        )

    @property
    def _unchecked_lines(self) -> tuple[str, ...]:
        return tuple(f"load check: not checked: {words}" for words in self.unchecked)


NOT_RUN = LoadCheck(CheckState.NOT_RUN)
