"""Where the program writes: plain lines that a live display may stand under, or JSON for machines."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

from rich.console import Console

_FORMAT = "%(asctime)s %(levelname)-7s %(message)s"


def make_console(*, is_for_machines: bool = False) -> Console:
    """The console on standard error; standard output stays free for what a command is asked to print.

    For machines it is no terminal whatever it is attached to: nothing is drawn on it.
    """
    return Console(stderr=True, highlight=False, force_terminal=False if is_for_machines else None)


class ConsoleHandler(logging.Handler):
    """Writes log lines above whatever the console shows live."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console
        self.setFormatter(logging.Formatter(_FORMAT, "%H:%M:%S"))

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._console.out(self.format(record), highlight=False)
        except Exception:  # noqa: BLE001  # logging must never break what is logged
            self.handleError(record)


class JsonFormatter(logging.Formatter):
    """A record as one line of JSON: `time` (UTC), `level`, `event`, `message`, `logger`, the event's fields.

    A record names its event with `extra={"event": ..., "fields": {...}}`; one that does not is a `Log`.
    """

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": getattr(record, "event", "Log"),
            "message": record.getMessage(),
            "logger": record.name,
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        # an event's own fields never hide the five above
        return json.dumps({**line, **getattr(record, "fields", {}), **line}, default=str)


def set_up_logging(level: str, console: Console, *, is_json: bool = False) -> None:
    """Send the program's log lines of `level` and above to the console, others' only when they warn.

    As JSON they go to standard error as they are, a line each.
    """
    handler: logging.Handler = ConsoleHandler(console)
    if is_json:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("hermitcrab").setLevel(level.upper())
