"""A list of sessions that does better on a load in the same memory: a local search, bounded in tries.

From the list it is given, it tries a session more, one less, one halved or doubled, and one size traded for
another at the same bytes; the first list that is better becomes the start. It ends when no such step is
better, or when it has tried as many lists as it may. Better: fewer requests refused, then less time from a
request's arrival to its last token on average, which has waiting, reading and writing in it.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from hermitcrab.core.slot_list import MARGIN_ROWS
from hermitcrab.simulate.costs import Costs
from hermitcrab.simulate.outcome import Outcome

# sizes below it are not tried: their fixed state outweighs their rows
LEAST_TOKENS = 1024

# a gain below it is not worth another list
_LEAST_GAIN = 0.001


@dataclass(frozen=True, slots=True)
class Suggestion:
    """The best list found beside slot 0, how it did, and how many lists were tried."""

    listed: tuple[int, ...]
    outcome: Outcome
    tried: int


def suggest(
    start: Sequence[int],
    *,
    context_tokens: int,
    memory_bytes: int,
    session_limit: int,
    costs: Costs,
    tries: int,
    seed: int,
    simulate: Callable[[tuple[int, ...]], Outcome],
) -> Suggestion:
    """Search from `start`; what is returned is never worse, and fits `memory_bytes` with the whole window."""
    order = random.Random(seed)
    room_bytes = memory_bytes - costs.bytes_of(context_tokens + MARGIN_ROWS)
    best = tuple(sorted(start, reverse=True))
    seen, outcome = {best}, simulate(best)
    has_gained = True
    while has_gained and len(seen) < tries:
        has_gained = False
        steps = [
            listed
            for listed in dict.fromkeys(_steps(best, context_tokens, costs))
            if len(listed) < session_limit and _bytes(listed, costs) <= room_bytes
        ]
        order.shuffle(steps)
        for listed in steps:
            if listed in seen:
                continue
            if len(seen) >= tries:
                break
            seen.add(listed)
            other = simulate(listed)
            if is_better(other, outcome):
                best, outcome, has_gained = listed, other, True
                break
    return Suggestion(best, outcome, len(seen))


def is_better(other: Outcome, than: Outcome) -> bool:
    """True for fewer requests refused, or as many and whole replies that are sooner there on average."""
    if other.refused != than.refused:
        return other.refused < than.refused
    return other.total.mean_s < than.total.mean_s * (1 - _LEAST_GAIN)


def _steps(listed: tuple[int, ...], context_tokens: int, costs: Costs) -> Iterator[tuple[int, ...]]:
    """Lists one step away, each in falling order."""
    sizes = sorted(set(listed))
    # the window halved again and again, and what is next to the sizes there are
    near = {context_tokens >> halvings for halvings in range(context_tokens.bit_length())}
    near |= {size for tokens in sizes for size in (tokens // 2, tokens, tokens * 2)}
    near = {size for size in near if LEAST_TOKENS <= size <= context_tokens}
    for size in sorted(near):
        yield _with(listed, [], [size])
    for size in sizes:
        yield _with(listed, [size], [])
        for other in sorted(near - {size}):
            yield _with(listed, [size], [other])
            if other < size:
                # one for as many as its bytes hold, and as many for one
                count = _session_bytes(size, costs) // _session_bytes(other, costs)
                yield _with(listed, [size], [other] * count)
            else:
                count = -(-_session_bytes(other, costs) // _session_bytes(size, costs))
                if listed.count(size) >= count:
                    yield _with(listed, [size] * count, [other])


def _with(listed: tuple[int, ...], less: Sequence[int], more: Sequence[int]) -> tuple[int, ...]:
    left = list(listed)
    for tokens in less:
        left.remove(tokens)
    return tuple(sorted([*left, *more], reverse=True))


def _session_bytes(tokens: int, costs: Costs) -> int:
    return costs.bytes_of(tokens + MARGIN_ROWS)


def _bytes(listed: Sequence[int], costs: Costs) -> int:
    return sum(_session_bytes(tokens, costs) for tokens in listed)
