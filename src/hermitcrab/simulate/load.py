"""What arrives in a simulation: requests from a trace file, or drawn from a described load by a seed."""

import json
import random
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from hermitcrab.core.records import built
from hermitcrab.errors import TrailError


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request: when it comes, its prompt, the reply it will get, the most it asks for (None: no limit)."""

    arrival_s: float
    prompt_tokens: int
    reply_tokens: int
    max_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Lengths:
    """Token counts that are log-normal: half below `median`, two thirds within a factor of e**`spread`."""

    median: int
    spread: float
    most: int

    def draw(self, source: random.Random) -> int:
        """A count from 1 to `most`."""
        return max(1, min(self.most, round(self.median * source.lognormvariate(0.0, self.spread))))


@dataclass(frozen=True, slots=True)
class Kind:
    """Requests of one kind: their share of a load, lengths, and the reply limit that their clients send."""

    share: float
    prompt: Lengths
    reply: Lengths
    max_tokens: int | None


# not measured: chats are short and vary; agents send long prompts, ask for 64K as coding agents do and mostly
# write about 2K, a few of them much more
_CHATS = Kind(1.0, Lengths(700, 1.0, 16_000), Lengths(350, 0.8, 8_000), None)
_AGENTS = Kind(1.0, Lengths(14_000, 0.9, 180_000), Lengths(1_200, 1.1, 64_000), 64_000)

LOADS: dict[str, tuple[Kind, ...]] = {
    "chats": (_CHATS,),
    "agents": (_AGENTS,),
    "mixed": (
        Kind(0.75, _CHATS.prompt, _CHATS.reply, _CHATS.max_tokens),
        Kind(0.25, _AGENTS.prompt, _AGENTS.reply, _AGENTS.max_tokens),
    ),
}


def draw_load(name: str, *, count: int, per_minute: float, seed: int) -> tuple[Arrival, ...]:
    """`count` requests of a described load, independent of each other; the same seed, the same requests."""
    source, kinds, now_s = random.Random(seed), LOADS[name], 0.0
    arrivals = []
    for _ in range(count):
        now_s += source.expovariate(per_minute / 60)
        (kind,) = source.choices(kinds, [kind.share for kind in kinds])
        arrivals.append(Arrival(now_s, kind.prompt.draw(source), kind.reply.draw(source), kind.max_tokens))
    return tuple(arrivals)


def read_load(path: Path) -> tuple[Arrival, ...]:
    """A trace of JSON lines with the fields of `Arrival`, by time. Raises TrailError if it is none."""
    try:
        with path.open(encoding="utf-8") as lines:
            arrivals = tuple(_arrivals(path, lines))
    except OSError as error:
        raise TrailError(f"{path}: cannot be read: {error.strerror}") from error
    if not arrivals:
        raise TrailError(f"{path}: no requests in it.")
    return tuple(sorted(arrivals, key=lambda arrival: arrival.arrival_s))


def _arrivals(path: Path, lines: Iterable[str]) -> Iterable[Arrival]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            arrival: Arrival = built(Arrival, json.loads(line))
        except (TypeError, ValueError, AttributeError) as error:
            raise TrailError(
                f"{path}: line {number}: {error}. A line is like "
                '{"arrival_s": 1.5, "prompt_tokens": 900, "reply_tokens": 200}.'
            ) from error
        counts = (arrival.prompt_tokens, arrival.reply_tokens, arrival.max_tokens or 1)
        if arrival.arrival_s < 0 or min(counts) < 1:
            raise TrailError(f"{path}: line {number}: a time below 0, or a count below 1.")
        yield arrival
