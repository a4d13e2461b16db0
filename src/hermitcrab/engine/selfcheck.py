"""The check at load: logits of windows and of shared rounds, bit for bit against one-row steps alone.

It runs two synthetic streams through the backend that will serve, in two of its sessions, at a length on each
side of the sparse-attention boundary. What differs is switched off, for good.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from hermitcrab.clock import Clock
from hermitcrab.core.backend import SlotId, Window
from hermitcrab.core.load_check import CheckState, LoadCheck
from hermitcrab.engine.backend import TorchBackend
from hermitcrab.sampling.params import Sampling

logger = logging.getLogger(__name__)

# some chunks of keys, the last of them unfinished: shorter sums were seen to be equal in any company
NEAR_TOKENS = 203

# where in a stream's reply windows begin: one row is kept of each, so that every one but the first follows a
# window that was cut; then the session goes back to the prompt's end
_PLACES = 4

_GREEDY = Sampling()


@dataclass(frozen=True, slots=True)
class Difference:
    """The first logit in which a row run with others differs from the same row alone."""

    position: int
    token: int
    alone: float
    together: float

    @property
    def words(self) -> str:
        return (
            f"after position {self.position} token {self.token} has the logit {self.together!r}, "
            f"and {self.alone!r} in a step of its own"
        )


@dataclass(frozen=True, slots=True)
class OffWidth:
    """Windows of `rows` rows do not give a row its own bits."""

    rows: int
    difference: Difference

    @property
    def words(self) -> str:
        return f"windows of {self.rows} rows: {self.difference.words}"


@dataclass(frozen=True, slots=True)
class OffSharing:
    """A round of two streams does not give a row its own bits."""

    difference: Difference

    @property
    def words(self) -> str:
        return f"rounds of several streams: {self.difference.words}"


@dataclass(frozen=True, slots=True)
class Text:
    """A synthetic stream: the prompt, and the tokens that follow it."""

    prompt: tuple[int, ...]
    reply: tuple[int, ...]

    @property
    def rows(self) -> int:
        """Rows a session needs for it."""
        return len(self.prompt) + len(self.reply)


@dataclass(frozen=True, slots=True)
class Alone:
    """A synthetic stream and the logits [reply rows, vocabulary] of its reply in one-row steps."""

    text: Text
    logits: Tensor


class _Bench:
    """The backend with its logits laid open, and which of its sessions hold a prompt and nothing after it."""

    def __init__(self, backend: TorchBackend) -> None:
        self._backend = backend
        self._filled: dict[SlotId, tuple[int, ...]] = {}
        self._seen: list[Tensor] = []
        backend.watch_logits(self._seen.append)

    def fill(self, slot: SlotId, prompt: tuple[int, ...]) -> None:
        """Bring a session to a prompt's end: as it is there, by a copy of one that is, or by running it."""
        if self._filled.get(slot) == prompt:
            return
        self._backend.release(slot)
        source = next((other for other, held in self._filled.items() if held == prompt), None)
        self._filled[slot] = prompt
        if source is not None:
            self._backend.move(source, slot)
            return
        pass_rows = self._backend.facts().prompt_pass_rows
        for start in range(0, len(prompt), pass_rows):
            self._backend.prefill(slot, start, prompt[start : start + pass_rows])

    def run(self, windows: Sequence[Window], kept_rows: Sequence[int]) -> Tensor:
        """One round; its logits [rows, vocabulary]. Each session goes on from the rows kept."""
        self._seen.clear()
        for window in windows:
            self._filled.pop(window.slot, None)
        self._backend.verify(windows)
        for window, kept in zip(windows, kept_rows, strict=True):
            self._backend.keep(window.slot, kept)
        return self._seen[0]

    def close(self, slots: Sequence[SlotId]) -> None:
        self._backend.watch_logits(None)
        for slot in slots:
            self._backend.release(slot)


def check_exactness(backend: TorchBackend, clock: Clock) -> LoadCheck:
    """Check widths and sharing in the two largest sessions, a third for copies, and leave those empty.

    Raises DeviceFailed if the device does.
    """
    started_s = clock.now_s()
    facts = backend.facts()
    slots = _largest(facts.session_rows)
    rows = [facts.session_rows[slot] for slot in slots]
    texts, unchecked = _choose_texts(backend, rows[0])
    if not texts:
        return LoadCheck(CheckState.NOT_RUN, unchecked=tuple(unchecked))
    can_share = len(slots) > 1 and rows[1] >= texts[0].rows
    if not can_share:
        unchecked.append("rounds of several streams, for want of a second session")
    bench = _Bench(backend)
    off: dict[int, OffWidth] = {}
    alone: list[Alone] = []
    try:
        # the near prompt is kept in the last session and the far one in the second, for sharing's sake
        for text, spare in zip(texts, (len(slots) - 1, 1), strict=False):
            if 0 < spare < len(slots) and rows[spare] >= text.rows:
                bench.fill(slots[spare], text.prompt)
            alone.append(_check_widths(bench, text, slots[0], off, facts.window_rows))
        widths = [width for width in facts.exact_widths if width not in off]
        sharing = None
        if can_share:
            sharing = _check_sharing(bench, alone, _places(alone, slots[:2], rows), widths)
    finally:
        bench.close(slots)
    found: list[OffWidth | OffSharing] = [off[width] for width in sorted(off)]
    found += [] if sharing is None else [sharing]
    for part in found:
        logger.warning("switched off: %s", part.words)
    return LoadCheck(
        CheckState.REDUCED if found else CheckState.PASSED,
        prompt_tokens=tuple(len(text.prompt) for text in texts),
        window_rows=facts.window_rows,
        off_widths=tuple(sorted(off)),
        is_sharing_off=sharing is not None,
        reasons=tuple(part.words for part in found),
        unchecked=tuple(unchecked),
        seconds=clock.now_s() - started_s,
    )


def _largest(session_rows: Sequence[int]) -> list[SlotId]:
    """The largest sessions, three at most; rows that are not used cost nothing."""
    order = sorted(range(len(session_rows)), key=lambda slot: (-session_rows[slot], slot))
    return [SlotId(slot) for slot in order[:3]]


def _choose_texts(backend: TorchBackend, most_rows: int) -> tuple[list[Text], list[str]]:
    """Streams on both sides of the boundary, as far as the largest session holds them."""
    facts = backend.facts()
    reply_rows = facts.window_rows + _PLACES
    near_tokens = max(1, min(NEAR_TOKENS, backend.boundary_tokens - reply_rows))
    # the first window of the far stream has a row on each side
    lengths = (near_tokens, backend.boundary_tokens - 1)
    texts = [
        Text(_tokens(length, facts.vocab_tokens, salt=1), _tokens(reply_rows, facts.vocab_tokens, salt=2))
        for length in lengths
    ]
    held = [text for text in texts if text.rows <= most_rows]
    unchecked = [
        f"a stream of {len(text.prompt)} tokens, which no session of at most {most_rows} rows holds"
        for text in texts
        if text not in held
    ]
    return held, unchecked


def _tokens(count: int, vocab_tokens: int, *, salt: int) -> tuple[int, ...]:
    """Tokens in no order that a model could find."""
    return tuple((salt * 7919 + place * (place + 104_729)) % vocab_tokens for place in range(count))


def _check_widths(
    bench: _Bench, text: Text, work: SlotId, off: dict[int, OffWidth], window_rows: int
) -> Alone:
    """Run windows of every width over a stream, and add the first that differ to `off`; the stream alone."""
    bench.fill(work, text.prompt)
    steps = [bench.run([_window(work, text, place, 1)], [1]).clone() for place in range(len(text.reply))]
    alone = Alone(text, torch.cat(steps))
    place = _PLACES
    for width in range(2, window_rows + 1):
        if place == _PLACES:
            bench.fill(work, text.prompt)
            place = 0
        logits = bench.run([_window(work, text, place, width)], [1])
        difference = _first_difference(alone, place, logits)
        place += 1
        if difference is not None:
            off.setdefault(width, OffWidth(width, difference))
            # what the width has left in the session must not be held against the next one
            place = _PLACES
    return alone


def _places(alone: Sequence[Alone], slots: Sequence[SlotId], rows: Sequence[int]) -> list[SlotId]:
    """Where the near and the far stream go: the far one stays in the second session if that holds it."""
    return list(slots) if rows[1] >= alone[-1].text.rows else list(reversed(slots))


def _check_sharing(
    bench: _Bench, alone: Sequence[Alone], slots: Sequence[SlotId], widths: Sequence[int]
) -> OffSharing | None:
    """Run two streams in shared rounds of equal and unequal windows, each against itself alone.

    The farther stream goes into the last slot.
    """
    pair = (alone[0], alone[-1])
    for slot, one in zip(slots, pair, strict=True):
        bench.fill(slot, one.text.prompt)
    widest = widths[-1]
    for place, shape in enumerate(((1, 1), (widest, 1), (1, widest), (widest, widest))):
        windows = [
            _window(slot, one.text, place, width) for slot, one, width in zip(slots, pair, shape, strict=True)
        ]
        parts = torch.split(bench.run(windows, (1, 1)), list(shape))
        for one, logits in zip(pair, parts, strict=True):
            difference = _first_difference(one, place, logits)
            if difference is not None:
                return OffSharing(difference)
    return None


def _window(slot: SlotId, text: Text, place: int, width: int) -> Window:
    return Window(slot, len(text.prompt) + place, text.reply[place : place + width], _GREEDY)


def _first_difference(alone: Alone, place: int, logits: Tensor) -> Difference | None:
    expected = alone.logits[place : place + logits.shape[0]]
    if torch.equal(expected, logits):
        return None
    row, token = (int(index) for index in (expected != logits).nonzero()[0])
    position = len(alone.text.prompt) + place + row
    return Difference(position, token, alone=float(expected[row, token]), together=float(logits[row, token]))
