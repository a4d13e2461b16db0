"""The engine thread: what other threads may do at any time, and how it ends."""

import threading
from collections.abc import Iterator

import pytest
from lane_bench import Ear, ask, solo

from hermitcrab.clock import ScriptedClock, WallClock
from hermitcrab.core.api import Event, Failed, Finished, FinishReason, Lanes, Tokens
from hermitcrab.core.fake import Call, CallKind, FakeBackend
from hermitcrab.core.host import LaneHost
from hermitcrab.core.lanes import LaneRules
from hermitcrab.errors import ContextLengthExceeded, LaneError, QueueFull, RequestError, ShuttingDown

# far more than any of it takes; only a hang gets there
PATIENCE_S = 20.0


class Listener(Ear):
    """An ear another thread can wait with."""

    def __init__(self) -> None:
        super().__init__()
        self.has_begun = threading.Event()
        self.has_ended = threading.Event()

    def put(self, event: Event) -> None:
        super().put(event)
        if isinstance(event, Tokens):
            self.has_begun.set()
        if isinstance(event, Finished | Failed):
            self.has_ended.set()

    def wait(self) -> Finished | Failed:
        assert self.has_ended.wait(PATIENCE_S), "the request has not ended"
        return self.terminal


class Turnstile:
    """Holds the engine thread at its next verify until it is let through."""

    def __init__(self) -> None:
        self.is_closed = False
        self.is_reached = threading.Event()
        self._may_pass = threading.Event()

    def __call__(self, call: Call) -> None:
        if self.is_closed and call.kind is CallKind.VERIFY:
            self.is_reached.set()
            assert self._may_pass.wait(PATIENCE_S)

    def close(self) -> None:
        self.is_closed = True

    def open(self) -> None:
        self.is_closed = False
        self._may_pass.set()


class House:
    """A running host on a fake backend."""

    def __init__(self, *session_rows: int, queue_limit: int | None = None) -> None:
        self.turnstile = Turnstile()
        self.backend = FakeBackend(session_rows, on_call=self.turnstile)
        self.host = LaneHost(self.backend, LaneRules(grow_tokens=8), queue_limit=queue_limit)
        self.host.start()

    def submit(self, name: str, *, prompt_tokens: int = 4, max_new_tokens: int | None = 8) -> Listener:
        listener = Listener()
        self.host.submit(ask(name, prompt_tokens=prompt_tokens, max_new_tokens=max_new_tokens), listener)
        return listener

    def hold(self, name: str, *, max_new_tokens: int = 40) -> Listener:
        """Start a request and stop the engine thread in the middle of one of its rounds."""
        self.turnstile.close()
        listener = self.submit(name, max_new_tokens=max_new_tokens)
        assert self.turnstile.is_reached.wait(PATIENCE_S)
        return listener


@pytest.fixture
def houses() -> Iterator[list[House]]:
    """Houses to shut at the end of the test."""
    built: list[House] = []
    yield built
    for house in built:
        house.turnstile.open()
        house.host.close(drain_s=0.0)


def test_the_host_is_what_the_server_asks_for() -> None:
    lanes: Lanes = LaneHost(FakeBackend((64,)), LaneRules())
    assert lanes.context_tokens == 60


def test_requests_from_many_threads_each_get_their_reply(houses: list[House]) -> None:
    house = House(128, 48, 24, 24)
    houses.append(house)
    listeners: dict[str, Listener] = {}

    def client(index: int) -> None:
        for turn in range(5):
            name = f"client{index}turn{turn}"
            listeners[name] = house.submit(name, max_new_tokens=30)
            listeners[name].wait()

    threads = [threading.Thread(target=client, args=(index,)) for index in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {name: listener.tokens for name, listener in listeners.items()} == {
        name: solo(ask(name, max_new_tokens=30)) for name in listeners
    }
    assert house.backend.violations == []


def test_an_idle_host_serves_a_request_that_comes_later(houses: list[House]) -> None:
    house = House(64)
    houses.append(house)
    house.submit("first").wait()
    assert house.submit("second").wait().usage.completion_tokens == 8


def test_a_cancel_from_another_thread_ends_a_running_request(houses: list[House]) -> None:
    house = House(4096)
    houses.append(house)
    listener = house.hold("endless", max_new_tokens=4000)
    house.host.cancel("endless")
    house.turnstile.open()
    terminal = listener.wait()
    assert isinstance(terminal, Finished)
    assert terminal.reason is FinishReason.CANCELLED
    assert len(listener.tokens) <= 8


def test_a_cancel_right_after_the_submission_finds_the_request(houses: list[House]) -> None:
    house = House(64)
    houses.append(house)
    house.hold("holder")
    listener = house.submit("brief")
    house.host.cancel("brief")
    house.turnstile.open()
    terminal = listener.wait()
    assert isinstance(terminal, Finished)
    assert terminal.reason is FinishReason.CANCELLED


def test_what_cannot_be_served_is_refused_in_the_callers_thread(houses: list[House]) -> None:
    house = House(64)
    houses.append(house)
    with pytest.raises(ContextLengthExceeded):
        house.submit("long", prompt_tokens=100)
    with pytest.raises(RequestError):
        house.submit("empty", prompt_tokens=0)


def test_an_id_in_use_is_refused(houses: list[House]) -> None:
    house = House(64)
    houses.append(house)
    house.hold("same")
    with pytest.raises(RequestError, match="already here"):
        house.submit("same")


def test_one_more_than_the_queue_takes_is_refused_and_the_others_are_served(houses: list[House]) -> None:
    house = House(64, queue_limit=2)
    houses.append(house)
    holder = house.hold("holder")
    queued = [house.submit("one"), house.submit("two")]
    with pytest.raises(QueueFull) as caught:
        house.submit("three")
    assert caught.value.retry_after_s > 0
    house.turnstile.open()
    assert [listener.wait().usage.completion_tokens for listener in (holder, *queued)] == [40, 8, 8]


def test_requests_that_find_a_free_session_do_not_count_as_queued() -> None:
    host = LaneHost(FakeBackend((64, 64)), LaneRules(), queue_limit=1)
    for name in ("one", "two", "queued"):
        host.submit(ask(name), Listener())
    with pytest.raises(QueueFull):
        host.submit(ask("over"), Listener())
    host.close(drain_s=0.0)


def test_status_can_be_asked_in_the_middle_of_a_round(houses: list[House]) -> None:
    house = House(64, 24)
    houses.append(house)
    house.hold("runs")
    status = house.host.status()
    assert [line.request_id for line in status.sessions] == [None, "runs"]
    assert status.tick_age_s >= 0.0


def test_the_age_of_the_last_tick_grows_while_the_engine_thread_is_stuck() -> None:
    clock = ScriptedClock()
    host = LaneHost(FakeBackend((64,)), LaneRules(), clock)
    clock.advance(3.0)
    assert host.status().tick_age_s == 3.0


def test_closing_lets_running_replies_end_and_fails_queued_ones(houses: list[House]) -> None:
    house = House(64)
    houses.append(house)
    runs = house.hold("runs")
    queued = house.submit("queued")
    house.turnstile.open()
    house.host.close(drain_s=PATIENCE_S)
    assert runs.tokens == solo(ask("runs", max_new_tokens=40))
    assert isinstance(queued.terminal, Failed)
    assert isinstance(queued.terminal.error, ShuttingDown)


def test_closing_fails_what_still_runs_when_the_time_is_over(houses: list[House]) -> None:
    house = House(1 << 20)
    houses.append(house)
    runs = house.submit("endless", max_new_tokens=1 << 19)
    assert runs.has_begun.wait(PATIENCE_S)
    house.host.close(drain_s=0.0)
    assert isinstance(runs.terminal, Failed)
    assert isinstance(runs.terminal.error, ShuttingDown)
    assert house.backend.is_empty(0)


def test_a_closed_host_takes_no_request(houses: list[House]) -> None:
    house = House(64)
    houses.append(house)
    house.host.close(drain_s=0.0)
    with pytest.raises(ShuttingDown):
        house.submit("late")
    assert house.host.status().is_draining


def test_a_second_close_shortens_the_first(houses: list[House]) -> None:
    house = House(1 << 20)
    houses.append(house)
    runs = house.submit("endless", max_new_tokens=1 << 19)
    assert runs.has_begun.wait(PATIENCE_S)
    first = threading.Thread(target=house.host.close, kwargs={"drain_s": 10 * PATIENCE_S})
    first.start()
    house.host.close(drain_s=0.0)
    first.join(PATIENCE_S)
    assert isinstance(runs.terminal, Failed)


def test_closing_a_host_that_was_never_started_fails_what_was_queued() -> None:
    host = LaneHost(FakeBackend((64,)), LaneRules())
    listener = Listener()
    host.submit(ask("queued"), listener)
    host.close(drain_s=1.0)
    assert isinstance(listener.terminal, Failed)


class StumblingClock(WallClock):
    """Fails once on the engine thread, in the middle of a step."""

    def __init__(self) -> None:
        self.stumbles = False

    def now_s(self) -> float:
        if self.stumbles and threading.current_thread().name == "lanes":
            self.stumbles = False
            raise OSError("no clock")
        return super().now_s()


def test_an_error_of_our_own_ends_every_request_and_the_next_is_served() -> None:
    clock, turnstile = StumblingClock(), Turnstile()
    host = LaneHost(FakeBackend((64,), on_call=turnstile), LaneRules(), clock)
    host.start()
    turnstile.close()
    runs = Listener()
    host.submit(ask("runs", max_new_tokens=40), runs)
    assert turnstile.is_reached.wait(PATIENCE_S)
    clock.stumbles = True
    turnstile.open()
    terminal = runs.wait()
    assert isinstance(terminal, Failed)
    assert isinstance(terminal.error, LaneError)
    after = Listener()
    host.submit(ask("after"), after)
    assert isinstance(after.wait(), Finished)
    host.close(drain_s=0.0)
