"""The engine thread: what any thread asks, one thread does. The only module with a lock.

The thread runs a `HostLoop`. Requests and cancels wait in an inbox until the loop is between two steps;
what they get back goes through their sinks.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hermitcrab.clock import Clock, WallClock
from hermitcrab.core.api import Request, Sink, Status
from hermitcrab.core.backend import Backend
from hermitcrab.core.lanes import LaneRules
from hermitcrab.core.loop import HostLoop
from hermitcrab.core.recorder import LineFile, Recorder
from hermitcrab.core.recording import RecordedLoop
from hermitcrab.core.stream import Limits
from hermitcrab.core.trail import LogTracer, LoopFailed, Tracer
from hermitcrab.errors import LaneError, QueueFull, RequestError, ShuttingDown

# how long the thread sleeps unless woken: with nothing to do, and with streams that all wait for memory
IDLE_TICK_S = 0.5
STALLED_TICK_S = 0.02

# what a refused client is told; replies take seconds to minutes
RETRY_AFTER_S = 5


@dataclass(frozen=True, slots=True)
class _Submission:
    request: Request
    limits: Limits
    sink: Sink
    submitted_s: float


class LaneHost:
    """Implements `Lanes` of core/api.py on a thread of its own.

    `queue_limit` is how many requests may wait beside those that have a session; None: any number.
    `trail` is where to write down what comes in and what is done.
    """

    def __init__(
        self,
        backend: Backend,
        rules: LaneRules,
        clock: Clock | None = None,
        *,
        queue_limit: int | None = None,
        tracers: Sequence[Tracer] = (LogTracer(),),
        trail: LineFile | None = None,
    ) -> None:
        self._clock: Clock = WallClock() if clock is None else clock
        self._loop = (
            HostLoop(backend, rules, self._clock, tracers)
            if trail is None
            else RecordedLoop(backend, rules, Recorder(trail, self._clock), tracers)
        )
        self._queue_limit = queue_limit
        self._wake = threading.Condition()
        self._submissions: list[_Submission] = []
        self._cancels: list[str] = []
        self._settled_waiting = 0
        self._free_sessions = self._loop.free_count
        self._close_by_s: float | None = None
        self._tick_s = self._clock.now_s()
        self._thread = threading.Thread(target=self._run, name="lanes", daemon=True)

    @property
    def context_tokens(self) -> int:
        return self._loop.gate.context_tokens

    def start(self) -> None:
        """Start the engine thread; before that, requests only queue."""
        self._thread.start()

    def submit(self, request: Request, sink: Sink) -> None:
        limits = self._loop.gate.limits(request)
        with self._wake:
            if self._close_by_s is not None:
                raise ShuttingDown("The server is shutting down.", retry_after_s=RETRY_AFTER_S)
            if self._loop.has(request.id) or any(item.request.id == request.id for item in self._submissions):
                raise RequestError(f"A request with the id {request.id!r} is already here.")
            self._check_queue()
            self._submissions.append(_Submission(request, limits, sink, self._clock.now_s()))
            self._wake.notify()

    def cancel(self, request_id: str) -> None:
        with self._wake:
            self._cancels.append(request_id)
            self._wake.notify()

    def status(self) -> Status:
        return replace(
            self._loop.snapshot,
            tick_age_s=max(0.0, self._clock.now_s() - self._tick_s),
            is_draining=self._close_by_s is not None,
        )

    def close(self, *, drain_s: float) -> None:
        """Return when every request has had its terminal event.

        Takes no more requests, fails those in the queue, lets the others run for `drain_s`, fails what is
        left. A second call may only shorten the time.
        """
        with self._wake:
            close_by_s = self._clock.now_s() + drain_s
            self._close_by_s = close_by_s if self._close_by_s is None else min(self._close_by_s, close_by_s)
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join()
        else:
            self._finish()

    def _check_queue(self) -> None:
        if self._queue_limit is None:
            return
        # what came since the last step may still find a session
        arriving = self._settled_waiting + len(self._submissions)
        if self._settled_waiting >= self._queue_limit or arriving >= self._queue_limit + self._free_sessions:
            raise QueueFull(
                f"As many requests wait as this server allows ({self._queue_limit}). Try again later.",
                retry_after_s=RETRY_AFTER_S,
            )

    def _run(self) -> None:
        has_worked = True
        while True:
            with self._wake:
                is_woken = self._submissions or self._cancels or self._close_by_s is not None
                if not has_worked and not is_woken:
                    self._wake.wait(STALLED_TICK_S if self._loop.has_requests else IDLE_TICK_S)
                cancels = self._take_inbox()
            has_worked = self._turn(cancels)
            with self._wake:
                self._settled_waiting = self._loop.waiting_count
                self._free_sessions = self._loop.free_count
            if self._is_over():
                self._finish()
                return

    def _take_inbox(self) -> list[str]:
        """Queue what was submitted, return what was cancelled; under the lock: no id is in between."""
        for item in self._submissions:
            self._loop.enqueue(item.request, item.limits, item.sink, submitted_s=item.submitted_s)
        self._settled_waiting = self._loop.waiting_count
        self._submissions = []
        cancels, self._cancels = self._cancels, []
        return cancels

    def _turn(self, cancels: Sequence[str]) -> bool:
        """Cancel, then step; an error of our own ends every request, and the next ones are served."""
        try:
            self._tick_s = self._clock.now_s()
            for request_id in cancels:
                self._loop.cancel(request_id)
            if self._close_by_s is not None and not self._loop.is_draining:
                self._loop.drain(self._shutting_down())
            return self._loop.step()
        except Exception as error:  # noqa: BLE001 - whatever it was, every client must hear its end
            self._loop.engine.note(LoopFailed(error))
            self._loop.end_all(LaneError(f"the engine loop failed: {error}"))
            return False

    def _is_over(self) -> bool:
        return self._close_by_s is not None and (
            not self._loop.has_requests or self._clock.now_s() >= self._close_by_s
        )

    def _finish(self) -> None:
        with self._wake:
            self._take_inbox()
        self._loop.drain(self._shutting_down())
        self._loop.end_all(self._shutting_down())

    def _shutting_down(self) -> ShuttingDown:
        return ShuttingDown("The server is shutting down.", retry_after_s=RETRY_AFTER_S)
