"""Streams over a real socket: headers at once, signs of life, clients that leave in every way and phase."""

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from served import ENDLESS, MODEL, Gate, Served, SlowRounds, events, is_idle, listening, serving
from starlette.types import Message

from hermitcrab.clock import WallClock
from hermitcrab.core.api import Finished, Lanes, Request, Status, StreamState
from hermitcrab.core.fake import CallKind
from hermitcrab.errors import HermitcrabError
from hermitcrab.sampling.params import Sampling
from hermitcrab.server.errors import error_body
from hermitcrab.server.feed import OpenReply
from hermitcrab.server.options import ServerOptions
from hermitcrab.server.sse import COMPLETIONS, EventStream
from hermitcrab.server.text.chat import ChatText


@contextlib.contextmanager
def asked(port: int, content: str = "hi", *, trailing: bytes = b"", **fields: Any) -> Iterator[socket.socket]:
    """A raw client that has sent its chat request."""
    fields = {"ignore_eos": content == ENDLESS, **fields}
    body = {"messages": [{"role": "user", "content": content}], **fields}
    with sent(port, "/v1/chat/completions", body, trailing=trailing) as client:
        yield client


@contextlib.contextmanager
def sent(port: int, path: str, fields: dict[str, Any], *, trailing: bytes = b"") -> Iterator[socket.socket]:
    """A raw client that has sent a request."""
    body = json.dumps(fields).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.sendall(head.encode() + body + trailing)
        yield client


def read_until(client: socket.socket, mark: bytes) -> bytes:
    """What the server sends, up to and with `mark`."""
    got = b""
    while mark not in got:
        more = client.recv(65536)
        assert more, f"the connection closed before {mark!r}: {got!r}"
        got += more
    return got


def closes(client: socket.socket) -> None:
    client.close()


def resets(client: socket.socket) -> None:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


def half_closes(client: socket.socket) -> None:
    client.shutdown(socket.SHUT_WR)


LEAVING = [closes, resets, half_closes]


def has(state: StreamState) -> Callable[[Status], bool]:
    return lambda status: any(stream.state is state for stream in status.streams)


def is_in_the_large_session(status: Status) -> bool:
    return status.sessions[0].request_id is not None


@pytest.fixture(scope="module")
def live(text: ChatText) -> Iterator[tuple[Served, int]]:
    """One large session and a small one, no gate: an endless reply goes on until its client leaves."""
    with (
        serving(text, session_rows=(60_000, 64), grow_tokens=16, on_call=SlowRounds()) as made,
        listening(made.app) as port,
    ):
        yield made, port


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("leave", LEAVING)
def test_a_client_that_leaves_a_running_reply_frees_its_session(
    live: tuple[Served, int], leave: Callable[[socket.socket], None], stream: bool
) -> None:
    served, port = live
    with asked(port, ENDLESS, stream=stream) as client:
        served.wait_until(has(StreamState.LIVE))
        leave(client)
        served.wait_until(is_idle, within_s=1.0)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("leave", LEAVING)
def test_a_client_that_leaves_the_queue_is_forgotten(
    live: tuple[Served, int], leave: Callable[[socket.socket], None], stream: bool
) -> None:
    served, port = live
    with asked(port, ENDLESS) as first:
        served.wait_until(is_in_the_large_session)
        long = "word " * 100
        with asked(port, long, stream=stream) as client:
            served.wait_until(has(StreamState.QUEUED))
            leave(client)
            served.wait_until(lambda status: len(status.streams) == 1, within_s=1.0)
        closes(first)
    served.wait_until(is_idle)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("leave", LEAVING)
def test_a_client_that_leaves_a_paused_reply_frees_its_session(
    live: tuple[Served, int], leave: Callable[[socket.socket], None], stream: bool
) -> None:
    served, port = live
    with asked(port, ENDLESS) as first:
        served.wait_until(is_in_the_large_session)
        with asked(port, ENDLESS, stream=stream) as client:
            served.wait_until(has(StreamState.PAUSED))
            leave(client)
            served.wait_until(lambda status: len(status.streams) == 1, within_s=1.0)
        closes(first)
    served.wait_until(is_idle)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("leave", LEAVING)
def test_a_client_that_leaves_while_its_prompt_is_read_frees_its_session(
    text: ChatText, leave: Callable[[socket.socket], None], stream: bool
) -> None:
    gate = Gate(CallKind.PREFILL)
    with (
        serving(text, on_call=gate) as served,
        listening(served.app) as port,
        asked(port, stream=stream) as client,
    ):
        assert gate.is_reached.wait(5)
        leave(client)
        assert served.lanes.has_cancelled.wait(1.0)
        gate.open()
        served.wait_until(is_idle, within_s=1.0)


OTHER_DIALECTS: dict[str, dict[str, Any]] = {
    "/v1/completions": {"prompt": f"user\n{ENDLESS}assistant\n"},
    "/v1/responses": {"input": ENDLESS},
    "/v1/messages": {"messages": [{"role": "user", "content": ENDLESS}], "max_tokens": 50_000},
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("leave", LEAVING)
@pytest.mark.parametrize("path", OTHER_DIALECTS)
def test_a_client_of_any_dialect_frees_its_session_when_it_leaves(
    live: tuple[Served, int], path: str, leave: Callable[[socket.socket], None], stream: bool
) -> None:
    served, port = live
    fields = {**OTHER_DIALECTS[path], "stream": stream, "ignore_eos": True}
    with sent(port, path, fields) as client:
        served.wait_until(has(StreamState.LIVE))
        leave(client)
        served.wait_until(is_idle, within_s=1.0)


def test_a_client_that_sent_more_than_its_request_is_still_seen_leaving(live: tuple[Served, int]) -> None:
    served, port = live
    with asked(port, ENDLESS, trailing=b"\r\nGET /health HTTP/1.1\r\n") as client:
        served.wait_until(has(StreamState.LIVE))
        closes(client)
        served.wait_until(is_idle, within_s=1.5)


def test_headers_and_a_first_event_come_while_the_request_still_waits(text: ChatText) -> None:
    gate = Gate(CallKind.PREFILL)
    with (
        serving(text, on_call=gate) as served,
        listening(served.app) as port,
        asked(port, stream=True) as client,
    ):
        head = read_until(client, b'"role":"assistant"')
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"content-type: text/event-stream" in head
        gate.open()
        read_until(client, b"data: [DONE]\n\n")


def test_a_waiting_stream_shows_signs_of_life(text: ChatText) -> None:
    gate = Gate(CallKind.PREFILL)
    options = ServerOptions(MODEL, keepalive_s=0.05)
    with (
        serving(text, on_call=gate, options=options) as served,
        listening(served.app) as port,
        asked(port, stream=True) as client,
    ):
        read_until(client, b": keepalive\n\n")
        read_until(client, b": keepalive\n\n")
        gate.open()
        read_until(client, b"data: [DONE]\n\n")


def test_a_stream_whose_tokens_show_nothing_yet_gives_signs_of_life_too(text: ChatText) -> None:
    """A call is shown whole, so a long one is silent while it is written."""
    tool = {"type": "function", "function": {"name": "f"}}
    gate = Gate(CallKind.KEEP)
    options = ServerOptions(MODEL, keepalive_s=0.05)
    with serving(text, on_call=gate, options=options) as served, listening(served.app) as port:
        served.replies["call"] = "<tool_call>\n<function=f>\n</function>\n</tool_call>"
        with asked(port, "call", stream=True, tools=[tool], enable_thinking=False) as client:
            assert b"tool_calls" not in read_until(client, b": keepalive\n\n")
            gate.open()
            assert b'"name":"f"' in read_until(client, b"data: [DONE]\n\n")


def test_keepalives_come_often_enough_by_default() -> None:
    assert ServerOptions(MODEL).keepalive_s < 5.0


def test_a_connection_serves_one_request_after_another(live: tuple[Served, int]) -> None:
    _, port = live
    with asked(port, stream=True) as client:
        read_until(client, b"data: [DONE]\n\n")
        client.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        read_until(client, b'"status":"ok"')


def test_a_client_that_takes_nothing_is_dropped_and_harms_nobody(text: ChatText) -> None:
    body = json.dumps(
        {"messages": [{"role": "user", "content": ENDLESS}], "ignore_eos": True, "stream": True}
    )
    inbox: list[Message] = [{"type": "http.request", "body": body.encode(), "more_body": False}]

    async def receive() -> Message:
        return inbox.pop() if inbox else await asyncio.Future()

    async def send(message: Message) -> None:
        if message["type"] == "http.response.body":
            await asyncio.Future()

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/chat/completions",
        "headers": [],
        "query_string": b"",
    }
    options = ServerOptions(MODEL, slow_client_s=0.05)
    with serving(text, session_rows=(60_000, 60_000), options=options, on_call=SlowRounds()) as served:
        asyncio.run(asyncio.wait_for(served.app(scope, receive, send), 5))
        served.wait_until(is_idle)
        assert served.chat("hi").status_code == 200


def test_health_answers_while_many_streams_are_open(text: ChatText) -> None:
    gate = Gate(CallKind.PREFILL)
    with (
        serving(text, on_call=gate) as served,
        listening(served.app) as port,
        contextlib.ExitStack() as clients,
    ):
        for _ in range(50):
            read_until(clients.enter_context(asked(port, stream=True)), b'"role":"assistant"')
        assert len(served.lanes.submitted) == 50
        assert served.send("GET", "/health").status_code == 200
        clients.close()
        gate.open()
        served.wait_until(is_idle)


def test_a_client_that_leaves_before_its_request_is_whole_is_no_error(
    live: tuple[Served, int], caplog: pytest.LogCaptureFixture
) -> None:
    served, port = live
    before = len(served.lanes.submitted)
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 999\r\n\r\n{")
    with asked(port, stream=True) as client:
        read_until(client, b"data: [DONE]\n\n")
    assert len(served.lanes.submitted) == before + 1
    assert caplog.records == []


@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_client_can_read_why_its_huge_body_is_refused(text: ChatText, is_chunked: bool) -> None:
    body = b"x" * 4_000_000
    with (
        serving(text, options=ServerOptions(MODEL, max_body_bytes=100_000)) as served,
        listening(served.app) as port,
        httpx.Client(base_url=f"http://127.0.0.1:{port}") as client,
    ):
        answer = client.post("/v1/chat/completions", content=iter([body]) if is_chunked else body)
        assert answer.status_code == 413
        assert client.get("/health").status_code == 200


def test_a_body_that_drips_in_holds_up_nobody(live: tuple[Served, int]) -> None:
    _, port = live
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 49\r\n\r\n"
    body = b'{"messages":[{"role":"user","content":"hi"}]}    '
    with socket.create_connection(("127.0.0.1", port), timeout=10) as slow:
        slow.sendall(head + body[:10])
        with asked(port, stream=True) as quick:
            read_until(quick, b"data: [DONE]\n\n")
        for byte in body[10:]:
            slow.sendall(bytes([byte]))
        assert b"200 OK" in read_until(slow, b'"finish_reason":"stop"')


class BrokenWriter:
    """A writer with a bug in it."""

    def open(self) -> list[dict[str, Any]]:
        return []

    def tokens(self, ids: tuple[int, ...]) -> list[dict[str, Any]]:
        raise ZeroDivisionError("secret")

    def close(self, finished: Finished) -> list[dict[str, Any]]:
        return []

    def fail(self, error: HermitcrabError) -> list[dict[str, Any]]:
        return [error_body(error)]


def test_a_bug_of_ours_in_a_stream_is_an_error_event_and_done(
    text: ChatText, caplog: pytest.LogCaptureFixture
) -> None:
    sent: list[Message] = []

    async def receive() -> Message:
        return await asyncio.Future()

    async def send(message: Message) -> None:
        sent.append(message)

    async def stream(lanes: Lanes) -> None:
        reply = OpenReply(lanes, [Request("a", text.raw_prompt(ENDLESS).ids, Sampling())])
        stream = EventStream(reply, [BrokenWriter()], COMPLETIONS, ServerOptions(MODEL), WallClock())
        await stream({}, receive, send)

    with serving(text, session_rows=(60_000,), on_call=SlowRounds()) as served:
        asyncio.run(asyncio.wait_for(stream(served.lanes), 5))
        served.wait_until(is_idle)
    (error,) = events(b"".join(message.get("body", b"") for message in sent).decode())
    assert error["error"]["type"] == "server_error"
    assert "secret" not in error["error"]["message"]
    assert "ZeroDivisionError" in caplog.text
