"""What an operator reads about decisions, and that telling it can hurt nobody."""

import logging

import pytest
from lane_bench import Book

from hermitcrab.core.api import FinishReason
from hermitcrab.core.trail import (
    Decision,
    Ended,
    LogTracer,
    LoopFailed,
    Moved,
    ReleaseFailed,
    SinkFailed,
    Stalled,
    Waits,
    tell,
)
from hermitcrab.errors import DeviceFailed, LaneError

LINES = {
    Waits("r", 16381, 16416): (
        logging.INFO,
        "a stream at 16381 tokens waits for a session larger than 16416 tokens to free",
    ),
    Moved("r", 16382, 16416, 262176): (
        logging.INFO,
        "a stream at 16382 tokens moved from a 16416-token session to a 262176-token one",
    ),
    Ended("r", DeviceFailed("the copy failed")): (logging.WARNING, "request r failed: the copy failed"),
    ReleaseFailed(3, DeviceFailed("no answer")): (
        logging.WARNING,
        "the session of slot 3 could not be emptied: no answer",
    ),
    Stalled(2, LaneError("nothing runs")): (logging.ERROR, "2 waiting requests end: nothing runs"),
    SinkFailed("r", OSError("gone")): (logging.WARNING, "request r is cancelled, its sink failed: gone"),
}


@pytest.mark.parametrize("decision", LINES, ids=lambda decision: type(decision).__name__)
def test_a_decision_is_one_line_in_words(decision: Decision, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "hermitcrab.core"):
        LogTracer().note(decision)
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [LINES[decision]]


def test_a_failed_loop_is_an_error_with_its_trace(caplog: pytest.LogCaptureFixture) -> None:
    error = OSError("no clock")
    LogTracer().note(LoopFailed(error))
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.exc_info is not None
    assert record.exc_info[1] is error


def test_a_reply_that_ended_well_is_no_news(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "hermitcrab.core"):
        LogTracer().note(Ended("r", FinishReason.STOP))
    assert caplog.records == []


class BrokenHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        raise OSError("no space left on device")


def test_a_broken_log_handler_is_passed_over() -> None:
    logger, handler, book = logging.getLogger("hermitcrab.core.trail"), BrokenHandler(), Book()
    logger.addHandler(handler)
    before = logger.level
    logger.setLevel(logging.INFO)
    try:
        tell((LogTracer(), book), Waits("r", 1, 2))
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
    assert book.decisions == [Waits("r", 1, 2)]


@pytest.mark.parametrize("decision", LINES, ids=lambda decision: type(decision).__name__)
def test_a_line_carries_its_decision_for_logs_that_machines_read(
    decision: Decision, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "hermitcrab.core"):
        LogTracer().note(decision)
    (record,) = caplog.records
    assert record.event == type(decision).__name__
    assert type(decision)(**record.fields) == decision
