"""A server over the strict fake backend, in a process of its own; takes the options of `hermitcrab serve`.

With --stuck, the engine hangs in its second round and never comes back.
"""

import sys
import tempfile
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "server"))

from small_model import write_model_text

from hermitcrab.assemble import Assembled
from hermitcrab.cli import serve as module
from hermitcrab.cli.console import make_console, set_up_logging
from hermitcrab.clock import WallClock
from hermitcrab.core.fake import Call, CallKind, FakeBackend
from hermitcrab.core.host import LaneHost
from hermitcrab.core.lanes import LaneRules
from hermitcrab.server.text.load import load_chat_text
from hermitcrab.settings import Settings, read_settings

never = threading.Event()
is_stuck = "--stuck" in sys.argv


def slow_or_stuck(call: Call) -> None:
    if call.kind is CallKind.VERIFY:
        never.wait(None if is_stuck else 0.002)


given = [argument for argument in sys.argv[1:] if argument != "--stuck"]
flags = {name.removeprefix("--"): value for name, value in zip(given[::2], given[1::2], strict=True)}
settings = read_settings(Settings, {"port": "0", "log-level": "warning", **flags})
console = make_console(is_for_machines=settings.log_json)
set_up_logging(settings.log_level, console, is_json=settings.log_json)
with tempfile.TemporaryDirectory() as directory:
    write_model_text(Path(directory))
    text = load_chat_text(Path(directory), WallClock())
backend = FakeBackend((60_000, 60_000), vocab_tokens=410, prompt_pass_rows=256, on_call=slow_or_stuck)
parts = Assembled(
    lanes=LaneHost(backend, LaneRules()),
    text=text,
    model_id="fake",
    session_lines=("session 0: as many rows as it says", "total: none"),
)
with module.listening_socket(settings.http) as listener:
    module.run_server(parts, settings, listener, console, WallClock())
