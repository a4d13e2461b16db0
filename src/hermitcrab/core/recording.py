"""A host loop that writes down all that came in and all that it did: the trail, one JSON line an act.

An *act* is one call into the loop: a submission, a cancel, a step, a drain, an end of all. Its line has what
came in, and under `did` each backend call with its answer and each decision, in order. The core is a function
of what came in, of the answers it got and of the clock, so the file is enough to run it again (replay.py).

Time in the loop stands still but for the start of an act, and the start and the end of a backend call. These
moments are in the lines, in whole microseconds, and so a replay sees the very times that the core saw.

Nothing that goes wrong with the trail reaches the loop: it is given up with one log line.
"""

import errno
import hashlib
import json
import logging
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import hermitcrab
from hermitcrab.clock import Clock
from hermitcrab.core.api import Event, Request, Sink, StopWatch
from hermitcrab.core.backend import (
    Backend,
    DraftRequest,
    Facts,
    PieceId,
    SlotId,
    StateKeeper,
    Verified,
    Window,
)
from hermitcrab.core.grammar import GrammarRules
from hermitcrab.core.lanes import LaneRules
from hermitcrab.core.loop import HostLoop
from hermitcrab.core.records import packed, packed_bytes, plain
from hermitcrab.core.stream import Limits
from hermitcrab.core.trail import Decision, Tracer
from hermitcrab.errors import HermitcrabError, SettingError
from hermitcrab.sampling.edits import Edits
from hermitcrab.sampling.logprobs import TokenLogprobs
from hermitcrab.sampling.params import Sampling

logger = logging.getLogger(__name__)

FORMAT = 1

# idle steps are gathered into lines of so many
MOST_IDLE = 500

Record = dict[str, Any]


class LineFile(Protocol):
    """Where lines go."""

    def write(self, line: str, /) -> object:
        """Take a line with its end."""
        ...


class TrailFile:
    """A file that trails are added to, each line in one write; open as long as the process."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, line: str, /) -> None:
        content = line.encode("ascii")
        if os.write(self._descriptor, content) != len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def open_trail(path: Path) -> TrailFile:
    """The file to add a trail to, readable by its owner only: it holds prompts and replies as token ids.

    Raises SettingError if it cannot be opened.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
    except OSError as error:
        raise SettingError(f"--trail {path}: cannot be written: {error.strerror}") from error
    file = TrailFile(descriptor)
    status = os.fstat(descriptor)
    # a run that was killed may have left half a line
    has_lines = stat.S_ISREG(status.st_mode) and status.st_size
    if has_lines and os.pread(descriptor, 1, status.st_size - 1) != b"\n":
        file.write("\n")
    return file


class Recorder:
    """Gathers what an act did and writes its line; keeps the loop's time. One for each loop."""

    def __init__(self, file: LineFile, clock: Clock) -> None:
        self._file: LineFile | None = file
        self._clock = clock
        self._now_us = 0
        self._did: list[Record] | None = None
        self._idle_us: list[int] = []
        self._masks: dict[bytes, int] = {}

    @property
    def now_us(self) -> int:
        """The loop's time."""
        return self._now_us

    def tick(self) -> int:
        """Let the loop's time catch up with the clock; returns by how much."""
        before_us, self._now_us = self._now_us, round(self._clock.now_s() * 1e6)
        return self._now_us - before_us

    def begin(self, facts: Facts, rules: LaneRules) -> None:
        """Write the line that starts a run."""
        self.tick()
        self._write(
            lambda: {
                "trail": FORMAT,
                "version": hermitcrab.__version__,
                "at_us": self._now_us,
                "facts": plain(facts),
                "rules": plain(rules),
            }
        )

    @contextmanager
    def act(self, name: str, **came_in: object) -> Iterator[Record]:
        """One call into the loop; `is_idle` set in the record marks a step that found nothing to do."""
        self.tick()
        record: Record = {"act": name, "at_us": self._now_us}
        self._did = did = []
        try:
            yield record
        except Exception as error:
            record["raised"] = type(error).__name__
            raise
        finally:
            self._did = None
            if record.pop("is_idle", False) and not did:
                self._count_idle(record["at_us"])
            else:
                self.flush()
                self._write(lambda: {**record, **_written(came_in), "did": did})

    @contextmanager
    def call(self, name: str, **asked: object) -> Iterator[Record]:
        """One backend call; its answer goes into the record."""
        record: Record = {"call": name, "after_us": self.tick()}
        try:
            yield record
        except Exception as error:
            record["failed"] = plain(error)
            raise
        finally:
            record["took_us"] = self.tick()
            self.add({**record, **asked})

    def note(self, decision: Decision) -> None:
        """Write a decision down with the act it was taken in."""
        self.add({"decided": type(decision).__name__, **plain(decision)})

    def add(self, record: Record) -> None:
        """Add to what the act did; outside of one there is nothing to replay."""
        if self._did is not None:
            self._did.append(record)

    def named(self, mask: bytes | None) -> Record:
        """A mask by its number, with its bits the first time."""
        if mask is None:
            return {"mask": None}
        name = hashlib.sha256(mask).digest()
        if name in self._masks:
            return {"mask": self._masks[name]}
        self._masks[name] = len(self._masks)
        return {"mask": self._masks[name], "bits": packed_bytes(mask)}

    def flush(self) -> None:
        """Write idle steps that were held back."""
        idle_us, self._idle_us = self._idle_us, []
        if idle_us:
            self._write(lambda: {"idle_us": idle_us})

    def _count_idle(self, at_us: int) -> None:
        self._idle_us.append(at_us)
        if len(self._idle_us) == MOST_IDLE:
            self.flush()

    def _write(self, make: Any) -> None:
        if self._file is None:
            return
        try:
            self._file.write(json.dumps(make(), separators=(",", ":")) + "\n")
        except Exception as error:  # noqa: BLE001 - a full disk must not end anyone's reply
            self._file = None
            self._warn(error)

    def _warn(self, error: Exception) -> None:
        try:
            logger.warning("the trail cannot be written and ends here: %s", error)
        except Exception:  # noqa: BLE001 - nor may the log, when both share the disk
            return


class RecordedLoop(HostLoop):
    """Runs as `HostLoop` does, and has it all written down."""

    def __init__(
        self,
        backend: Backend,
        rules: LaneRules,
        recorder: Recorder,
        tracers: Sequence[Tracer],
    ) -> None:
        self._recorder = recorder
        recorder.begin(backend.facts(), rules)
        super().__init__(
            RecordedBackend(backend, recorder), rules, RecordedClock(recorder), (*tracers, recorder)
        )

    def submit(self, request: Request, sink: Sink) -> None:
        # its time of submission is now, not that of the last act
        self._recorder.tick()
        super().submit(request, sink)

    def enqueue(self, request: Request, limits: Limits, sink: Sink, *, submitted_s: float) -> None:
        submitted_us = round(submitted_s * 1e6)
        with self._recorder.act("submit", request=request, limits=limits, submitted_us=submitted_us):
            super().enqueue(
                self._heard(request),
                limits,
                RecordedSink(sink, request.id, self._recorder),
                submitted_s=submitted_us / 1e6,
            )

    def cancel(self, request_id: str) -> None:
        with self._recorder.act("cancel", request_id=request_id):
            super().cancel(request_id)

    def drain(self, error: HermitcrabError) -> None:
        with self._recorder.act("drain", error=error):
            super().drain(error)

    def end_all(self, error: HermitcrabError) -> None:
        with self._recorder.act("end_all", error=error):
            super().end_all(error)

    def step(self) -> bool:
        with self._recorder.act("step") as record:
            has_worked = super().step()
            record["is_idle"] = not has_worked
        return has_worked

    def _heard(self, request: Request) -> Request:
        """The request with what it has the core ask written down."""
        watch, grammar = request.stop_watch, request.grammar
        if watch is not None:
            watch = RecordedWatch(watch, request.id, self._recorder)
        if grammar is not None:
            grammar = RecordedGrammar(grammar, request.id, self._recorder)
        return replace(request, stop_watch=watch, grammar=grammar)


class RecordedClock:
    """The loop's time."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def now_s(self) -> float:
        return self._recorder.now_us / 1e6

    def unix_s(self) -> int:
        return int(self.now_s())


class RecordedWatch:
    """A stop watch; the push that ends the reply is written down."""

    def __init__(self, watch: StopWatch, request_id: str, recorder: Recorder) -> None:
        self._watch = watch
        self._request_id = request_id
        self._recorder = recorder
        self._pushes = 0

    def push(self, token: int) -> bool:
        self._pushes += 1
        try:
            is_complete = self._watch.push(token)
        except Exception as error:
            self._recorder.add({"watch": self._request_id, "push": self._pushes, "failed": plain(error)})
            raise
        if is_complete:
            self._recorder.add({"watch": self._request_id, "push": self._pushes})
        return is_complete


class RecordedGrammar:
    """A grammar; each answer is written down, a mask in full the first time it is given."""

    def __init__(self, grammar: GrammarRules, request_id: str, recorder: Recorder) -> None:
        self._grammar = grammar
        self._request_id = request_id
        self._recorder = recorder
        self._asked = 0
        self._advanced = 0

    def allowed(self, ahead: Sequence[int]) -> bytes | None:
        self._asked += 1
        record: Record = {"grammar": self._request_id, "asked": self._asked, "ahead": list(ahead)}
        try:
            mask = self._grammar.allowed(ahead)
        except Exception as error:
            self._recorder.add({**record, "failed": plain(error)})
            raise
        self._recorder.add({**record, **self._recorder.named(mask)})
        return mask

    def advance(self, token: int) -> None:
        self._advanced += 1
        try:
            self._grammar.advance(token)
        except Exception as error:
            self._recorder.add(
                {"grammar": self._request_id, "advanced": self._advanced, "failed": plain(error)}
            )
            raise


class RecordedSink:
    """A sink; the event that it did not take is written down."""

    def __init__(self, sink: Sink, request_id: str, recorder: Recorder) -> None:
        self._sink = sink
        self._request_id = request_id
        self._recorder = recorder
        self._puts = 0

    def put(self, event: Event) -> None:
        self._puts += 1
        try:
            self._sink.put(event)
        except Exception as error:
            self._recorder.add({"sink": self._request_id, "put": self._puts, "failed": plain(error)})
            raise


class RecordedBackend:
    """A backend; each call is written down with its answer."""

    def __init__(self, backend: Backend, recorder: Recorder) -> None:
        self._backend = backend
        self._recorder = recorder

    def facts(self) -> Facts:
        return self._backend.facts()

    def prefill(self, slot: SlotId, position: int, tokens: Sequence[int]) -> None:
        with self._recorder.call("prefill", slot=slot, position=position, rows=len(tokens)):
            self._backend.prefill(slot, position, tokens)

    def draw_first(self, slot: SlotId, position: int, sampling: Sampling, edits: Edits | None = None) -> int:
        with self._recorder.call("draw_first", slot=slot, position=position) as record:
            record["drawn"] = token = self._backend.draw_first(slot, position, sampling, edits)
        return token

    def first_logprobs(self, slot: SlotId, token: int, top: int) -> TokenLogprobs:
        with self._recorder.call("first_logprobs", slot=slot, token=token, top=top):
            return self._backend.first_logprobs(slot, token, top)

    def verify(self, windows: Sequence[Window]) -> list[Verified]:
        asked = [
            {
                "slot": window.slot,
                "position": window.position,
                "tokens": list(window.tokens),
                "top_logprobs": window.top_logprobs,
            }
            for window in windows
        ]
        with self._recorder.call("verify", windows=asked) as record:
            verified = self._backend.verify(windows)
            record["drawn"] = [list(result.drawn) for result in verified]
        return verified

    def keep(self, slot: SlotId, rows: int) -> None:
        with self._recorder.call("keep", slot=slot, rows=rows):
            self._backend.keep(slot, rows)

    def draft(self, requests: Sequence[DraftRequest]) -> list[tuple[int, ...]]:
        asked = [
            {
                "slot": request.slot,
                "position": request.position,
                "next_tokens": list(request.next_tokens),
                "depth": request.depth,
            }
            for request in requests
        ]
        with self._recorder.call("draft", requests=asked) as record:
            drafts = self._backend.draft(requests)
            record["drafts"] = [list(tokens) for tokens in drafts]
        return drafts

    def move(self, source: SlotId, target: SlotId) -> None:
        with self._recorder.call("move", source=source, target=target):
            self._backend.move(source, target)

    def release(self, slot: SlotId) -> None:
        with self._recorder.call("release", slot=slot):
            self._backend.release(slot)

    def keeper(self) -> StateKeeper | None:
        keeper = self._backend.keeper()
        return None if keeper is None else RecordedKeeper(keeper, self._recorder)


class RecordedKeeper:
    """A keeper of states; each call is written down."""

    def __init__(self, keeper: StateKeeper, recorder: Recorder) -> None:
        self._keeper = keeper
        self._recorder = recorder

    def save_rows(self, slot: SlotId, piece: PieceId, start: int) -> None:
        with self._recorder.call("save_rows", slot=slot, piece=piece, start=start):
            self._keeper.save_rows(slot, piece, start)

    def save_end(self, slot: SlotId, piece: PieceId) -> None:
        with self._recorder.call("save_end", slot=slot, piece=piece):
            self._keeper.save_end(slot, piece)

    def restore(self, slot: SlotId, rows: Sequence[PieceId], end: PieceId) -> None:
        with self._recorder.call("restore", slot=slot, rows=list(rows), end=end):
            self._keeper.restore(slot, rows, end)

    def drop(self, piece: PieceId) -> None:
        with self._recorder.call("drop", piece=piece):
            self._keeper.drop(piece)


def _written(came_in: Record) -> Record:
    """What came in as JSON; a prompt packed, of a stop watch and a grammar that there was one."""
    request = came_in.get("request")
    if not isinstance(request, Request):
        return {name: plain(value) for name, value in came_in.items()}
    return {
        "request": {
            **plain(replace(request, prompt=(), stop_watch=None, grammar=None)),
            "prompt": packed(request.prompt),
            "prompt_tokens": len(request.prompt),
            "stop_watch": request.stop_watch is not None,
            "grammar": request.grammar is not None,
        },
        "limits": plain(came_in["limits"]),
        "submitted_us": came_in["submitted_us"],
    }
