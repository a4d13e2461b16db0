"""The depths that give the most expected tokens a second for the round as a whole; 0 is a valid answer."""

from collections.abc import Sequence
from dataclasses import dataclass

from hermitcrab.drafting.costs import RoundCosts

# drafts must promise so much more than none, as costs are known to a few percent only. Shared rounds come in
# many shapes, each measured rarely, and the one that looks best is likely to owe it to a lucky measurement
_LEAST_RATIO_ALONE = 1.03
_LEAST_RATIO_SHARED = 1.1


@dataclass(frozen=True, slots=True)
class Option:
    """Drafts that one stream could have: what each adds on average, and whether the head makes them.

    The gains never rise, since a draft counts only if all before it land.
    """

    gains: tuple[float, ...] = ()
    is_head: bool = False


@dataclass(frozen=True, slots=True)
class Choice:
    """Drafts by stream, and the expected tokens a second of a round with them."""

    depths: tuple[int, ...]
    tokens_per_s: float


def choose_depths(options: Sequence[Option], costs: RoundCosts, *, spare_rows: int) -> Choice:
    """How many of its drafts each stream of a round gets, at most `spare_rows` together.

    Drafts are added in order of what they promise, over all streams, and the best of these rounds is taken:

        tokens a second = (streams + sum of gains) / (forward(rows, streams, widest) + draft(depth, heads))
    """
    streams = len(options)
    ranked = sorted(
        (-gain, place, index, option.is_head)
        for index, option in enumerate(options)
        for place, gain in enumerate(option.gains, start=1)
    )[:spare_rows]
    tokens, widest, depth, heads = float(streams), 1, 0, 0
    none = tokens / costs.forward_s(streams, streams, widest=1)
    best, taken = none * (_LEAST_RATIO_ALONE if streams == 1 else _LEAST_RATIO_SHARED), 0
    for count, (loss, place, _, is_head) in enumerate(ranked, start=1):
        tokens -= loss
        if is_head:
            depth = max(depth, place)
            heads += place == 1
        widest = max(widest, 1 + place)
        forward_s = costs.forward_s(streams + count, streams, widest=widest)
        pace = tokens / (forward_s + costs.draft_s(depth, heads))
        if pace > best:
            best, taken = pace, count
    depths = [0] * streams
    for _, place, index, _ in ranked[:taken]:
        depths[index] = place
    return Choice(tuple(depths), best if taken else none)
