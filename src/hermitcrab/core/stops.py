"""Where a reply ends: end-of-text ids, stop strings, a grammar, the most tokens. Each token is asked once."""

from collections.abc import Sequence
from dataclasses import dataclass

from hermitcrab.core.api import FinishReason, StopWatch


@dataclass(frozen=True, slots=True)
class StopRules:
    """What ends one reply. `token_rules` hear every token too, and say when no other may follow."""

    max_new_tokens: int
    eos_ids: frozenset[int]
    stop_watch: StopWatch | None
    token_rules: StopWatch | None = None


@dataclass(frozen=True, slots=True)
class Cut:
    """How many new tokens belong to the reply, how many its reader gets, and why it ends, if it does."""

    taken: int
    delivered: int
    reason: FinishReason | None


def cut(new_tokens: Sequence[int], *, reply_tokens: int, rules: StopRules) -> Cut:
    """Take new tokens up to the first one that ends a reply of `reply_tokens` so far.

    An end-of-text token is taken and not delivered; a token that completes a stop string is delivered.
    """
    for taken, token in enumerate(new_tokens, start=1):
        if token in rules.eos_ids:
            return Cut(taken, taken - 1, FinishReason.STOP)
        is_complete = rules.token_rules is not None and rules.token_rules.push(token)
        is_stopped = rules.stop_watch is not None and rules.stop_watch.push(token)
        if is_complete or is_stopped:
            return Cut(taken, taken, FinishReason.STOP)
        if reply_tokens + taken == rules.max_new_tokens:
            return Cut(taken, taken, FinishReason.LENGTH)
    return Cut(len(new_tokens), len(new_tokens), None)
