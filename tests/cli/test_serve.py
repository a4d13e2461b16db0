"""`hermitcrab serve`: what it says at the start, what it shows, and how it ends."""

import contextlib
import json
import logging
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from rich.console import Console

from hermitcrab.cli.console import set_up_logging
from hermitcrab.cli.live import Loading, StatusLine, status_words
from hermitcrab.cli.main import main
from hermitcrab.cli.serve import listening_socket
from hermitcrab.core.api import SessionStatus, Status, StreamState, StreamStatus
from hermitcrab.errors import SettingError
from hermitcrab.settings import HttpSettings

SCRIPT = Path(__file__).parent / "serve_fake_model.py"
# far more than an end takes, for a busy machine; far less than the replies here and the longest drain
END_S = 30
ASK = {"messages": [{"role": "user", "content": "go on for ever"}], "stream": True, "ignore_eos": True}


@contextlib.contextmanager
def running(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str, list[str]]]:
    """A server in a process of its own: the process, its address, and the lines it greeted with."""
    command = [sys.executable, str(SCRIPT), *arguments]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        greeting = []
        for line in process.stderr:
            greeting.append(line.rstrip("\n"))
            if line.startswith("try: "):
                break
        try:
            yield process, greeting[-1].split("/v1/")[0].split()[-1], greeting
        finally:
            process.kill()


def stream_lines(url: str) -> Iterator[Iterator[str]]:
    with httpx.stream("POST", f"{url}/v1/chat/completions", json=ASK, timeout=20) as response:
        assert response.status_code == 200
        yield response.iter_lines()


open_stream = contextlib.contextmanager(stream_lines)


def test_it_greets_with_address_model_sessions_and_a_line_to_try() -> None:
    with running() as (_, url, greeting):
        model, page, session, total, check, line = greeting[-6:]
        assert model.startswith(f"fake is served at {url}/v1, ")
        assert page == f"  watch it at {url}/"
        assert (session, total) == ("  session 0: as many rows as it says", "  total: none")
        assert check == "  load check: not run"
        assert line.startswith(
            f"try: curl {url}/v1/chat/completions -H 'Content-Type: application/json' -d '{{"
        )
        assert httpx.get(f"{url}/health").json()["status"] == "ok"


def test_the_line_to_try_works() -> None:
    with running() as (_, _, greeting):
        command = greeting[-1].removeprefix("try: ").replace("curl ", "curl -sS --max-time 20 ")
        ended = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
        assert json.loads(ended.stdout)["object"] == "chat.completion"


@pytest.mark.parametrize("wanted", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_an_idle_server_at_once(wanted: signal.Signals) -> None:
    with running() as (process, url, _):
        httpx.get(f"{url}/health")
        process.send_signal(wanted)
        assert process.wait(END_S) == 0


def test_a_signal_gives_running_replies_their_time_and_then_an_end() -> None:
    with running("--drain-seconds", "0.5") as (process, url, _), open_stream(url) as lines:
        assert next(lines).startswith("data: ")
        process.send_signal(signal.SIGTERM)
        told = [line for line in lines if line]
        assert json.loads(told[-2].removeprefix("data: "))["error"]["code"] == "shutting_down"
        assert told[-1] == "data: [DONE]"
        assert process.wait(END_S) == 0


def test_while_it_drains_new_requests_are_told_to_come_back() -> None:
    with running("--drain-seconds", "30") as (process, url, _), open_stream(url) as lines:
        assert next(lines).startswith("data: ")
        process.send_signal(signal.SIGTERM)
        while httpx.get(f"{url}/health").json()["status"] != "draining":
            pass
        answer = httpx.post(f"{url}/v1/chat/completions", json=ASK)
        assert answer.status_code == 503
        assert int(answer.headers["retry-after"]) > 0
        assert httpx.get(f"{url}/ready").status_code == 503
        assert "hermitcrab_draining 1.0" in httpx.get(f"{url}/metrics").text


def test_a_second_signal_cuts_replies_off_with_their_terminal_event() -> None:
    with running("--drain-seconds", "60") as (process, url, _), open_stream(url) as lines:
        assert next(lines).startswith("data: ")
        process.send_signal(signal.SIGINT)
        while httpx.get(f"{url}/health").json()["status"] != "draining":
            pass
        process.send_signal(signal.SIGINT)
        assert [line for line in lines if line][-1] == "data: [DONE]"
        assert process.wait(END_S) == 0


def test_a_stuck_engine_cannot_keep_the_program_from_ending() -> None:
    with running("--drain-seconds", "0", "--stuck") as (process, url, _), open_stream(url) as lines:
        assert next(lines).startswith("data: ")
        process.send_signal(signal.SIGTERM)
        assert process.wait(END_S) is not None


def test_a_port_in_use_is_one_sentence_before_anything_is_loaded(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", "--port", str(port)]) == 2
    words = capsys.readouterr().err.strip()
    assert words == (
        f"hermitcrab: cannot listen on 127.0.0.1 port {port}: Address already in use; choose another --port"
    )


@pytest.mark.parametrize("host", ["no.such.host.invalid", "203.0.113.7"])
def test_an_address_of_nobodys_is_one_sentence(host: str) -> None:
    with pytest.raises(SettingError, match=host):
        listening_socket(HttpSettings(host=host, port=0))


def test_any_free_port_can_be_asked_for() -> None:
    with listening_socket(HttpSettings(port=0)) as listener:
        assert listener.getsockname()[1] > 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--port", "x"], "--port: 'x' is not allowed here; give a whole number from 0 to 65535"),
        (["--slot-context", "1"], "No such option '--slot-context'"),
        (["--slot-grow", "0"], "--slot-grow: '0' is not allowed here"),
    ],
)
def test_a_wrong_option_is_one_sentence_and_status_2(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line


def status(**changes: object) -> Status:
    states = (StreamState.LIVE, StreamState.FILLING, StreamState.QUEUED, StreamState.PAUSED)
    values: dict[str, object] = {
        "sessions": (SessionStatus(0, 64, 3, "a"), SessionStatus(1, 32, 0, None)),
        "streams": tuple(
            StreamStatus(str(at), state, None, 1, 0, 0, 0, 0.0) for at, state in enumerate(states)
        ),
        "tokens_per_s": 12.345,
        "tick_age_s": 0.0,
        "is_draining": False,
        **dict.fromkeys(("requests_finished", "requests_failed", "requests_cancelled"), 0),
        **dict.fromkeys(("prompt_tokens", "reply_tokens", "rounds", "moves", "pauses"), 0),
        "drafted": 200,
        "accepted": 166,
        **changes,
    }
    return Status(**values)  # type: ignore[arg-type]  # a table of field values, all of their fields' types


def test_the_status_line_tells_who_runs_and_how_fast() -> None:
    assert status_words(status()) == (
        "2 running, 1 waiting, 1 paused | sessions 1/2 | 12.3 tok/s | 83 % of drafts accepted"
    )


def test_the_status_line_says_nothing_of_drafts_before_there_are_any() -> None:
    assert status_words(status(drafted=0)).endswith("12.3 tok/s")


class ConstantLanes:
    """Lanes of which only the status is asked."""

    context_tokens = 64

    def submit(self, request: object, sink: object) -> None:
        raise AssertionError("not asked here")

    def cancel(self, request_id: str) -> None:
        raise AssertionError("not asked here")

    def status(self) -> Status:
        return status()


def test_the_status_line_stays_one_line_in_a_narrow_terminal() -> None:
    console = Console(width=30, force_terminal=True)
    (line,) = console.render_lines(StatusLine(ConstantLanes()), pad=False)
    assert "".join(segment.text for segment in line) == "2 running, 1 waiting, 1 pause…"


def test_loading_shows_a_bar_in_a_terminal() -> None:
    console = Console(force_terminal=True, width=80)
    with console.capture() as captured, Loading(console) as loading:
        loading("reading weights", 50, 100)
        loading("reading weights", 100, 100)
    assert "reading weights" in captured.get()
    assert "100 %" in captured.get()


def test_loading_logs_each_stage_once_elsewhere(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "hermitcrab")
    with Loading(Console(force_terminal=False)) as loading:
        for done in range(5):
            loading("reading weights", done, 4)
        loading("checking", 1, 1)
    assert caplog.messages == ["reading weights", "checking"]


@pytest.fixture
def own_logging() -> Iterator[None]:
    """Puts the root logger back as it was."""
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield
    root.handlers, root.level = handlers, level
    logging.getLogger("hermitcrab").setLevel(logging.NOTSET)


@pytest.mark.usefixtures("own_logging")
def test_the_log_is_plain_lines_with_time_level_and_message() -> None:
    console = Console(width=20, force_terminal=False)
    with console.capture() as captured:
        set_up_logging("info", console)
        logging.getLogger("hermitcrab.core").info("a stream at %d tokens moved [bold] on a long line", 5)
        logging.getLogger("hermitcrab.core").debug("not shown")
        logging.getLogger("other").info("not shown")
        logging.getLogger("other").warning("shown")
    first, second = captured.get().splitlines()
    assert first[8:] == " INFO    a stream at 5 tokens moved [bold] on a long line"
    assert second[8:] == " WARNING shown"
