"""Run the core again from a trail: the same comes in, the backend answers as it did, time is the same.

What the loop does is recorded as the trail was, and each line compared with the one in the file.
"""

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest

from hermitcrab import errors
from hermitcrab.core.api import Event, Request
from hermitcrab.core.backend import DraftRequest, Facts, PieceId, SlotId, StateKeeper, Verified, Window
from hermitcrab.core.lanes import LaneRules
from hermitcrab.core.recorder import FORMAT, Record, Recorder
from hermitcrab.core.recording import RecordedLoop
from hermitcrab.core.records import built, unpacked, unpacked_bytes
from hermitcrab.core.stream import Limits
from hermitcrab.errors import DeviceFailed, HermitcrabError, LaneError, TrailError
from hermitcrab.sampling.edits import Edits
from hermitcrab.sampling.logprobs import TokenLogprobs
from hermitcrab.sampling.params import Sampling


@dataclass(frozen=True, slots=True)
class Difference:
    """Where the core did something else than the trail says: the file's line, from 1, and both sides."""

    line: int
    act: str
    recorded: str
    replayed: str


@dataclass(frozen=True, slots=True)
class Replayed:
    """What became of a replay.

    `decisions` counts backend calls and decisions that were the same, `runs` the starts of a server in the
    file, `torn_lines` the lines that break off, each the last of its run.
    """

    runs: int
    decisions: int
    torn_lines: tuple[int, ...]
    difference: Difference | None


def replay(lines: Iterable[str]) -> Replayed:
    """Replay a trail up to the first difference.

    Raises TrailError for lines that are no trail, or one of another format.
    """
    run: _Run | None = None
    runs = decisions = 0
    torn: list[int] = []
    for number, record in _records(lines):
        if record is None:
            torn.append(number)
            run = None
        elif "trail" in record:
            runs += 1
            run = _Run(record, number)
        elif run is None:
            raise TrailError(f"line {number}: a trail starts with its facts and rules; this line is an act.")
        else:
            difference = run.play(record, number)
            if difference is not None:
                return Replayed(runs, decisions, tuple(torn), difference)
            decisions += len(record.get("did", ()))
    if not runs and not torn:
        raise TrailError("the file is empty: no trail.")
    return Replayed(runs, decisions, tuple(torn), None)


def _records(lines: Iterable[str]) -> Iterator[tuple[int, Record | None]]:
    """Lines with their numbers; None for one that breaks off, at the file's end or before a new run."""
    torn: int | None = None
    for number, line in enumerate(lines, start=1):
        record = _parsed(line)
        if torn is not None and (record is None or "trail" not in record):
            raise TrailError(f"line {torn}: not a line of a trail.")
        if torn is not None:
            yield torn, None
        torn = number if record is None else None
        if record is not None:
            yield number, record
    if torn is not None:
        yield torn, None


def _parsed(line: str) -> Record | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


class _Run:
    """One start of a server, lived again."""

    def __init__(self, header: Record, number: int) -> None:
        if header["trail"] != FORMAT:
            raise TrailError(
                f"line {number}: a trail of format {header['trail']}; this version reads format {FORMAT}."
            )
        self._line = _Line()
        self._written: list[Record] = []
        self._masks: dict[int, bytes] = {}
        with _readable(number):
            facts, rules = built(Facts, header["facts"]), built(LaneRules, header["rules"])
            self._line.take(header)
        self._recorder = Recorder(self, self._line)
        self._loop = RecordedLoop(_Answers(self._line, facts), rules, self._recorder, ())

    def write(self, line: str, /) -> None:
        """Take what the recorder writes."""
        self._written.append(json.loads(line))

    def play(self, record: Record, number: int) -> Difference | None:
        """Do what the line says came in, and compare what follows."""
        with _readable(number):
            act = self._act(record)
            self._line.take(record)
        self._written.clear()
        # what the core raises is in its line, and compared
        with suppress(Exception):
            act()
        self._recorder.flush()
        return _difference(record, self._written, number)

    def _act(self, record: Record) -> Callable[[], object]:
        """What the line says came in, ready to be done."""
        if "idle_us" in record:
            count = len(record["idle_us"])
            return lambda: [self._loop.step() for _ in range(count)]
        match record["act"]:
            case "step":
                return self._loop.step
            case "submit":
                return self._submission(record)
            case "cancel":
                return partial(self._loop.cancel, record["request_id"])
            case "drain":
                return partial(self._loop.drain, _error(record["error"]))
            case "end_all":
                return partial(self._loop.end_all, _error(record["error"]))
            case other:
                raise ValueError(f"there is no act {other!r}")

    def _submission(self, record: Record) -> Callable[[], object]:
        written = dict(record["request"])
        prompt = unpacked(written.pop("prompt"))
        if len(prompt) != written.pop("prompt_tokens"):
            raise ValueError("the prompt has another length than the line says")
        has_watch, has_grammar = written.pop("stop_watch"), written.pop("grammar")
        request: Request = built(Request, {**written, "prompt": []})
        request = replace(
            request,
            prompt=prompt,
            stop_watch=_Watch(self._line, request.id) if has_watch else None,
            grammar=_Grammar(self._line, request.id, self._masks) if has_grammar else None,
        )
        return partial(
            self._loop.enqueue,
            request,
            built(Limits, record["limits"]),
            _Ear(self._line, request.id),
            submitted_s=record["submitted_us"] / 1e6,
        )


class _Line:
    """The line that is being lived again: its moments, its calls' answers, what its watches and sinks did."""

    def __init__(self) -> None:
        self._moments_us: deque[int] = deque()
        self._now_us = 0
        self._calls: deque[Record] = deque()
        self._others: list[Record] = []

    def take(self, record: Record) -> None:
        """Begin a line."""
        did = record.get("did", ())
        self._calls = deque(item for item in did if "call" in item)
        self._others = [item for item in did if "watch" in item or "sink" in item or "grammar" in item]
        if "idle_us" in record:
            self._moments_us = deque(int(moment) for moment in record["idle_us"])
            return
        moments_us = [int(record["at_us"])]
        for call in self._calls:
            moments_us.append(moments_us[-1] + int(call["after_us"]))
            moments_us.append(moments_us[-1] + int(call["took_us"]))
        self._moments_us = deque(moments_us)

    def now_s(self) -> float:
        """The next moment; the last one again where there are no more, which the comparison will show."""
        if self._moments_us:
            self._now_us = self._moments_us.popleft()
        return self._now_us / 1e6

    def unix_s(self) -> int:
        return int(self.now_s())

    def answer(self, call: str) -> Record:
        """The recorded answer to the next call, which must be one of that name."""
        if not self._calls or self._calls[0]["call"] != call:
            raise DeviceFailed(f"the trail has no {call} here")
        record = self._calls.popleft()
        failed = record.get("failed")
        if failed is not None:
            raise _error(failed)
        return record

    def other(self, kind: str, request_id: str, count_name: str, count: int) -> Record | None:
        """What a request's watch or sink did at its `count`-th call, if that is in the line."""
        for item in self._others:
            if item.get(kind) == request_id and item.get(count_name) == count:
                return item
        return None


class _Answers:
    """A backend that answers as the one of the trail did."""

    def __init__(self, line: _Line, facts: Facts) -> None:
        self._line = line
        self._facts = facts

    def facts(self) -> Facts:
        return self._facts

    def prefill(self, slot: SlotId, position: int, tokens: Sequence[int]) -> None:
        self._line.answer("prefill")

    def draw_first(self, slot: SlotId, position: int, sampling: Sampling, edits: Edits | None = None) -> int:
        return int(self._line.answer("draw_first")["drawn"])

    def first_logprobs(self, slot: SlotId, token: int, top: int) -> TokenLogprobs:
        self._line.answer("first_logprobs")
        return _unknown(token)

    def verify(self, windows: Sequence[Window]) -> list[Verified]:
        asked = [window.top_logprobs is not None for window in windows]
        return [
            Verified(tuple(drawn), tuple(_unknown(token) for token in drawn) if has_logprobs else ())
            for drawn, has_logprobs in zip(self._line.answer("verify")["drawn"], asked, strict=False)
        ]

    def keep(self, slot: SlotId, rows: int) -> None:
        self._line.answer("keep")

    def draft(self, requests: Sequence[DraftRequest]) -> list[tuple[int, ...]]:
        return [tuple(tokens) for tokens in self._line.answer("draft")["drafts"]]

    def move(self, source: SlotId, target: SlotId) -> None:
        self._line.answer("move")

    def release(self, slot: SlotId) -> None:
        self._line.answer("release")

    def keeper(self) -> StateKeeper | None:
        return None if self._facts.piece_costs is None else self

    def save_rows(self, slot: SlotId, piece: PieceId, start: int) -> None:
        self._line.answer("save_rows")

    def save_end(self, slot: SlotId, piece: PieceId) -> None:
        self._line.answer("save_end")

    def restore(self, slot: SlotId, rows: Sequence[PieceId], end: PieceId) -> None:
        self._line.answer("restore")

    def drop(self, piece: PieceId) -> None:
        self._line.answer("drop")


class _Watch:
    """A stop watch that says what the one of the trail said."""

    def __init__(self, line: _Line, request_id: str) -> None:
        self._line = line
        self._request_id = request_id
        self._pushes = 0

    def push(self, token: int) -> bool:
        self._pushes += 1
        said = self._line.other("watch", self._request_id, "push", self._pushes)
        if said is not None and "failed" in said:
            raise _error(said["failed"])
        return said is not None


class _Grammar:
    """A grammar that allows what the one of the trail allowed."""

    def __init__(self, line: _Line, request_id: str, masks: dict[int, bytes]) -> None:
        self._line = line
        self._request_id = request_id
        self._masks = masks
        self._asked = 0
        self._advanced = 0

    def allowed(self, ahead: Sequence[int]) -> bytes | None:
        self._asked += 1
        said = self._line.other("grammar", self._request_id, "asked", self._asked)
        if said is None:
            raise HermitcrabError("the trail has no such question to the grammar here")
        if "failed" in said:
            raise _error(said["failed"])
        if "bits" in said:
            self._masks[said["mask"]] = unpacked_bytes(said["bits"])
        return None if said["mask"] is None else self._masks[said["mask"]]

    def advance(self, token: int) -> None:
        self._advanced += 1
        said = self._line.other("grammar", self._request_id, "advanced", self._advanced)
        if said is not None:
            raise _error(said["failed"])


class _Ear:
    """A sink that fails where the one of the trail did."""

    def __init__(self, line: _Line, request_id: str) -> None:
        self._line = line
        self._request_id = request_id
        self._puts = 0

    def put(self, event: Event) -> None:
        self._puts += 1
        said = self._line.other("sink", self._request_id, "put", self._puts)
        if said is not None:
            raise _error(said["failed"])


@contextmanager
def _readable(number: int) -> Iterator[None]:
    """A line that cannot be understood is a `TrailError`."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise TrailError(
            f"line {number}: cannot be read, perhaps it is another version's: {type(error).__name__}: {error}"
        ) from error


def _unknown(token: int) -> TokenLogprobs:
    """Log probabilities decide nothing, so a trail has none."""
    return TokenLogprobs(token, 0.0)


def _error(written: Record) -> HermitcrabError:
    """An error that came in, or was an answer: ours by its class, any other by its name."""
    name = str(written["error"])
    kind = getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, LaneError):
        return kind(written["says"])
    error: HermitcrabError = type(name, (HermitcrabError,), {})(written["says"])
    return error


def _difference(recorded: Record, replayed: list[Record], number: int) -> Difference | None:
    """The first thing that a line has and its replay has not, or has otherwise."""
    if replayed == [recorded]:
        return None
    act = f"{recorded.get('act', 'idle steps')}"
    # idle steps that did something come in more than one line
    done = [item for line in replayed for item in line.get("did", ())]
    for one, other in zip_longest(recorded.get("did", ()), done):
        if one != other:
            return Difference(number, act, _shown(one), _shown(other))
    heads = [{name: item for name, item in line.items() if name != "did"} for line in (recorded, *replayed)]
    return Difference(number, act, _shown(heads[0]), ", ".join(_shown(head) for head in heads[1:]))


def _shown(item: Record | None) -> str:
    return "nothing" if item is None else json.dumps(item, separators=(", ", ": "))
