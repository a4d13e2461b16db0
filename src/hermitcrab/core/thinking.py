"""Thinking that ends: a budget of thinking tokens, and a guard against thinking that goes round in circles.

Both are functions of the reply's tokens alone, so a row of a window knows what must follow it.
"""

from dataclasses import dataclass, replace

# an exact cycle of at most so many tokens, over so many, is a loop that no reply comes back from by itself
LOOP_PERIOD_TOKENS = 8
LOOP_TOKENS = 256


@dataclass(frozen=True, slots=True)
class Thinking:
    """How a reply's thinking is marked, and how long it may be.

    `is_open` when the prompt leaves a thinking block open. `open_id` opens one, the first of `close_ids`
    closes it; the others follow where it is closed by force, and with `closes_whole` wherever it is closed.
    The `budget_tokens`-th token of thinking, marks included, is the closing one; 0 is as 1, None no budget.
    """

    is_open: bool
    open_id: int | None
    close_ids: tuple[int, ...]
    budget_tokens: int | None = None
    closes_whole: bool = False


@dataclass(frozen=True, slots=True)
class ThinkingState:
    """Where a reply stands in its thinking.

    `tokens` are thinking tokens so far. `recent` are the last of the open block, and `repeats[p - 1]` counts
    how many of them in a row equal the token p before. `owed` is what is left of a forced closing.
    """

    rules: Thinking
    is_open: bool
    tokens: int = 0
    recent: tuple[int, ...] = ()
    repeats: tuple[int, ...] = (0,) * LOOP_PERIOD_TOKENS
    has_broken_loop: bool = False
    owed: tuple[int, ...] = ()

    @property
    def forced(self) -> int | None:
        """The token that must come next, if one must."""
        if self.owed:
            return self.owed[0]
        return self.rules.close_ids[0] if self._must_close else None

    @property
    def is_quiet(self) -> bool:
        """True while the reply is not in its answer: thinking, or in the middle of a forced closing."""
        return self.is_open or bool(self.owed)

    def after(self, token: int) -> "ThinkingState":
        """The state behind one more reply token."""
        if self.owed:
            return replace(self, owed=self.owed[1:] if token == self.owed[0] else ())
        if not self.is_open:
            return (
                replace(self, is_open=True, tokens=self.tokens + 1) if token == self.rules.open_id else self
            )
        if token != self.rules.close_ids[0]:
            return self._thought(token)
        return ThinkingState(
            self.rules,
            is_open=False,
            tokens=self.tokens + 1,
            has_broken_loop=self.has_broken_loop or self._is_looping,
            owed=self.rules.close_ids[1:] if self._must_close or self.rules.closes_whole else (),
        )

    @property
    def _must_close(self) -> bool:
        budget = self.rules.budget_tokens
        return self.is_open and (self._is_looping or (budget is not None and self.tokens + 1 >= budget))

    @property
    def _is_looping(self) -> bool:
        return not self.has_broken_loop and any(
            count >= LOOP_TOKENS - period for period, count in enumerate(self.repeats, start=1)
        )

    def _thought(self, token: int) -> "ThinkingState":
        repeats = tuple(
            count + 1 if len(self.recent) >= period and self.recent[-period] == token else 0
            for period, count in enumerate(self.repeats, start=1)
        )
        recent = (*self.recent, token)[-LOOP_PERIOD_TOKENS:]
        return replace(self, tokens=self.tokens + 1, recent=recent, repeats=repeats)


def at_start(rules: Thinking) -> ThinkingState:
    """The state before the first reply token."""
    return ThinkingState(rules, is_open=rules.is_open)
