"""The operator's key: every path but /health asks for it when there is one."""

import hmac

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from hermitcrab.errors import WrongKey
from hermitcrab.server.errors import error_response

OPEN_PATHS = frozenset({"/health"})


class KeyCheck:
    """Lets a request through only if it brings the key as a bearer token; compares in constant time."""

    def __init__(self, app: ASGIApp, *, key: str) -> None:
        self._app = app
        self._key = key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in OPEN_PATHS and not self._is_right(scope):
            await error_response(WrongKey())(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _is_right(self, scope: Scope) -> bool:
        scheme, _, key = Headers(scope=scope).get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and hmac.compare_digest(key.strip().encode("latin-1"), self._key)
