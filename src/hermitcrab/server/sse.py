"""A reply as server-sent events: headers at once, a sign of life while nothing comes, a clear end."""

import asyncio
import json
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from hermitcrab.clock import Clock
from hermitcrab.core.api import Failed, Finished, FinishReason, Progressed, Tokens
from hermitcrab.errors import HermitcrabError, ShuttingDown
from hermitcrab.server.errors import OUR_FAULT
from hermitcrab.server.feed import Heard, OpenReply
from hermitcrab.server.options import ServerOptions
from hermitcrab.server.presence import ClientLeft, while_connected

logger = logging.getLogger(__name__)

Chunk = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Framing:
    """How a dialect writes its stream: whether events carry their type as a name, a sign of life, the end."""

    has_names: bool
    keepalive: bytes
    end: bytes

    def frame(self, chunk: Chunk) -> bytes:
        """One event."""
        name = f"event: {chunk['type']}\n" if self.has_names else ""
        return f"{name}data: {json.dumps(chunk, ensure_ascii=False, separators=(',', ':'))}\n\n".encode()


_COMMENT, _DONE = b": keepalive\n\n", b"data: [DONE]\n\n"

COMPLETIONS = Framing(has_names=False, keepalive=_COMMENT, end=_DONE)
RESPONSES = Framing(has_names=True, keepalive=_COMMENT, end=_DONE)
MESSAGES = Framing(has_names=True, keepalive=b'event: ping\ndata: {"type":"ping"}\n\n', end=b"")


class ChunkWriter(Protocol):
    """Turns the events of one choice into the chunks of its API dialect."""

    def open(self) -> Iterable[Chunk]:
        """Chunks that come before any token."""
        ...

    def tokens(self, told: Tokens) -> Iterable[Chunk]:
        """Chunks for reply tokens."""
        ...

    def close(self, finished: Finished) -> Iterable[Chunk]:
        """Chunks that end a whole reply."""
        ...

    def fail(self, error: HermitcrabError) -> Iterable[Chunk]:
        """Chunks that end a stream whose reply cannot go on; must not raise."""
        ...


def cut_off() -> ShuttingDown:
    """The error for a reply that was cancelled under a client that still waits for it."""
    return ShuttingDown("The server is shutting down; this reply was cut off.", retry_after_s=5)


class EventStream(Response):
    """Streams an open reply; a client that leaves, or takes nothing for too long, cancels it."""

    media_type = "text/event-stream"

    def __init__(
        self,
        reply: OpenReply,
        writers: Sequence[ChunkWriter],
        framing: Framing,
        options: ServerOptions,
        clock: Clock,
    ) -> None:
        """Stream `reply`, whose choices have a writer each."""
        self.status_code = 200
        self.background = None
        self.init_headers({"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        self._reply = reply
        self._writers = writers
        self._framing = framing
        self._options = options
        self._clock = clock
        self._has_failed = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        name = self._reply.requests[0].id
        try:
            await while_connected(receive, self._stream(send))
        except ClientLeft:
            logger.debug("the client of %s left before its end", name)
        except TimeoutError:
            logger.warning("the client of %s took nothing for too long and was dropped", name)
        finally:
            self._reply.close()

    async def _stream(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        try:
            opening = (chunk for writer in self._writers for chunk in writer.open())
            await self._send(send, self._framed(opening) or self._framing.keepalive)
            while not self._is_over:
                await self._send(send, await self._next_bytes())
        except TimeoutError:
            raise
        except Exception:
            logger.exception("a stream failed while it was written")
            await self._send(send, self._framed(self._writers[0].fail(HermitcrabError(OUR_FAULT))))
        await self._send(send, self._framing.end)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send(self, send: Send, body: bytes) -> None:
        async with asyncio.timeout(self._options.slow_client_s):
            await send({"type": "http.response.body", "body": body, "more_body": True})

    @property
    def _is_over(self) -> bool:
        # one choice that fails takes the others with it: the client gets one error, and the end
        return self._reply.has_ended or self._has_failed

    async def _next_bytes(self) -> bytes:
        """The next bytes to send; a sign of life when nothing that shows comes in time."""
        due_s = self._clock.now_s() + self._options.keepalive_s
        while True:
            heard = await self._reply.next(within_s=max(0.0, due_s - self._clock.now_s()))
            shown = b"" if heard is None else self._framed(self._chunks(heard))
            if shown or self._is_over:
                return shown
            if heard is None or self._clock.now_s() >= due_s:
                return self._framing.keepalive

    def _chunks(self, heard: Heard) -> Iterable[Chunk]:
        writer = self._writers[heard.choice]
        match heard.event:
            case Progressed():
                return ()
            case Tokens() as told:
                return writer.tokens(told)
            case Finished(reason=FinishReason.CANCELLED):
                return self._failure(writer, cut_off())
            case Finished() as finished:
                return writer.close(finished)
            case Failed(error=error):
                return self._failure(writer, error)

    def _failure(self, writer: ChunkWriter, error: HermitcrabError) -> Iterable[Chunk]:
        self._has_failed = True
        return writer.fail(error)

    def _framed(self, chunks: Iterable[Chunk]) -> bytes:
        return b"".join(map(self._framing.frame, chunks))
