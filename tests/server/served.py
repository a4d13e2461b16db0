"""A served model for a test: the real lanes on the strict fake backend, replies as the test writes them."""

import asyncio
import contextlib
import functools
import json
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import uvicorn
from fastapi import FastAPI

from hermitcrab.clock import Clock, WallClock
from hermitcrab.core.api import Request, Sink, Status
from hermitcrab.core.fake import Call, CallKind, FakeBackend, every_call_passes
from hermitcrab.core.host import LaneHost
from hermitcrab.core.kept import CacheRules
from hermitcrab.core.lanes import LaneRules
from hermitcrab.server.app import create_app
from hermitcrab.server.options import ServerOptions
from hermitcrab.server.text.chat import ChatText

MODEL = "crab-1"
# last messages with a reply of their own: one that never ends, and one that depends on every token before it
ENDLESS = "go on for ever"
RANDOM = "say anything"


class Gate:
    """Holds the engine thread at its next call of one kind until opened."""

    def __init__(self, kind: CallKind) -> None:
        self.kind = kind
        self.is_reached = threading.Event()
        self._is_open = threading.Event()

    def __call__(self, call: Call) -> None:
        if call.kind is self.kind and not self._is_open.is_set():
            self.is_reached.set()
            assert self._is_open.wait(30), "the test never opened its gate"

    def open(self) -> None:
        self._is_open.set()


class SlowRounds:
    """Gives every round some time, so that an endless reply leaves the machine to others."""

    def __init__(self, round_s: float = 0.001) -> None:
        self._round_s = round_s
        self._never = threading.Event()

    def __call__(self, call: Call) -> None:
        if call.kind is CallKind.VERIFY:
            self._never.wait(self._round_s)


class HeardLanes:
    """The host, with an ear on what the HTTP side asks of it."""

    def __init__(self, host: LaneHost) -> None:
        self._host = host
        self.submitted: list[Request] = []
        self.has_cancelled = threading.Event()

    @property
    def context_tokens(self) -> int:
        return self._host.context_tokens

    def submit(self, request: Request, sink: Sink) -> None:
        self._host.submit(request, sink)
        self.submitted.append(request)

    def cancel(self, request_id: str) -> None:
        self._host.cancel(request_id)
        self.has_cancelled.set()

    def status(self) -> Status:
        return self._host.status()


@dataclass
class Served:
    """The parts of one server. `replies` maps a last message to its reply, control tokens spelled out."""

    text: ChatText
    backend: FakeBackend
    host: LaneHost
    lanes: HeardLanes
    app: FastAPI
    replies: dict[str, str] = field(default_factory=dict)

    def ask(self, body: Any, *, path: str = "/v1/chat/completions", **more: Any) -> httpx.Response:
        """POST without a socket; a body that is not bytes goes as JSON."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.send("POST", path, content=content, **more)

    def chat(self, content: str = "hi", **fields: Any) -> httpx.Response:
        return self.ask({"messages": [{"role": "user", "content": content}], **fields})

    def send(self, method: str, path: str, **more: Any) -> httpx.Response:
        async def request() -> httpx.Response:
            # an error that escapes the application is a response of 500 here, as it is over a socket
            transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
                return await client.request(method, path, **more)

        return asyncio.run(request())

    def status(self) -> Status:
        return self.host.status()

    def wait_until(self, is_so: Any, within_s: float = 5.0) -> None:
        """Poll the lanes' status until `is_so(status)`; fails when that takes too long."""
        tick = threading.Event()
        for _ in range(int(within_s / 0.01)):
            if is_so(self.status()):
                return
            tick.wait(0.01)
        raise AssertionError(f"not within {within_s} s: {self.status()}")


def is_idle(status: Status) -> bool:
    """Nothing runs or waits, and every session is free."""
    return not status.streams and all(session.request_id is None for session in status.sessions)


@contextlib.contextmanager
def serving(
    text: ChatText,
    *,
    session_rows: Sequence[int] = (4096, 4096, 4096, 4096),
    grow_tokens: int | None = None,
    queue_limit: int | None = None,
    cache_bytes: int = 0,
    clock: Clock | None = None,
    options: ServerOptions | None = None,
    on_call: Callable[[Call], None] = every_call_passes,
) -> Iterator[Served]:
    """A server whose engine runs; closed at the end, and every call its backend saw must have been right."""
    replies = {"hi": "Hello there!", "spell": "<think>\nhm\n</think>\n\nHello 👋 there!"}

    @functools.lru_cache
    def script(prompt: tuple[int, ...]) -> Sequence[int]:
        asked = text.text_of(prompt).rpartition("user\n")[2].partition("assistant\n")[0].strip()
        if asked == RANDOM:
            return ()
        if asked == ENDLESS:
            return tuple(text.vocabulary.encode("on and on ") * 10_000)
        reply = replies.get(asked, "I have nothing to say.")
        return (*text.vocabulary.encode(reply), *sorted(text.eos_ids))

    backend = FakeBackend(
        session_rows, vocab_tokens=410, prompt_pass_rows=256, script=script, on_call=on_call
    )
    clock = clock or WallClock()
    rules = LaneRules(grow_tokens=grow_tokens, cache=CacheRules(cache_bytes, text.start_ids))
    host = LaneHost(backend, rules, clock, queue_limit=queue_limit)
    options = options or ServerOptions(MODEL, aliases=("crab",))
    lanes = HeardLanes(host)
    host.start()
    try:
        yield Served(text, backend, host, lanes, create_app(lanes, text, options, clock), replies)
    finally:
        if isinstance(on_call, Gate):
            on_call.open()
        host.close(drain_s=0.0)
    assert backend.violations == []


@contextlib.contextmanager
def listening(app: FastAPI) -> Iterator[int]:
    """Serve an application on a loopback port of its own, as the real server does; gives the port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="off", timeout_keep_alive=75)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            server.force_exit = True
            thread.join(10)
            assert not thread.is_alive()


def events(response_text: str) -> list[Any]:
    """The data of a stream's events, parsed; the last must be [DONE]."""
    data = [line.removeprefix("data: ") for line in response_text.split("\n") if line.startswith("data: ")]
    assert data[-1] == "[DONE]"
    return [json.loads(item) for item in data[:-1]]


@contextlib.contextmanager
def asking(served: Served, count: int, content: str = "hi", **fields: Any) -> Iterator[list[httpx.Response]]:
    """Clients that ask at the same time, each on a thread; at the end all have been answered."""
    answers: list[httpx.Response] = []
    fields = {"ignore_eos": content == ENDLESS, **fields}
    threads = [
        threading.Thread(target=lambda: answers.append(served.chat(content, **fields))) for _ in range(count)
    ]
    for thread in threads:
        thread.start()
    try:
        yield answers
    finally:
        for thread in threads:
            thread.join(20)
        assert len(answers) == count
