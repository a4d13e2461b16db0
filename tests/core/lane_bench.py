"""Builders for tests of the lanes: requests, a sink that remembers, and the host loop on the fake backend."""

from collections.abc import Sequence

from hermitcrab.clock import ScriptedClock
from hermitcrab.core.api import (
    Event,
    Failed,
    Finished,
    Priority,
    Progress,
    Progressed,
    Request,
    StopWatch,
    Tokens,
)
from hermitcrab.core.fake import FakeBackend
from hermitcrab.core.lanes import LaneRules
from hermitcrab.core.loop import HostLoop
from hermitcrab.core.trail import Decision
from hermitcrab.sampling.params import Sampling

VOCAB_TOKENS = 16
GREEDY = Sampling()
SAMPLED = Sampling(temperature=0.8, top_k=12, top_p=0.95, seed=11)


class Ear:
    """A sink that remembers every event."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def put(self, event: Event) -> None:
        self.events.append(event)

    @property
    def tokens(self) -> list[int]:
        return [token for event in self.events if isinstance(event, Tokens) for token in event.ids]

    @property
    def terminals(self) -> list[Finished | Failed]:
        return [event for event in self.events if isinstance(event, Finished | Failed)]

    @property
    def terminal(self) -> Finished | Failed:
        (event,) = self.terminals
        return event

    @property
    def states(self) -> list[Progress]:
        return [event.state for event in self.events if isinstance(event, Progressed)]


class Book:
    """A tracer that remembers every decision."""

    def __init__(self) -> None:
        self.decisions: list[Decision] = []

    def note(self, decision: Decision) -> None:
        self.decisions.append(decision)

    def of(self, kind: type[Decision]) -> list[Decision]:
        return [decision for decision in self.decisions if isinstance(decision, kind)]


def prompt_of(name: str, prompt_tokens: int) -> tuple[int, ...]:
    """A prompt that no other name has."""
    salt = sum(ord(letter) * (place + 3) for place, letter in enumerate(name))
    return tuple((salt * (index + 1) + index * index) % VOCAB_TOKENS for index in range(prompt_tokens))


def ask(
    name: str,
    *,
    prompt_tokens: int = 4,
    max_new_tokens: int | None = 8,
    sampling: Sampling = GREEDY,
    eos_ids: frozenset[int] = frozenset(),
    stop_watch: StopWatch | None = None,
    priority: Priority = Priority.FOREGROUND,
) -> Request:
    """A request of that name."""
    return Request(
        id=name,
        prompt=prompt_of(name, prompt_tokens),
        sampling=sampling,
        max_new_tokens=max_new_tokens,
        eos_ids=eos_ids,
        stop_watch=stop_watch,
        priority=priority,
    )


class Bench:
    """The host loop on a fake backend with a scripted clock."""

    def __init__(self, backend: FakeBackend, rules: LaneRules) -> None:
        self.backend = backend
        self.clock = ScriptedClock()
        self.book = Book()
        self.loop = HostLoop(backend, rules, self.clock, (self.book,))
        self.ears: dict[str, Ear] = {}

    def submit(self, *requests: Request) -> None:
        for request in requests:
            self.ears[request.id] = Ear()
            self.loop.submit(request, self.ears[request.id])

    def step(self, times: int = 1) -> None:
        for _ in range(times):
            self.loop.step()

    def step_until_live(self, *names: str, at_most: int = 200) -> None:
        """Step until each has had its first token."""
        for _ in range(at_most):
            if all(self.ears[name].tokens for name in names):
                return
            self.loop.step()
        raise AssertionError(f"{names} did not start")

    def step_until_paused(self, name: str, at_most: int = 400) -> None:
        """Step until the stream waits for a larger session."""
        for _ in range(at_most):
            if self.ears[name].states and self.ears[name].states[-1] is Progress.PAUSED:
                return
            self.loop.step()
        raise AssertionError(f"{name} did not pause")

    def run(self, at_most: int = 5000) -> None:
        """Step until every request has had its terminal event."""
        for _ in range(at_most):
            if not self.loop.has_requests:
                return
            self.loop.step()
        raise AssertionError("requests are left")

    def tokens(self, name: str) -> list[int]:
        return self.ears[name].tokens

    def slot_of(self, name: str) -> int | None:
        for session in self.loop.take_snapshot().sessions:
            if session.request_id == name:
                return session.slot
        return None

    @property
    def is_clean(self) -> bool:
        """True if every session is empty and free, and no call broke a rule."""
        slots = range(len(self.backend.facts().session_rows))
        return (
            not self.backend.violations
            and all(self.backend.is_empty(slot) for slot in slots)
            and len(self.loop.engine.table.free()) == len(slots)
            and not self.loop.engine.streams
        )


def sized(
    *session_rows: int, grow_tokens: int = 8, draft_depth: int | None = None, **backend: object
) -> Bench:
    """A bench with the option set."""
    rules = LaneRules(grow_tokens=grow_tokens, draft_depth=draft_depth)
    return Bench(FakeBackend(session_rows, **backend), rules)  # type: ignore[arg-type]  # passed on as given


def unsized(*session_rows: int, draft_depth: int | None = None, **backend: object) -> Bench:
    """A bench with the option unset."""
    rules = LaneRules(draft_depth=draft_depth)
    return Bench(FakeBackend(session_rows, **backend), rules)  # type: ignore[arg-type]  # passed on as given


def solo(request: Request, *, session_rows: int = 4096) -> list[int]:
    """The reply's tokens alone, undrafted, in a session that never has to be left."""
    bench = unsized(session_rows, draft_depth=0)
    bench.submit(request)
    bench.run()
    return bench.tokens(request.id)


def solos(requests: Sequence[Request]) -> list[list[int]]:
    """Each request's tokens alone."""
    return [solo(request) for request in requests]
