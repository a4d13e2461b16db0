"""Where the program writes for people, and its log: plain lines that a live display may stand under."""

import logging

from rich.console import Console

_FORMAT = "%(asctime)s %(levelname)-7s %(message)s"


def make_console() -> Console:
    """The console on standard error; standard output stays free for what a command is asked to print."""
    return Console(stderr=True, highlight=False)


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


def set_up_logging(level: str, console: Console) -> None:
    """Send the program's log lines of `level` and above to the console, others' only when they warn."""
    root = logging.getLogger()
    root.handlers = [ConsoleHandler(console)]
    root.setLevel(logging.WARNING)
    logging.getLogger("hermitcrab").setLevel(level.upper())
