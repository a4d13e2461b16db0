"""Whether a client is still there: work for one that has left is dropped."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.types import Receive

# uvicorn stops reading from a client that sent more than its request; asking again makes it look once more
_LOOK_AGAIN_S = 0.5

# what a log would call an answer that nobody was left to read; no client ever sees it
CLIENT_LEFT_STATUS = 499

_RESULT = TypeVar("_RESULT")


class ClientLeft(Exception):
    """The client has closed its side; nobody waits for the work."""


async def while_connected(receive: Receive, work: Coroutine[Any, Any, _RESULT]) -> _RESULT:
    """The result of `work`, unless the client leaves first: then `work` is cancelled and ClientLeft raised.

    The request's body must have been read. A closed, reset or half-closed connection all count as leaving.
    """
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_until_left(receive))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientLeft
        return working.result()
    finally:
        working.cancel()
        leaving.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _until_left(receive: Receive) -> None:
    while True:
        try:
            message = await asyncio.wait_for(receive(), _LOOK_AGAIN_S)
        except TimeoutError:
            continue
        if message["type"] == "http.disconnect":
            return
