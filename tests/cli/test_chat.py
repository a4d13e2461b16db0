"""`hermitcrab chat` against a real server: what is shown, what is sent back, and how it ends."""

import io
import os
import pty
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import httpx  # the helpers of tests/server are importable only from here on
import pytest
from rich.console import Console
from served import ENDLESS, MODEL, Served, SlowRounds, is_idle, listening, serving
from small_model import write_model_text

from hermitcrab.cli.chat import Conversation
from hermitcrab.cli.main import main
from hermitcrab.clock import WallClock
from hermitcrab.server.options import ServerOptions
from hermitcrab.server.text.chat import ChatText
from hermitcrab.server.text.load import load_chat_text
from hermitcrab.settings import ChatSettings


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> ChatText:
    directory = tmp_path_factory.mktemp("small-model")
    write_model_text(directory)
    return load_chat_text(directory, WallClock())


@pytest.fixture(scope="module")
def live(text: ChatText) -> Iterator[tuple[Served, str]]:
    with serving(text, on_call=SlowRounds()) as made, listening(made.app) as port:
        made.replies["think"] = "let me see\n</think>\n\nDone."
        yield made, f"http://127.0.0.1:{port}"


def talk(live: tuple[Served, str], typed: str, *arguments: str, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr("sys.stdin", io.StringIO(typed))
    return main(["chat", "--url", live[1], *arguments])


def test_it_shows_reasoning_then_answer_and_ends_with_its_input(
    live: tuple[Served, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert talk(live, "think\n", monkeypatch=monkeypatch) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(MODEL)
    assert "let me see\n\nDone.\n(first token after " in shown.replace("\n\n\n", "\n\n")


def test_exit_leaves(live: tuple[Served, str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert talk(live, "/exit\nhi\n", monkeypatch=monkeypatch) == 0


def test_no_think_asks_for_no_thinking(
    live: tuple[Served, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    talk(live, "hi\n", "--no-think", monkeypatch=monkeypatch)
    assert not live[0].text.chat_prompt([], [], {"enable_thinking": False}).is_thinking
    last = live[0].lanes.submitted[-1]
    assert last.prompt[-4:] == live[0].text.raw_prompt("<think>\n\n</think>\n\n").ids[-4:]


def prompt_text(live: tuple[Served, str]) -> str:
    return live[0].text.text_of(live[0].lanes.submitted[-1].prompt)


def test_the_conversation_goes_back_with_each_message_and_its_reasoning(
    live: tuple[Served, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    talk(live, "think\nhi\n", "--system", "be brief", monkeypatch=monkeypatch)
    assert prompt_text(live) == (
        "system\nbe brief\nuser\nthink\nassistant\n<think>\nlet me see\n</think>\n\nDone.\n"
        "user\nhi\nassistant\n<think>\n"
    )


def test_reset_forgets_everything_but_the_system_message(
    live: tuple[Served, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    talk(live, "think\n/reset\nhi\n", "--system", "be brief", monkeypatch=monkeypatch)
    assert prompt_text(live) == "system\nbe brief\nuser\nhi\nassistant\n<think>\n"


def test_a_refused_message_is_shown_and_not_kept(
    live: tuple[Served, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert talk(live, "word " * 2000 + "\nhi\n", monkeypatch=monkeypatch) == 0
    assert "maximum context length" in " ".join(capsys.readouterr().out.split())
    assert prompt_text(live) == "user\nhi\nassistant\n<think>\n"


def test_a_key_is_sent(text: ChatText, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ServerOptions(MODEL, api_key="secret")
    with serving(text, options=options) as served, listening(served.app) as port:
        url = f"http://127.0.0.1:{port}"
        assert talk((served, url), "hi\n", "--api-key", "secret", monkeypatch=monkeypatch) == 0


def test_a_wrong_key_is_one_sentence(
    text: ChatText, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ServerOptions(MODEL, api_key="secret")
    with serving(text, options=options) as served, listening(served.app) as port:
        assert talk((served, f"http://127.0.0.1:{port}"), "hi\n", monkeypatch=monkeypatch) == 2
    assert "refuses: This server asks for a key" in capsys.readouterr().err


def test_a_server_that_goes_away_is_told_and_the_message_is_not_kept(text: ChatText) -> None:
    console = Console(width=80)
    with (
        serving(text, on_call=SlowRounds()) as served,
        httpx.Client() as client,
        console.capture() as captured,
    ):
        with listening(served.app) as port:
            client.base_url = f"http://127.0.0.1:{port}"
            threading.Timer(0.2, served.host.close, kwargs={"drain_s": 0.0}).start()
            conversation = Conversation(client, ChatSettings(is_thinking=False), console)
            conversation.say(ENDLESS)
        conversation.say("hi")
    shown = " ".join(captured.get().split())
    assert "The server is shutting down" in shown
    assert "the connection to the server broke" in shown


def test_thinking_is_dim_in_a_terminal(live: tuple[Served, str]) -> None:
    console = Console(force_terminal=True, color_system="standard", width=80)
    with console.capture() as captured, httpx.Client(base_url=live[1]) as client:
        Conversation(client, ChatSettings(), console).say("think")
    shown = captured.get()
    thinking, _, answer = shown.partition("\n\n")
    assert thinking.startswith("\x1b[2m")
    assert answer.startswith("Done.")


def test_ctrl_c_stops_the_reply_and_frees_its_session_and_not_the_program(live: tuple[Served, str]) -> None:
    """On a terminal of its own, as a person has it."""
    served, url = live
    terminal, other = pty.openpty()
    command = [sys.executable, "-m", "hermitcrab", "chat", "--url", url, "--no-think"]
    with subprocess.Popen(
        command, stdin=other, stdout=other, stderr=other, start_new_session=True
    ) as process:
        os.close(other)
        try:
            seen = Terminal(terminal)
            seen.wait_for(b"> ")
            os.write(terminal, ENDLESS.encode() + b"\n")
            served.wait_until(lambda status: any(stream.reply_tokens > 20 for stream in status.streams))
            process.send_signal(signal.SIGINT)
            seen.wait_for(b"(stopped)")
            served.wait_until(is_idle)
            os.write(terminal, b"hi\n")
            seen.wait_for(b"Hello there!")
            os.write(terminal, b"/exit\n")
            assert process.wait(10) == 0
        finally:
            process.kill()
    os.close(terminal)


class Terminal:
    """Reads what a program writes to its terminal."""

    def __init__(self, descriptor: int) -> None:
        self._got = b""
        self._has_more = threading.Condition()
        threading.Thread(target=self._read, args=(descriptor,), daemon=True).start()

    def wait_for(self, words: bytes) -> None:
        with self._has_more:
            assert self._has_more.wait_for(lambda: words in self._got, timeout=20), self._got
            self._got = self._got.partition(words)[2]

    def _read(self, descriptor: int) -> None:
        while True:
            try:
                more = os.read(descriptor, 4096)
            except OSError:
                return
            with self._has_more:
                self._got += more
                self._has_more.notify()
