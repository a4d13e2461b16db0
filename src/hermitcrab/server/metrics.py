"""What GET /metrics tells: the status as Prometheus metrics, made when asked; nothing is counted twice.

docs/operations.md has every name with its meaning; a test holds the two together.
"""

from collections import Counter
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import hermitcrab
from hermitcrab.cache.store import CacheStatus
from hermitcrab.core.api import Lanes, SessionStatus, Status, StreamState
from hermitcrab.core.timings import Histogram
from hermitcrab.server.options import ServerOptions

_PREFIX = "hermitcrab_"


class ResponseCounts:
    """How many HTTP responses were begun, by status; used on the event loop only."""

    def __init__(self) -> None:
        self.by_status: Counter[int] = Counter()


class CountResponses:
    """Counts every response that leaves the application, and an error that escapes it as a 500."""

    def __init__(self, app: ASGIApp, *, counts: ResponseCounts) -> None:
        self._app = app
        self._counts = counts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        has_begun = False

        async def send_counted(message: Message) -> None:
            nonlocal has_begun
            if message["type"] == "http.response.start":
                has_begun = True
                self._counts.by_status[message["status"]] += 1
            await send(message)

        try:
            await self._app(scope, receive, send_counted)
        except Exception:
            if not has_begun:
                self._counts.by_status[500] += 1
            raise


def make_registry(lanes: Lanes, options: ServerOptions, responses: ResponseCounts) -> CollectorRegistry:
    """A registry of this application alone: its lanes, its responses, its process where /proc tells of it."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    registry.register(_ServerCollector(lanes, options, responses))
    return registry


class _ServerCollector(Collector):
    def __init__(self, lanes: Lanes, options: ServerOptions, responses: ResponseCounts) -> None:
        self._lanes = lanes
        self._options = options
        self._responses = responses

    def collect(self) -> Iterator[Metric]:
        status = self._lanes.status()
        info = _gauge("info", "1; version and model are its labels", ["version", "model"])
        info.add_metric([hermitcrab.__version__, self._options.model_id], 1)
        yield info
        yield from _state(status)
        yield from _sessions(status.sessions)
        if self._options.session_bytes is not None:
            yield _gauge("session_bytes", "Bytes of all sessions", value=self._options.session_bytes)
        yield from _totals(status)
        responses = _counter("http_responses", "HTTP responses, by status", ["status"])
        for code, count in sorted(self._responses.by_status.items()):
            responses.add_metric([str(code)], count)
        yield responses
        timings = status.timings
        yield _histogram("queue_seconds", "From submission to a session", timings.queue)
        yield _histogram("first_token_seconds", "From submission to the first token", timings.first_token)
        yield _histogram("token_seconds", "Decode time by token after the first", timings.token)
        yield _histogram("pause_seconds", "Waits for a larger session", timings.pause)


def _state(status: Status) -> Iterator[Metric]:
    requests = _gauge("requests", "Requests that are here, by what they do", ["state"])
    states = [stream.state for stream in status.streams]
    for state in StreamState:
        requests.add_metric([state.value], states.count(state))
    yield requests
    yield _gauge(
        "tokens_per_second", "Reply tokens a second over the last two seconds", value=status.tokens_per_s
    )
    yield _gauge(
        "tick_age_seconds", "Since the engine thread last went round its loop", value=status.tick_age_s
    )
    yield _gauge("draining", "1 while the server ends", value=float(status.is_draining))


def _sessions(sessions: tuple[SessionStatus, ...]) -> Iterator[Metric]:
    by_size: dict[int, list[SessionStatus]] = {}
    for session in sorted(sessions, key=lambda session: session.capacity_rows):
        by_size.setdefault(session.capacity_rows, []).append(session)
    total = _gauge("sessions", "Sessions of a size", ["capacity_rows"])
    used = _gauge("sessions_used", "Sessions of a size with a stream inside", ["capacity_rows"])
    rows = _gauge("session_rows", "Rows that sessions of a size hold together", ["capacity_rows"])
    rows_used = _gauge("session_rows_used", "Rows in use in sessions of a size", ["capacity_rows"])
    for capacity_rows, alike in by_size.items():
        labels = [str(capacity_rows)]
        total.add_metric(labels, len(alike))
        used.add_metric(labels, sum(session.request_id is not None for session in alike))
        rows.add_metric(labels, capacity_rows * len(alike))
        rows_used.add_metric(labels, sum(session.used_rows for session in alike))
    yield from (total, used, rows, rows_used)


def _totals(status: Status) -> Iterator[Metric]:
    ended = _counter("requests_ended", "Requests that had their end, by outcome", ["outcome"])
    ended.add_metric(["stop"], status.requests_finished - status.ended_by_length)
    ended.add_metric(["length"], status.ended_by_length)
    ended.add_metric(["cancelled"], status.requests_cancelled)
    ended.add_metric(["failed"], status.requests_failed)
    yield ended
    yield _counter("prompt_tokens", "Prompt tokens read", value=status.prompt_tokens)
    yield from _cache(status.cache)
    yield _counter(
        "reply_tokens", "Reply tokens drawn, the end-of-text token included", value=status.reply_tokens
    )
    yield _counter("rounds", "Rounds, each one forward for all its streams", value=status.rounds)
    drafted = _counter("drafted_tokens", "Draft tokens checked, by where they came from", ["source"])
    drafted.add_metric(["head"], status.drafted - status.copied)
    drafted.add_metric(["copy"], status.copied)
    yield drafted
    accepted = _counter("accepted_tokens", "Draft tokens that became part of a reply", ["source"])
    accepted.add_metric(["head"], status.accepted - status.copies_accepted)
    accepted.add_metric(["copy"], status.copies_accepted)
    yield accepted
    handed = _counter("hand_overs", "Times a stream went into the lone driver, or came back from it", ["to"])
    handed.add_metric(["lone"], status.handed_to_lone)
    handed.add_metric(["shared"], status.handed_to_shared)
    yield handed
    yield _counter("moves", "Moves of a stream to a larger session", value=status.moves)
    yield _counter("pauses", "Times a stream had to wait for a larger session", value=status.pauses)


def _cache(cache: CacheStatus) -> Iterator[Metric]:
    yield _gauge("cache_budget_bytes", "Bytes that kept prompt states may take", value=cache.budget_bytes)
    yield _gauge("cache_bytes", "Bytes that kept prompt states take", value=cache.bytes)
    yield _gauge("cache_states", "Prompt states that are kept", value=cache.states)
    lookups = _counter("cache_requests", "Requests begun, by whether a kept state was found", ["result"])
    lookups.add_metric(["hit"], cache.hits)
    lookups.add_metric(["miss"], cache.misses)
    yield lookups
    yield _counter("cached_tokens", "Prompt tokens that kept states saved", value=cache.reused_tokens)
    yield _counter("cache_kept", "Prompt states kept", value=cache.kept)
    yield _counter("cache_evicted", "Prompt states let go for others", value=cache.evicted)


def _gauge(
    name: str, meaning: str, labels: list[str] | None = None, *, value: float | None = None
) -> GaugeMetricFamily:
    return GaugeMetricFamily(_PREFIX + name, f"{meaning}.", value=value, labels=labels)


def _counter(
    name: str, meaning: str, labels: list[str] | None = None, *, value: float | None = None
) -> CounterMetricFamily:
    return CounterMetricFamily(_PREFIX + name, f"{meaning}.", value=value, labels=labels)


def _histogram(name: str, meaning: str, histogram: Histogram) -> HistogramMetricFamily:
    bounds = [*map(str, histogram.bounds_s), "+Inf"]
    buckets, below = [], 0
    for bound, count in zip(bounds, histogram.counts, strict=True):
        below += count
        buckets.append((bound, float(below)))
    return HistogramMetricFamily(
        _PREFIX + name, f"{meaning}, seconds.", buckets=buckets, sum_value=histogram.sum_s
    )
