"""A reply as server-sent events: headers at once, a sign of life while nothing comes, `[DONE]` at the end."""

import asyncio
import json
import logging
from collections.abc import Iterable
from typing import Any, Protocol

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from hermitcrab.clock import Clock
from hermitcrab.core.api import Event, Failed, Finished, FinishReason, Progressed, Tokens
from hermitcrab.errors import HermitcrabError, ShuttingDown
from hermitcrab.server.errors import OUR_FAULT, error_body, plain_error_body
from hermitcrab.server.feed import OpenReply
from hermitcrab.server.options import ServerOptions
from hermitcrab.server.presence import ClientLeft, while_connected

logger = logging.getLogger(__name__)

KEEPALIVE = b": keepalive\n\n"
DONE = b"data: [DONE]\n\n"


class ChunkWriter(Protocol):
    """Turns one reply's events into the chunks of its API dialect."""

    def open(self) -> Iterable[dict[str, Any]]:
        """Chunks that come before any token."""
        ...

    def tokens(self, ids: tuple[int, ...]) -> Iterable[dict[str, Any]]:
        """Chunks for reply tokens."""
        ...

    def close(self, finished: Finished) -> Iterable[dict[str, Any]]:
        """Chunks that end a whole reply."""
        ...


def cut_off() -> ShuttingDown:
    """The error for a reply that was cancelled under a client that still waits for it."""
    return ShuttingDown("The server is shutting down; this reply was cut off.", retry_after_s=5)


class EventStream(Response):
    """Streams an open reply; a client that leaves, or takes nothing for too long, cancels it."""

    media_type = "text/event-stream"

    def __init__(self, reply: OpenReply, writer: ChunkWriter, options: ServerOptions, clock: Clock) -> None:
        self.status_code = 200
        self.background = None
        self.init_headers({"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        self._reply = reply
        self._writer = writer
        self._options = options
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await while_connected(receive, self._stream(send))
        except ClientLeft:
            logger.debug("the client of %s left before its end", self._reply.request.id)
        except TimeoutError:
            logger.warning(
                "the client of %s took nothing for too long and was dropped", self._reply.request.id
            )
        finally:
            self._reply.close()

    async def _stream(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        try:
            await self._send(send, b"".join(map(_frame, self._writer.open())) or KEEPALIVE)
            while not self._reply.has_ended:
                await self._send(send, await self._next_bytes())
        except TimeoutError:
            raise
        except Exception:
            logger.exception("a stream failed while it was written")
            await self._send(send, _frame(plain_error_body(OUR_FAULT, kind="server_error")))
        await self._send(send, DONE)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send(self, send: Send, body: bytes) -> None:
        async with asyncio.timeout(self._options.slow_client_s):
            await send({"type": "http.response.body", "body": body, "more_body": True})

    async def _next_bytes(self) -> bytes:
        """The next bytes to send; a comment when nothing that shows comes in time."""
        due_s = self._clock.now_s() + self._options.keepalive_s
        while True:
            event = await self._reply.next(within_s=max(0.0, due_s - self._clock.now_s()))
            shown = b"" if event is None else b"".join(map(_frame, self._chunks(event)))
            if shown or self._reply.has_ended:
                return shown
            if event is None or self._clock.now_s() >= due_s:
                return KEEPALIVE

    def _chunks(self, event: Event) -> Iterable[dict[str, Any]]:
        match event:
            case Progressed():
                return ()
            case Tokens():
                return self._writer.tokens(event.ids)
            case Finished(reason=FinishReason.CANCELLED):
                return (_error(cut_off()),)
            case Finished():
                return self._writer.close(event)
            case Failed():
                return (_error(event.error),)


def _error(error: HermitcrabError) -> dict[str, Any]:
    return error_body(error)


def _frame(chunk: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(chunk, ensure_ascii=False, separators=(',', ':'))}\n\n".encode()
