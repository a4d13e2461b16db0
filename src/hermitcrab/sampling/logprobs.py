"""Log probabilities of a row's tokens: the log-softmax of its raw logits, before temperature and edits."""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """A reply token, its natural log probability, and the likeliest tokens in its place, best first."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


def token_logprobs(logits: Sequence[float], token: int, *, top: int) -> TokenLogprobs:
    """What a row says of `token` and of its `top` likeliest tokens, ties to the lower id, in float64."""
    highest = max(logits)
    norm = highest + math.log(sum(math.exp(logit - highest) for logit in logits))
    best = sorted(range(len(logits)), key=lambda other: (-logits[other], other))[:top]
    return TokenLogprobs(token, logits[token] - norm, tuple((other, logits[other] - norm) for other in best))
