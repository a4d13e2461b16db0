"""The host's inner loop, without a thread: queue, admission, work, delivery. A test drives it step by step.

`submit` and `cancel` are called between steps. Every request it takes gets exactly one terminal event: when
its stream has ended and its session is back.
"""

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass

from hermitcrab.clock import Clock
from hermitcrab.core.admission import Refuse, Start, Waiting, queue_key
from hermitcrab.core.api import (
    Event,
    Failed,
    Finished,
    FinishReason,
    Progress,
    Progressed,
    Request,
    Sink,
    Status,
)
from hermitcrab.core.backend import Backend
from hermitcrab.core.lanes import MOST_STALLS, LaneEngine, LaneRules
from hermitcrab.core.status import TokenRate, snapshot
from hermitcrab.core.stream import Limits, Stream
from hermitcrab.core.trail import LogTracer, SinkFailed, Stalled, Tracer
from hermitcrab.errors import ContextLengthExceeded, HermitcrabError, LaneError, RequestError

# how old a snapshot may get while only tokens come: pages ask a few times a second
SNAPSHOT_AGE_S = 0.05


@dataclass(slots=True)
class Job:
    """A request's stream and where its events go; `passes` counts those that passed it and may grow."""

    stream: Stream
    sink: Sink
    passes: int = 0
    is_deaf: bool = False

    @property
    def queue_key(self) -> float:
        """Where it stands in the queue."""
        return queue_key(self.stream.request.priority, submitted_s=self.stream.stats.submitted_s)


class Gate:
    """What a request must satisfy before it is queued; reads fixed facts only, so any thread may ask."""

    def __init__(self, *, context_tokens: int, vocab_tokens: int, window_rows: int) -> None:
        self.context_tokens = context_tokens
        self._vocab_tokens = vocab_tokens
        self._window_rows = window_rows

    def limits(self, request: Request) -> Limits:
        """How far the request may go: its reply is cut to the room the largest session has behind its prompt.

        Raises ContextLengthExceeded for a prompt that can never fit, RequestError for one that is no prompt.
        """
        if not request.prompt:
            raise RequestError("The prompt is empty: at least one token is needed.", param="prompt")
        if request.max_new_tokens is not None and request.max_new_tokens < 1:
            raise RequestError(
                f"max_tokens must be at least 1, not {request.max_new_tokens}.", param="max_tokens"
            )
        if not 0 <= min(request.prompt) <= max(request.prompt) < self._vocab_tokens:
            raise RequestError(
                f"The prompt holds a token id outside 0 to {self._vocab_tokens - 1}.", param="prompt"
            )
        self._check_tokens(request)
        room_tokens = self.context_tokens - len(request.prompt)
        if room_tokens < 1:
            raise ContextLengthExceeded(prompt_tokens=len(request.prompt), context_tokens=self.context_tokens)
        wanted_tokens = room_tokens if request.max_new_tokens is None else request.max_new_tokens
        return Limits(
            prompt_tokens=len(request.prompt),
            max_new_tokens=min(wanted_tokens, room_tokens),
            window_rows=self._window_rows,
        )

    def _check_tokens(self, request: Request) -> None:
        """Raises RequestError for rules over tokens there are none of, or that leave nothing to draw."""
        for token, _ in request.penalties.bias:
            if not 0 <= token < self._vocab_tokens:
                raise RequestError(
                    f"logit_bias names token {token}; the ids go from 0 to {self._vocab_tokens - 1}.",
                    param="logit_bias",
                )
        marker = () if request.thinking is None else request.thinking.close_ids
        if not all(0 <= token < self._vocab_tokens for token in marker):
            raise RequestError("The mark that closes thinking is no token of this model.")
        if request.min_tokens and len(request.eos_ids) >= self._vocab_tokens:
            raise RequestError("min_tokens holds back every token there is.", param="min_tokens")


class HostLoop:
    """Takes requests, admits them, steps the lanes and delivers; all on one thread."""

    def __init__(
        self,
        backend: Backend,
        rules: LaneRules,
        clock: Clock,
        tracers: Sequence[Tracer] = (LogTracer(),),
    ) -> None:
        facts = backend.facts()
        self.engine = LaneEngine(backend, rules, clock, tracers)
        window_rows = self.engine.sizing.window_rows
        # the widest window the backend takes, not the one in use: drafting must not change where replies end
        context_tokens = self.engine.table.largest_rows - facts.window_rows
        if rules.context_tokens is not None:
            context_tokens = min(context_tokens, rules.context_tokens)
        self.gate = Gate(
            context_tokens=context_tokens, vocab_tokens=facts.vocab_tokens, window_rows=window_rows
        )
        self.is_draining = False
        self._load_check = facts.load_check
        self._clock = clock
        self._waiting: list[Job] = []
        self._jobs: dict[str, Job] = {}
        self._stalls = 0
        self._rate = TokenRate()
        self._snapshot_s = clock.now_s()
        self.snapshot = self.take_snapshot()

    @property
    def waiting_count(self) -> int:
        """Requests in the queue."""
        return len(self._waiting)

    @property
    def free_count(self) -> int:
        """Sessions nobody holds."""
        return len(self.engine.table.free())

    @property
    def has_requests(self) -> bool:
        """True while any request has not had its terminal event."""
        return bool(self._jobs)

    def has(self, request_id: str) -> bool:
        """True while a request of this id has not had its terminal event."""
        return request_id in self._jobs

    def submit(self, request: Request, sink: Sink) -> None:
        """Queue a request. Raises what `Gate.limits` raises, and RequestError for an id that is in use."""
        self.enqueue(request, self.gate.limits(request), sink, submitted_s=self._clock.now_s())

    def enqueue(self, request: Request, limits: Limits, sink: Sink, *, submitted_s: float) -> None:
        """Queue a request whose limits are known."""
        if request.id in self._jobs:
            raise RequestError(f"A request with the id {request.id!r} is already here.")
        stream = Stream(request, limits, now_s=submitted_s)
        stream.tell(Progress.QUEUED)
        job = Job(stream, sink)
        self._jobs[request.id] = job
        insort(self._waiting, job, key=lambda waiting: waiting.queue_key)

    def cancel(self, request_id: str) -> None:
        """End a request wherever it is; unknown and finished ids are ignored."""
        job = self._jobs.get(request_id)
        if job is not None:
            self._end(job, FinishReason.CANCELLED)

    def drain(self, error: HermitcrabError) -> None:
        """Fail every request that waits in the queue; admitted ones go on."""
        self.is_draining = True
        for job in list(self._waiting):
            self._end(job, error)

    def end_all(self, error: HermitcrabError) -> None:
        """Fail every request, empty every session, and deliver; works whatever state a step was left in."""
        for job in self._jobs.values():
            job.stream.finish(error)
        self._waiting.clear()
        self.engine.reset()
        self._deliver()

    def step(self) -> bool:
        """Deliver what has ended, admit what fits, do one piece of work, deliver; False without work.

        With nobody waiting and one live stream that work is its next round, and the rest is left out.
        """
        # another job waits, or has ended and must hear of it before the next round
        is_alone = len(self._jobs) == 1 and not self.is_draining
        has_worked = is_alone and self.engine.lone_step()
        if not has_worked:
            self._deliver()
            self._admit()
            has_worked = self.engine.step()
        self._watch_progress(has_worked=has_worked)
        self._rate.note(now_s=self._clock.now_s(), reply_tokens=self.engine.totals.reply_tokens)
        self._deliver()
        return has_worked

    def _watch_progress(self, *, has_worked: bool) -> None:
        """While a request waits something runs, or else it ends with an error: nobody waits for nothing.

        Admitted streams that all wait are the engine's to end. Without any, the first in the queue should
        have started: only sessions that cannot be emptied keep it from that, or a fault of our own. Those
        behind it end with it if no session is left for them either.
        """
        is_stalled = not has_worked and bool(self._waiting) and not self.engine.streams
        self._stalls = self._stalls + 1 if is_stalled else 0
        if self._stalls < MOST_STALLS:
            return
        self._stalls = 0
        stuck = self._waiting[:1] if self.free_count else list(self._waiting)
        error = LaneError(
            "nothing runs, and no session that fits can be had: "
            f"{len(self.engine.table.unclean)} of {len(self.engine.table.sessions)} could not be emptied"
        )
        self.engine.note(Stalled(len(stuck), error))
        for job in stuck:
            self._end(job, error)

    def _end(self, job: Job, outcome: FinishReason | HermitcrabError) -> None:
        if job in self._waiting:
            self._waiting.remove(job)
            job.stream.finish(outcome)
        elif not job.stream.is_finished:
            self.engine.discard(job.stream, outcome)

    def _admit(self) -> None:
        while self._waiting and self.free_count:
            queue = [Waiting(job.stream.limits, job.passes) for job in self._waiting]
            match self.engine.next_start(queue):
                case Start(index=index, slot=slot, may_grow=may_grow):
                    job = self._waiting.pop(index)
                    for passed in self._waiting[:index]:
                        passed.passes += may_grow
                    self.engine.add(job.stream, slot)
                case Refuse(index=index):
                    job = self._waiting[index]
                    self._end(job, self._never_fits(job))
                case None:
                    return

    def _never_fits(self, job: Job) -> ContextLengthExceeded:
        return ContextLengthExceeded(
            prompt_tokens=job.stream.limits.prompt_tokens, context_tokens=self.gate.context_tokens
        )

    def _deliver(self) -> None:
        """Sweep, then send every event; again while a lost client's stream had to be ended on the way."""
        while True:
            self.engine.sweep()
            ended = [job for job in self._jobs.values() if job.stream.is_finished and job.stream.slot is None]
            for job in ended:
                del self._jobs[job.stream.request.id]
                self.engine.totals.count_end(job.stream, now_s=self._clock.now_s())
            self._refresh_snapshot(has_news=bool(ended) or self._has_moved())
            for job in [*self._jobs.values(), *ended]:
                self._send_outbox(job)
            for job in ended:
                self._put(job, self._terminal(job.stream))
            lost = [job for job in self._jobs.values() if job.is_deaf and not job.stream.is_finished]
            if not lost:
                return
            for job in lost:
                self._end(job, FinishReason.CANCELLED)

    def _send_outbox(self, job: Job) -> None:
        outbox, job.stream.outbox = job.stream.outbox, []
        for event in outbox:
            if not job.is_deaf:
                self._put(job, event)

    def _put(self, job: Job, event: Event) -> None:
        try:
            job.sink.put(event)
        except Exception as error:  # noqa: BLE001 - one client's broken sink must not stop the others
            job.is_deaf = True
            self.engine.note(SinkFailed(job.stream.request.id, error))

    def _terminal(self, stream: Stream) -> Finished | Failed:
        usage = stream.usage(now_s=self._clock.now_s())
        outcome = stream.reply.outcome
        assert outcome is not None, "a stream without an outcome was delivered as ended"
        return Finished(outcome, usage) if isinstance(outcome, FinishReason) else Failed(outcome, usage)

    def _has_moved(self) -> bool:
        return any(
            isinstance(event, Progressed) for job in self._jobs.values() for event in job.stream.outbox
        )

    def _refresh_snapshot(self, *, has_news: bool) -> None:
        now_s = self._clock.now_s()
        if has_news or now_s - self._snapshot_s >= SNAPSHOT_AGE_S:
            self._snapshot_s = now_s
            self.snapshot = self.take_snapshot()

    def take_snapshot(self) -> Status:
        """The server's insides now."""
        now_s = self._clock.now_s()
        return snapshot(
            (*self.engine.streams, *(job.stream for job in self._waiting)),
            table=self.engine.table,
            totals=self.engine.totals,
            tokens_per_s=self._rate.per_s(now_s=now_s),
            now_s=now_s,
            is_draining=self.is_draining,
            load_check=self._load_check,
            cache=self.engine.cache_status,
        )
