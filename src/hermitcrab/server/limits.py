"""Bodies over the limit are refused while they are read: no more than the limit is ever held."""

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hermitcrab.errors import BodyTooLarge
from hermitcrab.server.errors import error_response


class BodyLimit:
    """Answers 413 by the declared length at once, or raises BodyTooLarge where the body passes the limit."""

    def __init__(self, app: ASGIApp, *, limit_bytes: int) -> None:
        self._app = app
        self._limit_bytes = limit_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        declared = Headers(scope=scope).get("content-length", "0")
        if not declared.isascii() or not declared.isdigit() or int(declared[:20]) > self._limit_bytes:
            await error_response(BodyTooLarge(limit_bytes=self._limit_bytes), scope["path"])(
                scope, receive, send
            )
            return
        read_bytes = 0

        async def receive_within_limit() -> Message:
            nonlocal read_bytes
            message = await receive()
            read_bytes += len(message.get("body", b""))
            if read_bytes > self._limit_bytes:
                raise BodyTooLarge(limit_bytes=self._limit_bytes)
            return message

        await self._app(scope, receive_within_limit, send)
