"""The trail's file, and the recorder that gathers what an act did and writes its line.

Nothing that goes wrong with the trail reaches the loop: it is given up with one log line.
"""

import errno
import hashlib
import json
import logging
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import hermitcrab
from hermitcrab.clock import Clock
from hermitcrab.core.api import Request
from hermitcrab.core.backend import Facts
from hermitcrab.core.lanes import LaneRules
from hermitcrab.core.records import packed, packed_bytes, plain
from hermitcrab.core.trail import Decision
from hermitcrab.errors import SettingError

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
        did: list[Record] = []
        self._did = did
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

    def _write(self, make: Callable[[], Record]) -> None:
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
