"""Where checks in this process run: the lanes as a server has them, a fresh host loop a check."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from hermitcrab.clock import Clock
from hermitcrab.core.api import Event, Failed, Finished, FinishReason, Request, Status, Tokens
from hermitcrab.core.backend import Backend, SlotId
from hermitcrab.core.kept import CacheRules
from hermitcrab.core.lanes import LaneRules
from hermitcrab.core.loop import HostLoop
from hermitcrab.core.marks import LogitsMark
from hermitcrab.receipts.record import Case, Pair, Reply
from hermitcrab.receipts.relays import Recorder, SomeSlots

Wrap = Callable[[Backend], Backend]


@dataclass(frozen=True, slots=True)
class Watched:
    """A backend, and what takes the marks of the logits it has drawn from since the last call."""

    backend: Backend
    take_marks: Callable[[], list[LogitsMark]]


@dataclass(frozen=True, slots=True)
class Conditions:
    """What a check runs its streams under.

    `slots` are the sessions there are; None: all. `draft_depth` and `grow_tokens` as in `LaneRules`. Every
    window has the head's drafts, whatever they cost, but where `drafts_by_cost`. `wrap` puts a relay before
    the backend. Prompt states are kept by `cache`, where `slots` is None.
    """

    slots: Sequence[SlotId] | None = None
    draft_depth: int | None = None
    grow_tokens: int | None = None
    drafts_by_cost: bool = False
    wrap: Wrap | None = None
    cache: CacheRules = field(default_factory=CacheRules)


class _Ear:
    """The sink of one request."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.terminal: Finished | Failed | None = None

    def put(self, event: Event) -> None:
        match event:
            case Tokens(ids):
                self.tokens.extend(ids)
            case Finished() | Failed():
                self.terminal = event


class Run:
    """Streams over one host loop; every session is free again once all have ended."""

    def __init__(self, watched: Watched, conditions: Conditions, clock: Clock) -> None:
        backend = watched.backend
        if conditions.slots is not None:
            backend = SomeSlots(backend, conditions.slots)
        recorder = Recorder(backend, watched.take_marks)
        rules = LaneRules(
            grow_tokens=conditions.grow_tokens,
            draft_depth=conditions.draft_depth,
            drafts_always=not conditions.drafts_by_cost,
            cache=conditions.cache,
        )
        wrapped = recorder if conditions.wrap is None else conditions.wrap(recorder)
        # the log is for servers: a check brings about waits and moves by the hundred
        self._loop = HostLoop(wrapped, rules, clock, tracers=())
        recorder.follow(self._loop.engine.table.holder)
        self._recorder = recorder
        self._ids = count()
        self._asked: dict[str, tuple[Case, _Ear]] = {}
        self._open: list[str] = []

    @property
    def has_requests(self) -> bool:
        return self._loop.has_requests

    @property
    def open_ids(self) -> list[str]:
        """Requests that have not ended."""
        self._open = [id for id in self._open if self._asked[id][1].terminal is None]
        return self._open

    def submit(self, case: Case) -> str:
        """Queue a case; its request id."""
        id, ear = f"{next(self._ids)}", _Ear()
        self._asked[id] = (case, ear)
        self._open.append(id)
        request = Request(id, case.prompt, case.sampling, max_new_tokens=case.max_new_tokens)
        self._loop.submit(request, ear)
        return id

    def cancel(self, id: str) -> None:
        self._loop.cancel(id)

    def step(self) -> None:
        self._loop.step()

    def finish(self) -> list[Reply]:
        """Step until every request has ended; all replies, in order of submission."""
        while self._loop.has_requests:
            self._loop.step()
        return [self._reply(id) for id in self._asked]

    def status(self) -> Status:
        return self._loop.take_snapshot()

    def close(self) -> None:
        """Let go of what the loop has kept in the backend."""
        self._loop.engine.reset()

    def _reply(self, id: str) -> Reply:
        case, ear = self._asked[id]
        assert ear.terminal is not None, "a request was left without its end"
        usage = ear.terminal.usage
        is_cut = isinstance(ear.terminal, Finished) and ear.terminal.reason is FinishReason.CANCELLED
        return Reply(
            case,
            tuple(ear.tokens),
            marks=self._recorder.marks.get(id, {}),
            is_cancelled=is_cut,
            failure=str(ear.terminal.error) if isinstance(ear.terminal, Failed) else None,
            moves=usage.moves,
            drafted=usage.drafted,
            accepted=usage.accepted,
        )


class Stand:
    """A backend under test, and the replies it gives to cases alone: in slot 0, undrafted."""

    def __init__(self, watched: Watched, open_another: Callable[[], Watched], clock: Clock) -> None:
        self._watched = watched
        self._open_another = open_another
        self._alone: dict[Case, Reply] = {}
        self.clock = clock

    @property
    def backend(self) -> Backend:
        return self._watched.backend

    def begin(self, conditions: Conditions) -> Run:
        """A fresh host loop over the backend."""
        return Run(self._watched, conditions, self.clock)

    def run(self, cases: Sequence[Case], conditions: Conditions) -> tuple[list[Reply], Status]:
        """All cases at once; their replies, and the loop's status at the end."""
        run = self.begin(conditions)
        for case in cases:
            run.submit(case)
        return run.finish(), run.status()

    def alone(self, case: Case) -> Reply:
        """The case's reply alone, or a longer one of the same prompt and sampling; made once."""
        key = replace(case, name="", max_new_tokens=0)
        known = self._alone.get(key)
        if known is None or len(known.tokens) < case.max_new_tokens:
            known = self.run_alone(case)
            self._alone[key] = known
        return known

    def run_alone(self, case: Case) -> Reply:
        """The case alone, now."""
        conditions = Conditions(slots=(SlotId(0),), draft_depth=0)
        (reply,), _ = self.run([case], conditions)
        return reply

    def pairs(self, replies: Sequence[Reply]) -> list[Pair]:
        """Each reply beside the one alone."""
        return [Pair(self.alone(reply.case), reply) for reply in replies]

    def reopen(self) -> None:
        """Go on with a backend that has served nothing."""
        self._watched = self._open_another()
