"""The drawing rule in plain floats: the truth that every kernel's draw is held against.

All arithmetic is float64. Candidates stand by (logit descending, id ascending); then, in this order:

    top-k   the first k stay (0: all)
    scale   x = (logit - highest logit) / temperature, so the first candidate's x is 0; weight = exp(x)
    top-p   a candidate stays while the sum of the weights before it, added in order, is below
            top_p * the sum of all weights added in order; so the crossing token stays (1: all)
    min-p   a candidate stays if its weight >= min_p (the first one's weight is 1)
    draw    the highest x + gumbel(seed, position, token), ties to the lower id

At temperature 0 the draw is the highest logit, ties to the lower id. Edits (edits.py) come before all of it.
"""

import math
from collections.abc import Sequence
from itertools import accumulate

from hermitcrab.errors import DeviceFailed
from hermitcrab.sampling.edits import Edits, edited
from hermitcrab.sampling.noise import gumbel, row_key
from hermitcrab.sampling.params import Sampling


def draw(logits: Sequence[float], position: int, sampling: Sampling, edits: Edits | None = None) -> int:
    """The token a row's logits give at `position`, where it will stand; a pure function of its arguments.

    A logit of minus infinity is never drawn.
    Raises DeviceFailed for logits that hold a NaN or have no finite maximum, before or after the edits: no
    token follows from them.
    """
    highest = _highest(logits, position)
    if edits is not None:
        if edits.forced is not None:
            return edits.forced
        logits = edited(logits, edits)
        highest = _highest(logits, position)
    if sampling.is_greedy:
        return min(token for token, logit in enumerate(logits) if logit == highest)
    ranked = _top_k(logits, sampling)
    return draw_ranked(ranked, [logits[token] for token in ranked], position, sampling)


def _highest(logits: Sequence[float], position: int) -> float:
    highest = max(logits)
    if not math.isfinite(highest) or any(math.isnan(logit) for logit in logits):
        raise DeviceFailed(f"the logits for position {position} have no highest finite value")
    return highest


def draw_ranked(tokens: Sequence[int], logits: Sequence[float], position: int, sampling: Sampling) -> int:
    """The draw among what top-k has left: tokens best first, each with its logit; for a sampled reply."""
    key = row_key(sampling.seed, position)

    def rank(place: int) -> tuple[float, int]:
        scaled = (logits[place] - logits[0]) / sampling.temperature
        return -(scaled + gumbel(key, tokens[place])), tokens[place]

    return tokens[min(_surviving(logits, sampling), key=rank)]


def candidates(logits: Sequence[float], sampling: Sampling) -> list[int]:
    """The ids that top-k, top-p and min-p leave, best first; never empty."""
    ranked = _top_k(logits, sampling)
    return [ranked[place] for place in _surviving([logits[token] for token in ranked], sampling)]


def _top_k(logits: Sequence[float], sampling: Sampling) -> list[int]:
    ranked = sorted(range(len(logits)), key=lambda token: (-logits[token], token))
    return ranked[: sampling.top_k] if sampling.top_k else ranked


def _surviving(logits: Sequence[float], sampling: Sampling) -> list[int]:
    """The places, in logits ranked best first, that top-p and min-p leave."""
    weights = [math.exp((logit - logits[0]) / sampling.temperature) for logit in logits]
    return [place for place in range(_nucleus(weights, sampling.top_p)) if weights[place] >= sampling.min_p]


def _nucleus(weights: Sequence[float], top_p: float) -> int:
    """How many of the weights, best first, top-p keeps; at least one."""
    if top_p == 1.0:
        return len(weights)
    sums = list(accumulate(weights))
    bound = top_p * sums[-1]
    return 1 + sum(1 for before in sums[:-1] if before < bound)
