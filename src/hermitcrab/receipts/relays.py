"""Backends that stand before another one and bring about what a check needs: cuts, pauses, fewer sessions."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from hermitcrab.core.accept import kept_rows
from hermitcrab.core.backend import Backend, DraftRequest, Facts, SlotId, StateKeeper, Verified, Window
from hermitcrab.core.marks import LogitsMark
from hermitcrab.errors import LaneMemory
from hermitcrab.sampling.edits import Edits
from hermitcrab.sampling.logprobs import TokenLogprobs
from hermitcrab.sampling.params import Sampling


class Relay:
    """Passes every call on."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def facts(self) -> Facts:
        return self._backend.facts()

    def prefill(self, slot: SlotId, position: int, tokens: Sequence[int]) -> None:
        self._backend.prefill(slot, position, tokens)

    def draw_first(self, slot: SlotId, position: int, sampling: Sampling, edits: Edits | None = None) -> int:
        return self._backend.draw_first(slot, position, sampling, edits)

    def first_logprobs(self, slot: SlotId, token: int, top: int) -> TokenLogprobs:
        return self._backend.first_logprobs(slot, token, top)

    def verify(self, windows: Sequence[Window]) -> list[Verified]:
        return self._backend.verify(windows)

    def keep(self, slot: SlotId, rows: int) -> None:
        self._backend.keep(slot, rows)

    def draft(self, requests: Sequence[DraftRequest]) -> list[tuple[int, ...]]:
        return self._backend.draft(requests)

    def move(self, source: SlotId, target: SlotId) -> None:
        self._backend.move(source, target)

    def release(self, slot: SlotId) -> None:
        self._backend.release(slot)

    def keeper(self) -> StateKeeper | None:
        return self._backend.keeper()


class SomeSlots(Relay):
    """Shows only some of the sessions, in the order given."""

    def __init__(self, backend: Backend, slots: Sequence[SlotId]) -> None:
        super().__init__(backend)
        self._slots = tuple(slots)

    def facts(self) -> Facts:
        facts = self._backend.facts()
        session_rows = tuple(facts.session_rows[slot] for slot in self._slots)
        return replace(facts, session_rows=session_rows, piece_costs=None)

    def prefill(self, slot: SlotId, position: int, tokens: Sequence[int]) -> None:
        self._backend.prefill(self._slots[slot], position, tokens)

    def draw_first(self, slot: SlotId, position: int, sampling: Sampling, edits: Edits | None = None) -> int:
        return self._backend.draw_first(self._slots[slot], position, sampling, edits)

    def first_logprobs(self, slot: SlotId, token: int, top: int) -> TokenLogprobs:
        return self._backend.first_logprobs(self._slots[slot], token, top)

    def verify(self, windows: Sequence[Window]) -> list[Verified]:
        return self._backend.verify([replace(window, slot=self._slots[window.slot]) for window in windows])

    def keep(self, slot: SlotId, rows: int) -> None:
        self._backend.keep(self._slots[slot], rows)

    def draft(self, requests: Sequence[DraftRequest]) -> list[tuple[int, ...]]:
        return self._backend.draft([replace(request, slot=self._slots[request.slot]) for request in requests])

    def move(self, source: SlotId, target: SlotId) -> None:
        self._backend.move(self._slots[source], self._slots[target])

    def release(self, slot: SlotId) -> None:
        self._backend.release(self._slots[slot])

    def keeper(self) -> StateKeeper | None:
        # kept states name the slots of the backend behind
        return None


class Recorder(Relay):
    """Notes the logits behind every token of every request: `marks[request id][row position]`."""

    def __init__(self, backend: Backend, take_marks: Callable[[], list[LogitsMark]]) -> None:
        super().__init__(backend)
        self._take_marks = take_marks
        self._holder: Callable[[SlotId], str | None] | None = None
        self.marks: dict[str, dict[int, LogitsMark]] = {}

    def follow(self, holder: Callable[[SlotId], str | None]) -> None:
        """Learn who tells which request sits in a slot; before the first call."""
        self._holder = holder

    def draw_first(self, slot: SlotId, position: int, sampling: Sampling, edits: Edits | None = None) -> int:
        token = self._backend.draw_first(slot, position, sampling, edits)
        for mark in self._take_marks():
            self._of(slot)[position - 1] = mark
        return token

    def verify(self, windows: Sequence[Window]) -> list[Verified]:
        verified = self._backend.verify(windows)
        marks = iter(self._take_marks())
        for window, result in zip(windows, verified, strict=True):
            rows = [mark for _, mark in zip(window.tokens, marks, strict=False)]
            kept = kept_rows(window.tokens, result.drawn)
            self._of(window.slot).update(enumerate(rows[:kept], start=window.position))
        return verified

    def _of(self, slot: SlotId) -> dict[int, LogitsMark]:
        assert self._holder is not None, "a recorder was used before it knew whom to follow"
        holder = self._holder(slot)
        assert holder is not None, f"slot {slot} was run for nobody"
        return self.marks.setdefault(holder, {})


@dataclass(frozen=True, slots=True)
class Cut:
    """A window of `rows` rows of which the first `kept` stand."""

    rows: int
    kept: int


class ScriptedDrafts(Relay):
    """Drafts that are right up to a chosen row and wrong from there; each stream goes round its cuts.

    `known` has the reply to every prompt that will be asked, `cuts` what its windows are to be. `seen` has
    the cuts that came about. Its chains are as deep as the widest window, whatever the head behind it can do.
    """

    def __init__(
        self,
        backend: Backend,
        known: Mapping[tuple[int, ...], tuple[int, ...]],
        cuts: Mapping[tuple[int, ...], Sequence[Cut]],
    ) -> None:
        super().__init__(backend)
        self._known = known
        self._cuts = cuts
        self._prompts: dict[SlotId, list[int]] = {}
        self._turns: dict[SlotId, int] = {}
        self.seen: set[Cut] = set()

    def facts(self) -> Facts:
        facts = super().facts()
        return replace(facts, draft_depth=facts.window_rows - 1)

    def prefill(self, slot: SlotId, position: int, tokens: Sequence[int]) -> None:
        super().prefill(slot, position, tokens)
        if position == 0:
            self._prompts[slot], self._turns[slot] = [], 0
        self._prompts[slot] += tokens

    def move(self, source: SlotId, target: SlotId) -> None:
        super().move(source, target)
        self._prompts[target], self._turns[target] = self._prompts[source], self._turns[source]

    def verify(self, windows: Sequence[Window]) -> list[Verified]:
        verified = super().verify(windows)
        for window, result in zip(windows, verified, strict=True):
            self.seen.add(Cut(len(window.tokens), kept_rows(window.tokens, result.drawn)))
        return verified

    def draft(self, requests: Sequence[DraftRequest]) -> list[tuple[int, ...]]:
        # the head still absorbs, as the sessions' states depend on its rows
        super().draft([replace(request, depth=0) for request in requests])
        return [self._drafts(request) for request in requests]

    def _drafts(self, request: DraftRequest) -> tuple[int, ...]:
        prompt = tuple(self._prompts[request.slot])
        cuts = self._cuts[prompt]
        cut = cuts[self._turns[request.slot] % len(cuts)]
        self._turns[request.slot] += 1
        start = request.position + len(request.next_tokens) + 1 - len(prompt)
        count = min(cut.rows - 1, request.depth)
        right = self._known[prompt][start : start + count]
        vocab_tokens = self.facts().vocab_tokens
        return tuple(
            token if place < cut.kept - 1 else (token + 1) % vocab_tokens for place, token in enumerate(right)
        )


class ReluctantMoves(Relay):
    """Refuses every move a few times for want of memory, so that a stream pauses before each."""

    def __init__(self, backend: Backend, *, refusals: int) -> None:
        super().__init__(backend)
        self._refusals = refusals
        self._refused: dict[SlotId, int] = {}

    def move(self, source: SlotId, target: SlotId) -> None:
        if self._refused.get(source, 0) < self._refusals:
            self._refused[source] = self._refused.get(source, 0) + 1
            raise LaneMemory("the check refuses this move")
        super().move(source, target)
        self._refused[source] = 0


class ShortPasses(Relay):
    """Takes prompt passes of so many rows, rounded up to the grid, if the backend takes as many."""

    def __init__(self, backend: Backend, pass_rows: int) -> None:
        super().__init__(backend)
        self._pass_rows = pass_rows

    def facts(self) -> Facts:
        facts = super().facts()
        grid = facts.prompt_grid_rows
        asked = -(-self._pass_rows // grid) * grid
        return replace(facts, prompt_pass_rows=min(asked, facts.prompt_pass_rows))


def every_cut(widths: Iterable[int]) -> tuple[Cut, ...]:
    """Every window of more than one row, kept at every length."""
    return tuple(Cut(rows, kept) for rows in widths if rows > 1 for kept in range(1, rows + 1))
