"""Builders for tests of receipts: cases, a stand over the strict fake backend, backends with a fault."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from hermitcrab.clock import ScriptedClock
from hermitcrab.core.backend import Backend, SlotId, Verified, Window
from hermitcrab.core.fake import FakeBackend
from hermitcrab.core.marks import LogitsMark
from hermitcrab.core.slot_list import rows_of
from hermitcrab.receipts.cases import Cases, Scale, Sessions
from hermitcrab.receipts.record import Case, Reply
from hermitcrab.receipts.relays import Relay
from hermitcrab.receipts.stand import Stand, Watched
from hermitcrab.sampling.params import Sampling

VOCAB_TOKENS = 64
WINDOW_ROWS = 4
SCALE = Scale(
    streams=(3, 8, 16), reply_tokens=24, grown_tokens=72, step_tokens=16, arrivals=40, has_every_cut=True
)


def prompt(place: int, tokens: int) -> tuple[int, ...]:
    """A prompt like no other."""
    return tuple((place * 31 + index * (place + 3) + 1) % VOCAB_TOKENS for index in range(tokens))


def cases() -> Cases:
    """Sixteen short prompts and three long ones."""
    return Cases(
        tuple(prompt(place, 17 + place % 5) for place in range(16)),
        tuple(prompt(place, 40 + 7 * place) for place in range(16, 19)),
        SCALE,
    )


@dataclass
class Bench:
    """A stand, and the fake backends that it has opened."""

    stand: Stand
    cases: Cases
    sessions: Sessions
    fakes: list[FakeBackend]

    @property
    def violations(self) -> list[str]:
        return [words for fake in self.fakes for words in fake.violations]


def bench(wrap: Callable[[Backend], Backend] = lambda backend: backend, **fake: object) -> Bench:
    """A stand over a fake backend behind `wrap`, the same for every backend it opens."""
    asked = cases()
    sessions = asked.sessions(window_rows=WINDOW_ROWS)
    rows = [rows_of(tokens) for tokens in sessions.tokens]
    fakes: list[FakeBackend] = []

    def open_fake() -> Watched:
        given = {"vocab_tokens": VOCAB_TOKENS, "prompt_pass_rows": 256, **fake}
        made = FakeBackend(rows, **given)  # type: ignore[arg-type]  # passed on as given
        fakes.append(made)
        return Watched(wrap(made), list)

    return Bench(Stand(open_fake(), open_fake, ScriptedClock()), asked, sessions, fakes)


class ChangedDraws(Relay):
    """Draws another token in the last row of every round for which `is_changed(row counts, position)`."""

    def __init__(self, backend: Backend, is_changed: Callable[[Sequence[int], int], bool]) -> None:
        super().__init__(backend)
        self._is_changed = is_changed

    def verify(self, windows: Sequence[Window]) -> list[Verified]:
        verified = super().verify(windows)
        if not self._is_changed([len(window.tokens) for window in windows], windows[-1].position):
            return verified
        *drawn, last = verified[-1].drawn
        other = (last + 1) % VOCAB_TOKENS
        return [*verified[:-1], replace(verified[-1], drawn=(*drawn, other))]


class Remembering(Relay):
    """Draws otherwise once it has run so many rounds, whoever they were for."""

    def __init__(self, backend: Backend, *, rounds: int) -> None:
        super().__init__(backend)
        self._rounds_left = rounds

    def verify(self, windows: Sequence[Window]) -> list[Verified]:
        self._rounds_left -= 1
        verified = super().verify(windows)
        return verified if self._rounds_left > 0 else [_others(result) for result in verified]


class ChangedRest(Relay):
    """Reads another first token behind every restored state."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self._begun: set[SlotId] = set()

    def prefill(self, slot: SlotId, position: int, tokens: Sequence[int]) -> None:
        if position and slot not in self._begun:
            tokens = [(tokens[0] + 1) % VOCAB_TOKENS, *tokens[1:]]
        self._begun.add(slot)
        super().prefill(slot, position, tokens)

    def release(self, slot: SlotId) -> None:
        super().release(slot)
        self._begun.discard(slot)


class LostTail(Relay):
    """Forgets the newest token of a session that is moved: the copy's last row is another's."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self._moved: set[SlotId] = set()

    def move(self, source: SlotId, target: SlotId) -> None:
        super().move(source, target)
        self._moved.add(target)

    def release(self, slot: SlotId) -> None:
        super().release(slot)
        self._moved.discard(slot)

    def verify(self, windows: Sequence[Window]) -> list[Verified]:
        return [
            _others(result) if window.slot in self._moved else result
            for window, result in zip(windows, super().verify(windows), strict=True)
        ]


def _others(result: Verified) -> Verified:
    return replace(result, drawn=tuple((token + 1) % VOCAB_TOKENS for token in result.drawn))


def case(tokens: int = 6, name: str = "a case") -> Case:
    return Case(name, prompt(1, 5), Sampling(), tokens)


def mark(value: float, token: int = 1) -> LogitsMark:
    return LogitsMark(repr(value).encode(), ((token, value),))


def reply(tokens: Sequence[int], *, asked: Case | None = None, marks: Sequence[float] = ()) -> Reply:
    """A reply whose rows have these logits, from the first on."""
    asked = case(len(tokens)) if asked is None else asked
    first_row = len(asked.prompt) - 1
    return Reply(asked, tuple(tokens), {first_row + place: mark(value) for place, value in enumerate(marks)})
