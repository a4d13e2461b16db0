"""The operator's key: where there is one, every path asks for it but the probes and the page itself."""

import hmac

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from hermitcrab.errors import WrongKey
from hermitcrab.server.errors import error_response

# probes bring no key; the page is a static file that asks its reader for it
OPEN_PATHS = frozenset({"/", "/health", "/ready"})


class KeyCheck:
    """Lets a request through only if it brings the key, as a bearer token or as `x-api-key`.

    The comparison takes the same time for any wrong key.
    """

    def __init__(self, app: ASGIApp, *, key: str) -> None:
        self._app = app
        self._key = key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in OPEN_PATHS and not self._is_right(scope):
            await error_response(WrongKey(), scope["path"])(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _is_right(self, scope: Scope) -> bool:
        headers = Headers(scope=scope)
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        given = [headers.get("x-api-key", ""), bearer if scheme.lower() == "bearer" else ""]
        return any(hmac.compare_digest(key.strip().encode("latin-1"), self._key) for key in given)
