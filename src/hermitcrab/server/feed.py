"""One request's events, carried from the engine thread to the event loop."""

import asyncio
from collections import deque

from hermitcrab.core.api import Event, Failed, Finished, Lanes, Request


class Feed:
    """The sink of one request: the engine thread puts, one coroutine takes, in order."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._events: deque[Event] = deque()
        self._has_news = asyncio.Event()

    def put(self, event: Event) -> None:
        """Take an event, on any thread; when the loop has ended there is nobody left to hear it."""
        self._events.append(event)
        try:
            self._loop.call_soon_threadsafe(self._has_news.set)
        except RuntimeError:
            # the loop is closed: its clients went with it
            self._events.clear()

    async def next(self, within_s: float | None = None) -> Event | None:
        """The next event; None if none comes within the time."""
        while not self._events:
            self._has_news.clear()
            try:
                await asyncio.wait_for(self._has_news.wait(), within_s)
            except TimeoutError:
                return None
        return self._events.popleft()


class OpenReply:
    """A submitted request, from the side of the client that waits for it."""

    def __init__(self, lanes: Lanes, request: Request) -> None:
        """Submit the request. Raises what `Lanes.submit` raises."""
        self._lanes = lanes
        self._feed = Feed(asyncio.get_running_loop())
        self._has_ended = False
        self.request = request
        lanes.submit(request, self._feed)

    @property
    def has_ended(self) -> bool:
        """True once the terminal event has been taken."""
        return self._has_ended

    async def next(self, within_s: float | None = None) -> Event | None:
        """The next event; None if none comes within the time."""
        event = await self._feed.next(within_s)
        self._has_ended = isinstance(event, Finished | Failed)
        return event

    def close(self) -> None:
        """The client is served or gone: a request that has not ended is cancelled."""
        if not self._has_ended:
            self._lanes.cancel(self.request.id)
