"""`--log-json`: one JSON object a line, whatever happens, and nothing else."""

import io
import json
import logging
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from hermitcrab.cli.console import JsonFormatter, make_console, set_up_logging
from hermitcrab.core.trail import Ended, LogTracer, LoopFailed, Moved
from hermitcrab.errors import DeviceFailed

SCRIPT = Path(__file__).parent / "serve_fake_model.py"


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """What the program's own logger writes as JSON."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    logger = logging.getLogger("hermitcrab")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield stream
    logger.removeHandler(handler)
    logger.setLevel(level)


def lines(log: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.getvalue().splitlines()]


def test_a_decision_is_its_name_and_its_fields(log: io.StringIO) -> None:
    LogTracer().note(Moved("r", 600, 672, 2080))
    (line,) = lines(log)
    assert line.pop("time").endswith("+00:00")
    assert line == {
        "level": "info",
        "event": "Moved",
        "message": "a stream at 600 tokens moved from a 672-token session to a 2080-token one",
        "logger": "hermitcrab.core.trail",
        "request_id": "r",
        "tokens": 600,
        "source_rows": 672,
        "target_rows": 2080,
    }


def test_an_error_is_told_in_its_own_words(log: io.StringIO) -> None:
    LogTracer().note(Ended("r", DeviceFailed("no answer")))
    (line,) = lines(log)
    assert (line["event"], line["level"], line["outcome"]) == ("Ended", "warning", "no answer")


def test_a_trace_is_a_part_of_its_line(log: io.StringIO) -> None:
    try:
        raise OSError("gone\nfor good")
    except OSError as error:
        LogTracer().note(LoopFailed(error))
    (line,) = lines(log)
    assert line["trace"].startswith("Traceback")
    assert line["trace"].endswith("OSError: gone\nfor good")


@pytest.mark.parametrize(
    "text", ["two\nlines", '"quoted" {braces}', "日本語 👋", "a lone \ud800 surrogate", "100 %"]
)
def test_any_text_is_one_line_and_comes_back_as_it_was(log: io.StringIO, text: str) -> None:
    logging.getLogger("hermitcrab.some.module").warning(text)
    (line,) = lines(log)
    assert (line["event"], line["message"]) == ("Log", text)


def test_fields_of_an_event_never_hide_what_every_line_has(log: io.StringIO) -> None:
    fields = {"level": "mine", "time": "mine", "other": 1}
    logging.getLogger("hermitcrab").error("words", extra={"event": "Odd", "fields": fields})
    (line,) = lines(log)
    assert (line["level"], line["other"]) == ("error", 1)
    assert line["time"] != "mine"


def test_for_machines_nothing_is_drawn_in_a_terminal_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", FakeTerminal())
    assert make_console().is_terminal
    assert not make_console(is_for_machines=True).is_terminal


class FakeTerminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_level_holds_for_json_too(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    root, own = logging.getLogger(), logging.getLogger("hermitcrab")
    handlers, level = root.handlers, root.level
    try:
        set_up_logging("warning", make_console(is_for_machines=True), is_json=True)
        own.info("not shown")
        own.warning("shown")
    finally:
        root.handlers, root.level = handlers, level
        own.setLevel(logging.NOTSET)
    assert [line["message"] for line in lines(stream)] == ["shown"]


def test_a_server_tells_its_whole_life_as_json() -> None:
    command = [sys.executable, str(SCRIPT), "--log-json", "true", "--log-level", "info"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            ready = json.loads(process.stderr.readline())
            assert (ready["event"], ready["model"]) == ("Ready", "fake")
            assert httpx.get(f"{ready['url']}/ready").status_code == 200
            process.send_signal(signal.SIGTERM)
            rest = [json.loads(line) for line in process.stderr]
            assert [line["event"] for line in rest] == ["Stopping", "Stopped"]
            assert process.wait(5) == 0
        finally:
            process.kill()
