"""What arrives in a simulation: requests from a trace file, or drawn from a described load by a seed."""

import json
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
    """A trace of JSON lines with the fields of `Arrival`, by time, or what came in by a server's trail.

    Raises TrailError for a file that is neither.
    """
    try:
        with path.open(encoding="utf-8") as lines:
            records = list(_records(path, lines))
    except OSError as error:
        raise TrailError(f"{path}: cannot be read: {error.strerror}") from error
    if records and "trail" in records[0].fields:
        try:
            arrivals = _from_trail(records)
        except (KeyError, TypeError, AttributeError) as error:
            raise TrailError(
                f"{path}: a trail of another version: {type(error).__name__}: {error}."
            ) from error
    else:
        arrivals = [_arrival(path, record) for record in records]
    if not arrivals:
        raise TrailError(f"{path}: no requests in it.")
    return tuple(sorted(arrivals, key=lambda arrival: arrival.arrival_s))


@dataclass(frozen=True, slots=True)
class _Record:
    """A line's number and what it says."""

    line: int
    fields: dict[str, Any]


def _records(path: Path, lines: Iterable[str]) -> Iterator[_Record]:
    """Lines that are not blank; one that breaks off at the end of a trail is left out."""
    is_trail, torn = False, None
    for number, line in enumerate(lines, start=1):
        if torn is not None:
            raise TrailError(f"{path}: line {torn} is no JSON object.")
        if not line.strip():
            continue
        try:
            fields = json.loads(line)
        except ValueError:
            fields = None
        if isinstance(fields, dict):
            is_trail = is_trail or "trail" in fields
            yield _Record(number, fields)
        else:
            torn = number
    if torn is not None and not is_trail:
        raise TrailError(f"{path}: line {torn} is no JSON object.")


def _arrival(path: Path, record: _Record) -> Arrival:
    try:
        arrival: Arrival = built(Arrival, record.fields)
    except (TypeError, ValueError) as error:
        raise TrailError(
            f"{path}: line {record.line}: {error}. A line is like "
            '{"arrival_s": 1.5, "prompt_tokens": 900, "reply_tokens": 200}.'
        ) from error
    counts = (arrival.prompt_tokens, arrival.reply_tokens, arrival.max_tokens or 1)
    if arrival.arrival_s < 0 or min(counts) < 1:
        raise TrailError(f"{path}: line {record.line}: a time below 0, or a count below 1.")
    return arrival


def _from_trail(records: Sequence[_Record]) -> list[Arrival]:
    """Requests that came to a token, with the replies they had; a later run of the server comes after."""
    arrivals: list[Arrival] = []
    came_in: dict[str, dict[str, Any]] = {}
    begun_us = passed_us = 0
    for record in records:
        fields = record.fields
        if "trail" in fields:
            passed_us += max((item["submitted_us"] for item in came_in.values()), default=begun_us) - begun_us
            begun_us, came_in = fields["at_us"], {}
        elif fields.get("act") == "submit":
            came_in[fields["request"]["id"]] = fields
        for item in fields.get("did", ()):
            if item.get("decided") == "Ended" and item["reply_tokens"]:
                asked = came_in[item["request_id"]]
                arrivals.append(
                    Arrival(
                        arrival_s=(passed_us + max(0, asked["submitted_us"] - begun_us)) / 1e6,
                        prompt_tokens=asked["request"]["prompt_tokens"],
                        reply_tokens=item["reply_tokens"],
                        max_tokens=asked["request"]["max_new_tokens"],
                    )
                )
    return arrivals
