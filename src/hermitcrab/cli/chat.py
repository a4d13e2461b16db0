"""`hermitcrab chat`: talk to a running server. Thinking is dimmed; Ctrl-C stops a reply, not the program."""

import contextlib
import importlib
import json
from collections.abc import Iterator
from typing import Any

import httpx
from rich.console import Console
from rich.text import Text

from hermitcrab.cli.options import settings_command
from hermitcrab.errors import SettingError
from hermitcrab.settings import ChatSettings

# a server gives a sign of life every few seconds, even while a request waits
_SILENCE_S = 30.0

_HELP = "/reset forgets the conversation, /exit leaves, Ctrl-C stops a reply"


class Conversation:
    """One conversation: its messages, and the server that answers them."""

    def __init__(self, client: httpx.Client, settings: ChatSettings, console: Console) -> None:
        self._client = client
        self._settings = settings
        self._console = console
        self._messages: list[dict[str, str]] = []
        self.reset()

    def reset(self) -> None:
        """Forget everything but the system message."""
        system = self._settings.system
        self._messages = [] if system is None else [{"role": "system", "content": system}]

    def say(self, words: str) -> None:
        """Send a message and show the reply as it comes; a message without a reply is not kept."""
        self._messages.append({"role": "user", "content": words})
        reply = _Reply(self._console)
        try:
            with self._client.stream("POST", "/v1/chat/completions", json=self._request()) as response:
                if response.status_code != httpx.codes.OK:
                    response.read()
                    reply.fail(_error_words(response))
                else:
                    reply.show(_events(response))
        except KeyboardInterrupt:
            reply.note("stopped")
        except httpx.TransportError as error:
            reply.fail(f"the connection to the server broke: {error}")
        if reply.has_failed or reply.is_empty:
            self._messages.pop()
        else:
            self._messages.append(reply.message())

    def _request(self) -> dict[str, Any]:
        request: dict[str, Any] = {"messages": self._messages, "stream": True}
        if self._settings.is_thinking is not None:
            request["enable_thinking"] = self._settings.is_thinking
        return request


class _Reply:
    """A reply as it is shown: reasoning dim, answer plain, then a dim line of figures."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._reasoning = ""
        self._answer = ""
        self.has_failed = False

    @property
    def is_empty(self) -> bool:
        return not self._reasoning and not self._answer

    def show(self, events: Iterator[dict[str, Any]]) -> None:
        for event in events:
            if "error" in event:
                self.fail(event["error"]["message"])
                return
            for choice in event["choices"]:
                self._show_delta(choice["delta"])
            if "hermitcrab" in event:
                self.note(_figures(event["hermitcrab"], event["choices"][0]["finish_reason"]))

    def fail(self, words: str) -> None:
        self.has_failed = True
        self._console.print(Text(f"\n{words}", style="red"))

    def note(self, words: str) -> None:
        self._console.print(Text(f"\n({words})", style="dim"))

    def message(self) -> dict[str, str]:
        """The reply as the next request sends it back."""
        message = {"role": "assistant", "content": self._answer}
        return message | ({"reasoning_content": self._reasoning} if self._reasoning else {})

    def _show_delta(self, delta: dict[str, Any]) -> None:
        reasoning, answer = delta.get("reasoning_content") or "", delta.get("content") or ""
        if answer and self._reasoning and not self._answer:
            self._console.print("\n")
        self._reasoning += reasoning
        self._answer += answer
        self._write(reasoning, style="dim")
        self._write(answer, style="")

    def _write(self, text: str, *, style: str) -> None:
        if text:
            self._console.print(Text(text, style=style), end="", soft_wrap=True)


def chat(settings: ChatSettings) -> None:
    """Talk until /exit or the end of input. Raises SettingError when no server answers."""
    console = Console(highlight=False)
    with contextlib.suppress(ImportError):
        # gives input() a history and line editing, where the platform has it
        importlib.import_module("readline")
    headers = {} if settings.api_key is None else {"Authorization": f"Bearer {settings.api_key}"}
    timeout = httpx.Timeout(_SILENCE_S, connect=5.0)
    try:
        client = httpx.Client(base_url=settings.url, headers=headers, timeout=timeout)
    except (httpx.InvalidURL, UnicodeError) as error:
        raise SettingError(f"--url {settings.url}: not an address: {error}") from error
    with client:
        model = _served_model(client, settings.url)
        console.print(Text(f"{model}. {_HELP}", style="dim"))
        conversation = Conversation(client, settings, console)
        with contextlib.suppress(EOFError):
            while True:
                words = _read_words(console)
                if words == "/exit":
                    return
                if words == "/reset":
                    conversation.reset()
                elif words:
                    conversation.say(words)


def _served_model(client: httpx.Client, url: str) -> str:
    try:
        response = client.get("/v1/models")
    except httpx.UnsupportedProtocol as error:
        raise SettingError(f"--url {url}: must begin with http:// or https://") from error
    except httpx.TransportError as error:
        raise SettingError(f"no server answers at {url}; start one with: hermitcrab serve") from error
    if response.status_code != httpx.codes.OK:
        raise SettingError(f"the server at {url} refuses: {_error_words(response)}")
    try:
        return str(response.json()["data"][0]["id"])
    except (ValueError, LookupError, TypeError) as error:
        raise SettingError(f"what answers at {url} is not a server of this API") from error


def _read_words(console: Console) -> str:
    """The next line; Ctrl-C at the prompt only starts a new one."""
    while True:
        try:
            prompt = "> " if console.is_terminal else ""
            return input(prompt).strip()
        except KeyboardInterrupt:
            console.print(Text(f"\n({_HELP})", style="dim"))


def _events(response: httpx.Response) -> Iterator[dict[str, Any]]:
    for line in response.iter_lines():
        if line == "data: [DONE]":
            return
        if line.startswith("data: "):
            yield json.loads(line.removeprefix("data: "))


def _error_words(response: httpx.Response) -> str:
    try:
        return str(response.json()["error"]["message"])
    except (ValueError, LookupError, TypeError):
        return f"HTTP status {response.status_code}"


def _figures(block: dict[str, Any], finish: str) -> str:
    words = [f"first token after {block['first_token_s']:.2f} s, then {block['decode_s']:.2f} s"]
    if block["moves"]:
        words.append(f"moved {block['moves']} times")
    if finish == "length":
        words.append("cut off at its length limit")
    return ", ".join(words)


command = settings_command("chat", ChatSettings, chat, "Talk to a running server in the terminal.")
