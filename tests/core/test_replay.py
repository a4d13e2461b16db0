"""A trail is enough to run the core again to the same decisions; a line that differs is found."""

import json
import random
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lane_bench import Bench, Book, Ear, ask, prompt_of

from hermitcrab.clock import ScriptedClock
from hermitcrab.core.api import Event, Failed, Finished
from hermitcrab.core.fake import CallKind, FakeBackend, Fault
from hermitcrab.core.host import LaneHost
from hermitcrab.core.kept import CacheRules
from hermitcrab.core.lanes import LaneRules
from hermitcrab.core.recorder import Recorder, open_trail
from hermitcrab.core.recording import RecordedLoop
from hermitcrab.core.records import packed, plain, unpacked
from hermitcrab.core.replay import Replayed, replay
from hermitcrab.errors import DeviceFailed, LaneMemory, SettingError, ShuttingDown, TrailError
from hermitcrab.sampling.edits import mask_of
from hermitcrab.sampling.params import Penalties, Sampling

VOCAB_TOKENS = 16


class Lines:
    """A file in memory; refuses every write from the `full_at`-th line on."""

    def __init__(self, full_at: int | None = None) -> None:
        self.lines: list[str] = []
        self.full_at = full_at

    def write(self, line: str, /) -> None:
        if self.full_at is not None and len(self.lines) >= self.full_at:
            raise OSError(28, "No space left on device")
        self.lines.append(line)

    @property
    def records(self) -> list[dict]:
        return [json.loads(line) for line in self.lines]


class NthToken:
    """A stop watch that fires, or fails, at the n-th token."""

    def __init__(self, nth: int, *, fails: bool) -> None:
        self.left = nth
        self.fails = fails

    def push(self, token: int) -> bool:
        self.left -= 1
        if not self.left and self.fails:
            raise ValueError("no such token")
        return not self.left


class EvenThenOdd:
    """A grammar: tokens are even and odd in turn."""

    def __init__(self) -> None:
        self.taken = 0

    def allowed(self, ahead: Sequence[int]) -> bytes | None:
        parity = self.taken
        for token in ahead:
            if token % 2 != parity % 2:
                return None
            parity += 1
        return mask_of(range(parity % 2, VOCAB_TOKENS, 2), vocab_tokens=VOCAB_TOKENS)

    def advance(self, token: int) -> None:
        self.taken += 1


class BrokenEar(Ear):
    """A sink that takes three events."""

    def put(self, event: Event) -> None:
        if len(self.events) == 3:
            raise OSError("the client has gone")
        super().put(event)


class Trailed(Bench):
    """The recorded host loop on a fake backend whose calls take time."""

    def __init__(self, backend: FakeBackend, rules: LaneRules, file: Lines) -> None:
        self.backend = backend
        self.clock = ScriptedClock(1000.0)
        self.book = Book()
        self.loop = RecordedLoop(backend, rules, Recorder(file, self.clock), (self.book,))
        self.ears = {}


def random_life(seed: int, file: Lines, *, steps: int = 120) -> Trailed:
    """A server's life with all that can come in, drawn from `seed`."""
    draw = random.Random(seed)
    sizes = [96, *(draw.randint(20, 96) for _ in range(draw.randint(0, 4)))]
    is_sized = draw.random() < 0.7
    backend = FakeBackend(
        sizes if is_sized else [96] * len(sizes),
        vocab_tokens=VOCAB_TOKENS,
        row_limit=draw.randint(6, 24),
        window_rows=draw.randint(1, 5),
        lands=lambda position, index: position % 3 != 0,
    )
    rules = LaneRules(
        grow_tokens=draw.randint(1, 20) if is_sized else None,
        draft_depth=draw.choice([None, 0, 2]),
        cache=CacheRules(draw.choice([0, 2_000, 100_000]), frozenset({5}), gap_rows=8),
    )
    bench = Trailed(backend, rules, file)
    backend.on_call = lambda call: bench.clock.advance(draw.choice([0.0, 0.0001, 0.0123456789]))
    names: list[str] = []
    for _ in range(steps):
        match draw.randint(0, 9):
            case 0 | 1:
                names.append(f"r{len(names)}")
                submit_random(bench, names[-1], draw)
            case 2 if names:
                bench.loop.cancel(draw.choice(names))
            case 3 if draw.random() < 0.3:
                error = draw.choice(
                    [DeviceFailed("the device failed"), LaneMemory("none now"), ValueError("odd")]
                )
                backend.fail_next(draw.choice(list(CallKind)), error)
            case 4:
                bench.clock.advance(draw.random() * 3)
            case _:
                bench.loop.step()
    if draw.random() < 0.5:
        bench.loop.drain(ShuttingDown("The server is shutting down.", retry_after_s=5))
    if draw.random() < 0.3:
        bench.loop.end_all(ShuttingDown("The server is shutting down.", retry_after_s=5))
    bench.run(at_most=20_000)
    bench.step(3)
    return bench


def submit_random(bench: Trailed, name: str, draw: random.Random) -> None:
    request = ask(
        name,
        max_new_tokens=draw.choice([None, draw.randint(1, 50)]),
        sampling=Sampling(temperature=draw.choice([0.0, 0.9]), seed=draw.randint(0, 9)),
        eos_ids=frozenset(draw.sample(range(VOCAB_TOKENS), draw.randint(0, 2))),
        stop_watch=NthToken(draw.randint(1, 9), fails=draw.random() < 0.3) if draw.random() < 0.2 else None,
    )
    request = replace(
        request,
        prompt=prompt_of(f"kin {draw.randrange(3)}", draw.randint(1, 40)),
        grammar=EvenThenOdd() if draw.random() < 0.2 else None,
        penalties=Penalties(presence=draw.choice([0.0, 1.0]), bias=((3, 1.5),)),
        top_logprobs=draw.choice([None, None, 1]),
    )
    bench.ears[name] = BrokenEar() if draw.random() < 0.1 else Ear()
    bench.loop.submit(request, bench.ears[name])


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_the_replay_of_any_schedule_takes_the_same_decisions(seed: int) -> None:
    file = Lines()
    random_life(seed, file)
    replayed = replay(file.lines)
    assert replayed.difference is None
    assert replayed == Replayed(
        runs=1,
        decisions=sum(len(record.get("did", ())) for record in file.records),
        torn_lines=(),
        difference=None,
    )


def drop_one_landed_draft(records: list[dict]) -> int:
    """Make a draft that landed miss: the target's draw is another token. Returns the line, counted from 1."""
    for number, record in enumerate(records, start=1):
        for item in record.get("did", ()):
            if item.get("call") == "verify" and len(item["drawn"][0]) > 1:
                item["drawn"][0][0] = (item["drawn"][0][0] + 1) % VOCAB_TOKENS
                return number
    raise AssertionError("no window had drafts")


def lines_of(records: Sequence[dict]) -> list[str]:
    return [json.dumps(record) for record in records]


def a_drafted_life() -> Lines:
    """Two streams that draft, in one shared round after the other."""
    file = Lines()
    bench = Trailed(FakeBackend((64, 64), vocab_tokens=VOCAB_TOKENS), LaneRules(), file)
    bench.backend.on_call = lambda call: bench.clock.advance(0.001)
    bench.submit(ask("a", max_new_tokens=30), ask("b", max_new_tokens=20))
    bench.run()
    return file


def test_a_changed_answer_of_the_backend_is_found_in_its_line() -> None:
    records = a_drafted_life().records
    number = drop_one_landed_draft(records)
    difference = replay(lines_of(records)).difference
    assert difference is not None
    assert (difference.line, difference.act) == (number, "step")
    assert difference.recorded != difference.replayed


@pytest.mark.parametrize(
    ("of", "change"),
    [
        ("move", {"target": 7}),
        ("keep", {"rows": 1}),
        ("prefill", {"rows": 3}),
        ("draft", {"requests": []}),
        ("release", {"slot": 1}),
    ],
)
def test_a_changed_decision_is_found_in_its_line(of: str, change: dict) -> None:
    file = Lines()
    bench = Trailed(FakeBackend((64, 24), vocab_tokens=VOCAB_TOKENS), LaneRules(grow_tokens=8), file)
    bench.backend.on_call = lambda call: bench.clock.advance(0.001)
    bench.submit(ask("a", max_new_tokens=40))
    bench.run()
    records = file.records
    number, item = next(
        (number, item)
        for number, record in enumerate(records, start=1)
        for item in record.get("did", ())
        if item.get("call") == of and item | change != item
    )
    item |= change
    difference = replay(lines_of(records)).difference
    assert difference is not None
    assert difference.line == number


def test_other_rules_take_other_decisions() -> None:
    records = a_drafted_life().records
    records[0]["rules"]["draft_depth"] = 0
    difference = replay(lines_of(records)).difference
    assert difference is not None
    assert '"call": "verify"' in difference.replayed


def test_a_submission_is_in_the_trail_with_all_that_steers_it() -> None:
    file = Lines()
    bench = Trailed(FakeBackend((64,), vocab_tokens=VOCAB_TOKENS), LaneRules(), file)
    request = ask("a", prompt_tokens=9, max_new_tokens=5, sampling=Sampling(temperature=0.5, seed=77))
    bench.submit(request)
    record = file.records[1]
    assert record["request"]["prompt_tokens"] == 9
    assert unpacked(record["request"]["prompt"]) == request.prompt
    assert record["request"]["sampling"]["seed"] == 77
    assert record["limits"]["max_new_tokens"] == 5


def test_the_first_line_has_the_sessions_and_the_rules() -> None:
    file = Lines()
    Trailed(FakeBackend((64, 24), vocab_tokens=VOCAB_TOKENS), LaneRules(grow_tokens=9), file)
    assert file.records[0]["facts"]["session_rows"] == [64, 24]
    assert file.records[0]["rules"]["grow_tokens"] == 9


def test_a_line_that_breaks_off_at_the_end_is_left_out_and_said() -> None:
    lines = a_drafted_life().lines
    lines[-1] = lines[-1][: len(lines[-1]) // 2]
    replayed = replay(lines)
    assert replayed.difference is None
    assert replayed.torn_lines == (len(lines),)


def test_a_run_may_follow_on_a_line_that_breaks_off() -> None:
    first, second = a_drafted_life().lines, a_drafted_life().lines
    replayed = replay([*first[:-1], first[-1][:20], *second])
    assert (replayed.runs, replayed.torn_lines, replayed.difference) == (2, (len(first),), None)


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ([], "the file is empty"),
        (["{", "{"], "line 1: not a line of a trail"),
        (['{"act": "step"}'], "line 1: a trail starts with"),
        (['{"trail": 99}'], "a trail of format 99; this version reads format 1"),
        (['{"trail": 1}'], "line 1: cannot be read"),
    ],
)
def test_what_is_no_trail_is_refused_with_its_line(lines: list[str], says: str) -> None:
    with pytest.raises(TrailError, match=says):
        replay(lines)


def test_an_act_that_does_not_exist_is_refused_with_its_line() -> None:
    lines = a_drafted_life().lines
    with pytest.raises(TrailError, match="line 2: cannot be read"):
        replay([lines[0], '{"act": "dance", "at_us": 0}'])


@pytest.mark.parametrize("full_at", range(8))
def test_a_disk_that_fills_up_ends_the_trail_and_nothing_else(
    full_at: int, caplog: pytest.LogCaptureFixture
) -> None:
    file = Lines(full_at)
    bench = Trailed(FakeBackend((64, 64), vocab_tokens=VOCAB_TOKENS), LaneRules(), file)
    requests = [ask("a", max_new_tokens=30), ask("b", max_new_tokens=20)]
    bench.submit(*requests)
    bench.run()
    whole = Bench(FakeBackend((64, 64), vocab_tokens=VOCAB_TOKENS), LaneRules())
    whole.submit(*requests)
    whole.run()
    assert {name: ear.tokens for name, ear in bench.ears.items()} == {
        name: ear.tokens for name, ear in whole.ears.items()
    }
    assert all(isinstance(ear.terminal, Finished) for ear in bench.ears.values())
    assert len(file.lines) == full_at
    assert [record.message for record in caplog.records if "trail" in record.message] == [
        "the trail cannot be written and ends here: [Errno 28] No space left on device"
    ]


def test_a_request_that_cannot_be_written_down_is_served() -> None:
    file = Lines()
    bench = Trailed(FakeBackend((64,), vocab_tokens=VOCAB_TOKENS), LaneRules(), file)
    bench.submit(replace(ask("a"), eos_ids=frozenset({5, object()})))  # type: ignore[arg-type]  # on purpose
    bench.run()
    assert isinstance(bench.ears["a"].terminal, Finished)


def test_the_engine_thread_writes_a_trail_that_replays(tmp_path: Path) -> None:
    path = tmp_path / "trail.jsonl"
    backend = FakeBackend(
        (64, 24), vocab_tokens=VOCAB_TOKENS, faults=[Fault(CallKind.MOVE, 1, ValueError("odd"))]
    )
    host = LaneHost(backend, LaneRules(grow_tokens=8), trail=open_trail(path))
    ended = threading.Event()

    class Last(Ear):
        def put(self, event: Event) -> None:
            super().put(event)
            if isinstance(event, Finished | Failed):
                ended.set()

    ear = Last()
    host.start()
    host.submit(ask("a", max_new_tokens=40), ear)
    assert ended.wait(60)
    host.close(drain_s=0.0)
    assert isinstance(ear.terminal, Failed)
    replayed = replay(path.read_text().splitlines())
    assert replayed.difference is None
    assert replayed.decisions > 5
    assert path.stat().st_mode & 0o077 == 0


def test_a_trail_goes_on_behind_an_earlier_one_on_a_line_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "trail.jsonl"
    path.write_text('{"trail"')
    open_trail(path).write("{}\n")
    assert path.read_text() == '{"trail"\n{}\n'


def test_a_trail_that_cannot_be_opened_is_a_setting_at_fault(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"--trail .*: cannot be written: No such file or directory"):
        open_trail(tmp_path / "nowhere" / "trail.jsonl")


def test_packed_tokens_come_back() -> None:
    assert unpacked(packed((0, 1, 248_319, 2**32 - 1))) == (0, 1, 248_319, 2**32 - 1)


@pytest.mark.parametrize("text", ["!", "AAAA", packed((1,))[:-4]])
def test_what_is_not_packed_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not packed"):
        unpacked(text)


def test_an_object_without_a_plain_form_is_refused() -> None:
    with pytest.raises(TypeError, match="a object cannot be written down"):
        plain(object())
