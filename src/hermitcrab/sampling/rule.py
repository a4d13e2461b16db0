"""The drawing rule in plain floats: the truth that every kernel's draw is held against.

All arithmetic is float64. Candidates stand by (logit descending, id ascending); then, in this order:

    top-k   the first k stay (0: all)
    scale   x = (logit - highest logit) / temperature, so the first candidate's x is 0; weight = exp(x)
    top-p   a candidate stays while the sum of the weights before it, added in order, is below
            top_p * the sum of all weights added in order; so the crossing token stays (1: all)
    min-p   a candidate stays if its weight >= min_p (the first one's weight is 1)
    draw    the highest x + gumbel(seed, position, token), ties to the lower id

At temperature 0 the draw is the highest logit, ties to the lower id.
"""

import math
from collections.abc import Sequence
from itertools import accumulate

from hermitcrab.errors import DeviceFailed
from hermitcrab.sampling.noise import gumbel, row_key
from hermitcrab.sampling.params import Sampling


def draw(logits: Sequence[float], position: int, sampling: Sampling) -> int:
    """The token a row's logits give at `position`, where it will stand; a pure function of its arguments.

    A logit of minus infinity is never drawn.
    Raises DeviceFailed for logits that hold a NaN or have no finite maximum: no token follows from them.
    """
    highest = max(logits)
    if not math.isfinite(highest) or any(math.isnan(logit) for logit in logits):
        raise DeviceFailed(f"the logits for position {position} have no highest finite value")
    if sampling.is_greedy:
        return min(token for token, logit in enumerate(logits) if logit == highest)
    key = row_key(sampling.seed, position)
    ranked = candidates(logits, sampling)
    return min(ranked, key=lambda token: (-_noisy(logits[token], highest, token, key, sampling), token))


def candidates(logits: Sequence[float], sampling: Sampling) -> list[int]:
    """The ids that top-k, top-p and min-p leave, best first; never empty."""
    ranked = sorted(range(len(logits)), key=lambda token: (-logits[token], token))
    if sampling.top_k:
        ranked = ranked[: sampling.top_k]
    highest = logits[ranked[0]]
    weights = [math.exp((logits[token] - highest) / sampling.temperature) for token in ranked]
    return [
        token
        for token, weight in zip(ranked[: _nucleus(weights, sampling.top_p)], weights, strict=False)
        if weight >= sampling.min_p
    ]


def _nucleus(weights: Sequence[float], top_p: float) -> int:
    """How many of the weights, best first, top-p keeps; at least one."""
    if top_p == 1.0:
        return len(weights)
    sums = list(accumulate(weights))
    bound = top_p * sums[-1]
    return 1 + sum(1 for before in sums[:-1] if before < bound)


def _noisy(logit: float, highest: float, token: int, key: int, sampling: Sampling) -> float:
    return (logit - highest) / sampling.temperature + gumbel(key, token)
