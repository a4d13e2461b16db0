"""Random lives of streams in the real backend: whatever was done to and beside them, each is as if alone.

Streams are filled in arbitrary passes, or go on from states kept of others; they run in shared rounds with
right and wrong drafts, kept in part, are moved at any settled moment, and end in any state; sessions are used
again as they were left. Tokens drawn, logits and every part of the state are compared bit for bit with the
same text run alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import hypothesis.strategies as st
import pytest
import torch
from engine_bench import DRAFT_DEPTH, DRAFT_HEAD, ROW_LIMIT, WINDOW_ROWS, Alone, Bench, differing
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from torch import Tensor

from hermitcrab.core.backend import DraftRequest, PieceId, SlotId, StateKeeper, Window
from hermitcrab.errors import StateNotSettled
from hermitcrab.models.qwen4_exp.model import Model
from hermitcrab.sampling.params import Sampling

# two of a size, a larger one, and one for whatever outgrows them
SESSION_ROWS = (72, 72, 136, 200)
LONGEST_PROMPT = 130

# as many rows as the head absorbs at once with the bits that it gives each alone
FEW_ROWS = 24

tokens = st.one_of(st.integers(0, 511), st.just(2))
samplings = st.builds(
    Sampling,
    temperature=st.sampled_from([0.0, 0.7, 3.0]),
    top_k=st.sampled_from([0, 20]),
    top_p=st.sampled_from([0.9, 1.0]),
    seed=st.integers(0, 1000),
)


@dataclass
class Stream:
    """A stream as its lane would know it; `text` ends with the pending token.

    `drawn` and `logits` are those after each settled row from the prompt's last on. The draft head has
    absorbed `head_rows` rows.
    """

    slot: SlotId
    prompt_rows: int
    sampling: Sampling
    text: list[int]
    drawn: list[int] = field(default_factory=list)
    logits: list[Tensor] = field(default_factory=list)
    drafts: tuple[int, ...] = ()
    head_rows: int = 0
    is_head_exact: bool = True

    @property
    def rows(self) -> int:
        return len(self.text) - 1


@dataclass(frozen=True)
class Kept:
    """A kept state of a prompt that began with this text: the pieces of its rows, and its end."""

    text: tuple[int, ...]
    rows: tuple[PieceId, ...]
    end: PieceId


class SessionMachine(RuleBasedStateMachine):
    """Drives one backend; every stream is checked when it ends."""

    model: Model

    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench(self.model, SESSION_ROWS)
        self.streams: dict[SlotId, Stream] = {}
        self.kept: list[Kept] = []
        self.pieces = 0

    def free(self, least_rows: int) -> list[SlotId]:
        return [
            SlotId(slot)
            for slot, rows in enumerate(SESSION_ROWS)
            if slot not in self.streams and rows >= least_rows
        ]

    @precondition(lambda self: self.free(0))
    @rule(data=st.data(), sampling=samplings)
    def start(self, data: st.DataObject, sampling: Sampling) -> None:
        """Fill a prompt in passes cut anywhere on the grid, perhaps from a kept state, perhaps moving."""
        slot = data.draw(st.sampled_from(self.free(0)), "slot")
        most = min(LONGEST_PROMPT, SESSION_ROWS[slot] - 1)
        # lengths on both sides of the budget, of blocks and of chunks
        count = data.draw(st.one_of(st.integers(1, min(20, most)), st.integers(1, most)), "prompt rows")
        prompt = data.draw(st.lists(tokens, min_size=count, max_size=count), "prompt")
        known = [kept for kept in self.kept if len(kept.text) < count]
        kept = data.draw(st.sampled_from([None, *known]), "resume from")
        restored = 0 if kept is None else len(kept.text)
        if kept is not None:
            prompt[:restored] = kept.text
            self.keeper.restore(slot, kept.rows, kept.end)
        cuts = data.draw(st.sets(st.sampled_from(range(restored, count, 64))), "cuts") | {restored}
        for start, end in zip(sorted(cuts), [*sorted(cuts)[1:], count], strict=True):
            larger = [
                free for free in self.free(0) if SESSION_ROWS[free] >= SESSION_ROWS[slot] and free != slot
            ]
            if start > restored and data.draw(st.booleans(), "keep"):
                kept = self.keep(slot, prompt[:start], kept)
            if start and larger and data.draw(st.booleans(), "move between passes"):
                target = data.draw(st.sampled_from(larger), "target")
                self.bench.backend.move(slot, target)
                self.bench.backend.release(slot)
                slot = target
            self.bench.backend.prefill(slot, start, prompt[start:end])
        self.bench.logits.clear()
        first = self.bench.backend.draw_first(slot, count, sampling)
        stream = Stream(slot, count, sampling, [*prompt, first], [first], list(self.bench.logits))
        stream.head_rows = count - 1
        self.streams[slot] = stream
        self.absorb(data, [stream])

    @property
    def keeper(self) -> StateKeeper:
        keeper = self.bench.backend.keeper()
        assert keeper is not None
        return keeper

    def keep(self, slot: SlotId, text: Sequence[int], before: "Kept | None") -> "Kept":
        """Keep the state that a prompt is in; of its rows those behind the kept state before it."""
        start, rows = (0, ()) if before is None else (len(before.text), before.rows)
        self.pieces += 2
        kept = Kept(tuple(text), (*rows, PieceId(self.pieces)), PieceId(self.pieces + 1))
        self.keeper.save_rows(slot, kept.rows[-1], start)
        self.keeper.save_end(slot, kept.end)
        self.kept.append(kept)
        return kept

    @precondition(lambda self: self.runnable())
    @rule(data=st.data())
    def round(self, data: st.DataObject) -> None:
        """Verify windows of some streams in one forward, keep a part of each, draft for them together."""
        chosen = data.draw(
            st.lists(st.sampled_from(self.runnable()), min_size=1, unique_by=id, max_size=4), "streams"
        )
        windows = {stream.slot: self.window(data, stream) for stream in chosen}
        assert sum(map(len, windows.values())) <= ROW_LIMIT
        self.bench.logits.clear()
        verified = self.bench.backend.verify(
            [Window(stream.slot, stream.rows, windows[stream.slot], stream.sampling) for stream in chosen]
        )
        logits = list(self.bench.logits)
        ended: list[Stream] = []
        for stream, result in zip(chosen, verified, strict=True):
            window = windows[stream.slot]
            rows, logits = logits[: len(window)], logits[len(window) :]
            if data.draw(st.integers(0, 9), "end unsettled?") == 0:
                ended.append(stream)
                continue
            keep = data.draw(st.integers(1, len(window)), "keep")
            self.bench.backend.keep(stream.slot, keep)
            stream.drawn += result.drawn[:keep]
            stream.logits += rows[:keep]
            # the next pending token need not be the one drawn: a lane may force another
            forced = data.draw(st.one_of(st.none(), st.none(), tokens), "forced")
            stream.text += [*window[1:keep], result.drawn[keep - 1] if forced is None else forced]
        for stream in ended:
            self.bench.backend.release(stream.slot)
            del self.streams[stream.slot]
        settled = [stream for stream in chosen if stream not in ended]
        if settled and data.draw(st.booleans(), "move before drafting"):
            self.move_one(data, settled[0])
        self.absorb(data, settled)

    @precondition(lambda self: self.movable())
    @rule(data=st.data())
    def move(self, data: st.DataObject) -> None:
        """Move a stream to a larger session, or one of its size."""
        self.move_one(data, data.draw(st.sampled_from(self.movable()), "stream"))

    @precondition(lambda self: self.streams)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        """End a settled stream, after comparing it with itself alone."""
        stream = self.streams.pop(data.draw(st.sampled_from(sorted(self.streams)), "slot"))
        self.compare(stream)
        self.bench.backend.release(stream.slot)

    @precondition(lambda self: self.streams)
    @rule(data=st.data(), off=st.sampled_from([-1, 1, 5]))
    def refuse(self, data: st.DataObject, off: int) -> None:
        """A call at a position that does not follow is refused and leaves no trace."""
        stream = self.streams[data.draw(st.sampled_from(sorted(self.streams)), "slot")]
        with pytest.raises(StateNotSettled):
            self.bench.backend.verify([Window(stream.slot, stream.rows + off, (5,), stream.sampling)])
        with pytest.raises(StateNotSettled):
            self.bench.backend.keep(stream.slot, 1)

    @invariant()
    def no_session_holds_two_streams(self) -> None:
        assert all(slot == stream.slot for slot, stream in self.streams.items())

    def teardown(self) -> None:
        for stream in self.streams.values():
            self.compare(stream)

    def runnable(self) -> list[Stream]:
        """Streams with room for another row."""
        return [stream for stream in self.streams.values() if stream.rows < SESSION_ROWS[stream.slot]]

    def movable(self) -> list[Stream]:
        return [stream for stream in self.streams.values() if self.free(SESSION_ROWS[stream.slot])]

    def depth(self, data: st.DataObject, stream: Stream) -> int:
        """Drafts to ask for, within the session's room for the head's provisional rows."""
        most = min(DRAFT_DEPTH, SESSION_ROWS[stream.slot] - stream.rows + 1)
        return data.draw(st.integers(0, most), "depth")

    def window(self, data: st.DataObject, stream: Stream) -> tuple[int, ...]:
        """The pending token, then the head's own drafts or any other tokens."""
        most = min(WINDOW_ROWS, SESSION_ROWS[stream.slot] - stream.rows) - 1
        own = stream.drafts[:most]
        if own and data.draw(st.booleans(), "own drafts"):
            return (stream.text[-1], *own)
        return (stream.text[-1], *data.draw(st.lists(tokens, max_size=most), "drafts"))

    def move_one(self, data: st.DataObject, stream: Stream) -> None:
        """Move if any session is free."""
        targets = self.free(SESSION_ROWS[stream.slot])
        if targets:
            source, stream.slot = stream.slot, data.draw(st.sampled_from(targets), "target")
            self.bench.backend.move(source, stream.slot)
            self.bench.backend.release(source)
            self.streams[stream.slot] = self.streams.pop(source)

    def absorb(self, data: st.DataObject, streams: Sequence[Stream]) -> None:
        """Draft for some of the streams together; the others' rows wait for the head."""
        drafting = [stream for stream in streams if data.draw(st.integers(0, 3), "wait?") < 3]
        requests = []
        for stream in drafting:
            following = tuple(stream.text[stream.head_rows + 1 :])
            depth = self.depth(data, stream)
            requests.append(DraftRequest(stream.slot, stream.head_rows, following, depth, stream.sampling))
        drafted = self.bench.backend.draft(requests) if requests else []
        for stream in streams:
            stream.drafts = ()
        for stream, request, drafts in zip(drafting, requests, drafted, strict=True):
            assert len(drafts) == request.depth
            stream.drafts = drafts
            # many rows at once go through the prompt kernels, which round otherwise: drafts alone may differ
            stream.is_head_exact &= len(request.next_tokens) <= FEW_ROWS
            stream.head_rows = stream.rows

    def compare(self, stream: Stream) -> None:
        """Everything about the stream is as if it had run alone."""
        alone = Alone(
            self.model, stream.text, stream.prompt_rows, stream.sampling, head_rows=stream.head_rows
        )
        assert stream.drawn == alone.drawn
        assert all(torch.equal(*pair) for pair in zip(stream.logits, alone.logits, strict=True))
        state = self.bench.state(stream.slot, rows=stream.rows, head_rows=stream.head_rows)
        parts = differing(state, alone.state)
        assert [part for part in parts if stream.is_head_exact or not part.endswith(DRAFT_HEAD)] == []


def run_machine(
    model: Model, *, examples: int, steps: int, phases: Sequence[Phase], derandomize: bool
) -> None:
    # hypothesis makes the machines itself, so the model comes by class
    machine = type("SessionMachineOfModel", (SessionMachine,), {"model": model})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            derandomize=derandomize,
            database=None,
            phases=phases,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_streams_in_any_company_are_as_if_alone(model: Model) -> None:
    # a life that fails is printed as it is: to shrink it takes minutes, which the long run below has
    run_machine(model, examples=20, steps=12, phases=[Phase.generate], derandomize=True)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_streams_in_any_company_are_as_if_alone_in_long_random_lives(model: Model) -> None:
    run_machine(model, examples=300, steps=40, phases=[Phase.generate, Phase.shrink], derandomize=False)
