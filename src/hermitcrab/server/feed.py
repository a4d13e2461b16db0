"""One request's events, carried from the engine thread to the event loop."""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from hermitcrab.core.api import Event, Failed, Finished, Lanes, Request


@dataclass(frozen=True, slots=True)
class Heard:
    """An event, and which of a request's choices it belongs to."""

    choice: int
    event: Event


class Feed:
    """Where the events of a request's choices meet: the engine thread puts, one coroutine takes, in order."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._heard: deque[Heard] = deque()
        self._has_news = asyncio.Event()

    def put(self, choice: int, event: Event) -> None:
        """Take an event, on any thread; when the loop has ended there is nobody left to hear it."""
        self._heard.append(Heard(choice, event))
        try:
            self._loop.call_soon_threadsafe(self._has_news.set)
        except RuntimeError:
            # the loop is closed: its clients went with it
            self._heard.clear()

    async def next(self, within_s: float | None = None) -> Heard | None:
        """The next event; None if none comes within the time."""
        while not self._heard:
            self._has_news.clear()
            try:
                await asyncio.wait_for(self._has_news.wait(), within_s)
            except TimeoutError:
                return None
        return self._heard.popleft()


class ChoiceSink:
    """The sink of one choice."""

    def __init__(self, feed: Feed, choice: int) -> None:
        self._feed = feed
        self._choice = choice

    def put(self, event: Event) -> None:
        """Take an event, on any thread."""
        self._feed.put(self._choice, event)


class OpenReply:
    """A submitted request, one or more choices of it, from the side of the client that waits for them."""

    def __init__(self, lanes: Lanes, requests: Sequence[Request]) -> None:
        """Submit a request for each choice. Raises what `Lanes.submit` raises; then none of them stays."""
        self._lanes = lanes
        self._feed = Feed(asyncio.get_running_loop())
        self._running: set[int] = set()
        self.requests = tuple(requests)
        try:
            for choice, request in enumerate(self.requests):
                lanes.submit(request, ChoiceSink(self._feed, choice))
                self._running.add(choice)
        except BaseException:
            self.close()
            raise

    @property
    def has_ended(self) -> bool:
        """True once every choice's terminal event has been taken."""
        return not self._running

    async def next(self, within_s: float | None = None) -> Heard | None:
        """The next event; None if none comes within the time."""
        heard = await self._feed.next(within_s)
        if heard is not None and isinstance(heard.event, Finished | Failed):
            self._running.discard(heard.choice)
        return heard

    def close(self) -> None:
        """The client is served or gone: choices that have not ended are cancelled."""
        for choice in self._running:
            self._lanes.cancel(self.requests[choice].id)
