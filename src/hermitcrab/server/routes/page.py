"""GET /: the page that shows the lanes at work. One file; a browser asks nobody else for anything."""

import base64
import hashlib
import re
from importlib.resources import files

from fastapi import APIRouter
from starlette.responses import HTMLResponse

from hermitcrab.server.schema import gives


def page_routes() -> APIRouter:
    """The route; the page is read once."""
    router = APIRouter()
    text = (files("hermitcrab.server") / "page.html").read_text(encoding="utf-8")
    headers = {"Content-Security-Policy": _policy(text), "Cache-Control": "no-cache"}

    @router.get("/", response_class=HTMLResponse, responses=gives(media_type="text/html"))
    async def page() -> HTMLResponse:
        """The page; it holds no secret, and asks for the key itself where there is one."""
        return HTMLResponse(text, headers=headers)

    return router


def _policy(text: str) -> str:
    """Nothing but the page's own script and style, by their digests, and requests to this server."""
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    return (
        f"default-src 'none'; script-src {_digest(script)}; style-src {_digest(style)}; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
