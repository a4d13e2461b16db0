"""Kept states of the real backend: each part of a session comes back bit for bit, elsewhere, in pieces."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
import torch
from engine_bench import CONTEXT_ROWS, DRAFT_DEPTH, Alone, Bench, build_model, differing

from hermitcrab.clock import ScriptedClock
from hermitcrab.core.api import Event, Failed, Finished, Request, Tokens
from hermitcrab.core.backend import DraftRequest, PieceId, SlotId, StateKeeper, Window
from hermitcrab.core.kept import CacheRules
from hermitcrab.core.lanes import LaneRules
from hermitcrab.core.loop import HostLoop
from hermitcrab.errors import StateNotSettled
from hermitcrab.kernels.deltanet import CHUNK_ROWS
from hermitcrab.models.qwen4_exp.checkpoint import load_checkpoint
from hermitcrab.models.qwen4_exp.model import Model
from hermitcrab.models.qwen4_exp.tiny import tiny_config, write_tiny
from hermitcrab.sampling.params import Sampling

SAMPLED = Sampling(temperature=0.9, top_k=30, seed=4)
FIRST, SECOND = SlotId(0), SlotId(1)
START = 3
SAMPLINGS = pytest.mark.parametrize("sampling", [Sampling(), SAMPLED], ids=["greedy", "sampled"])


def text(seed: int, tokens: int) -> tuple[int, ...]:
    dice = random.Random(seed)
    return tuple(dice.randrange(4, 512) for _ in range(tokens))


def keeper_of(bench: Bench) -> StateKeeper:
    keeper = bench.backend.keeper()
    assert keeper is not None
    return keeper


def keep_in_pieces(bench: Bench, prompt: Sequence[int], marks: Sequence[int]) -> list[PieceId]:
    """Fill a prompt in the first session, keeping its rows from mark to mark and an end at the last."""
    keeper, start, pieces = keeper_of(bench), 0, list[PieceId]()
    for mark in marks:
        bench.backend.prefill(FIRST, start, prompt[start:mark])
        pieces.append(PieceId(len(pieces)))
        keeper.save_rows(FIRST, pieces[-1], start)
        start = mark
    keeper.save_end(FIRST, PieceId(99))
    return pieces


def spoil(bench: Bench) -> None:
    """Leave another prompt's remains in both sessions."""
    for slot in (FIRST, SECOND):
        bench.backend.release(slot)
        bench.backend.prefill(slot, 0, text(77, 300))
        bench.backend.release(slot)


@pytest.mark.parametrize("marks", [(64,), (64, 128), (128, 192, 256)])
def test_a_prompt_goes_on_from_a_restored_state_as_from_its_own(model: Model, marks: tuple[int, ...]) -> None:
    prompt = text(1, 290)
    bench = Bench(model, [CONTEXT_ROWS, 304])
    pieces = keep_in_pieces(bench, prompt, marks)
    spoil(bench)
    keeper_of(bench).restore(SECOND, pieces, PieceId(99))
    line = finish(bench, SECOND, prompt, marks[-1], SAMPLED)
    alone = Alone(model, line, len(prompt), SAMPLED)
    assert differing(bench.state(SECOND, rows=len(line) - 1, head_rows=len(line) - 1), alone.state) == []
    assert all(torch.equal(*pair) for pair in zip(bench.logits, alone.logits, strict=True))


def finish(bench: Bench, slot: SlotId, prompt: Sequence[int], start: int, sampling: Sampling) -> list[int]:
    """Fill the rest of a prompt and reply to it with right drafts; the text with its pending token."""
    backend = bench.backend
    backend.prefill(slot, start, prompt[start:])
    bench.logits.clear()
    line = [*prompt, backend.draw_first(slot, len(prompt), sampling)]
    absorbed = len(prompt) - 1
    for _ in range(6):
        rows = len(line) - 1
        backend.draft([DraftRequest(slot, absorbed, tuple(line[absorbed + 1 :]), DRAFT_DEPTH, sampling)])
        absorbed = rows
        (verified,) = backend.verify([Window(slot, rows, (line[-1],), sampling)])
        backend.keep(slot, 1)
        line.append(verified.drawn[0])
    backend.draft([DraftRequest(slot, absorbed, tuple(line[absorbed + 1 :]), 0, sampling)])
    return line


def test_pieces_take_what_their_costs_say(model: Model) -> None:
    bench = Bench(model, [CONTEXT_ROWS])
    costs = bench.backend.facts().piece_costs
    assert costs is not None
    keep_in_pieces(bench, text(1, 256), (64, 256))
    # before the first row there is no block to take along
    promised = costs.rows(64) - costs.span_bytes + costs.rows(192) + costs.end_bytes
    assert bench.backend.kept_bytes == promised


def test_dropped_pieces_take_nothing(model: Model) -> None:
    bench = Bench(model, [CONTEXT_ROWS])
    for piece in [*keep_in_pieces(bench, text(1, 128), (64, 128)), PieceId(99), PieceId(5)]:
        keeper_of(bench).drop(piece)
    assert bench.backend.kept_bytes == 0


def test_the_rows_of_a_reply_cannot_be_kept(models: dict[str, Model]) -> None:
    bench = Bench(models["default"], [CONTEXT_ROWS])
    prompt = text(1, CHUNK_ROWS - 1)
    bench.backend.prefill(FIRST, 0, prompt)
    token = bench.backend.draw_first(FIRST, len(prompt), Sampling())
    bench.backend.verify([Window(FIRST, len(prompt), (token,), Sampling())])
    with pytest.raises(StateNotSettled):
        keeper_of(bench).save_end(FIRST, PieceId(1))
    bench.backend.keep(FIRST, 1)
    with pytest.raises(StateNotSettled):
        keeper_of(bench).save_rows(FIRST, PieceId(1), 0)


@pytest.mark.parametrize("rows", [0, 1, 63, 65])
def test_a_session_off_the_grid_cannot_be_kept(models: dict[str, Model], rows: int) -> None:
    bench = Bench(models["default"], [CONTEXT_ROWS])
    if rows:
        bench.backend.prefill(FIRST, 0, text(1, rows))
    with pytest.raises(StateNotSettled):
        keeper_of(bench).save_rows(FIRST, PieceId(1), 0)
    with pytest.raises(StateNotSettled):
        keeper_of(bench).save_end(FIRST, PieceId(1))


@pytest.mark.parametrize("given", [[], [0], [1], [0, 2], [1, 0], [0, 1, 2]])
def test_pieces_that_do_not_lead_to_their_end_are_refused(models: dict[str, Model], given: list[int]) -> None:
    bench = Bench(models["default"], [CONTEXT_ROWS, CONTEXT_ROWS])
    keep_in_pieces(bench, text(1, 128), (64, 128))
    with pytest.raises(StateNotSettled):
        keeper_of(bench).restore(SECOND, [PieceId(piece) for piece in given], PieceId(99))


@pytest.mark.parametrize("slot", [FIRST, SECOND], ids=["not empty", "too small"])
def test_a_session_that_is_not_empty_or_too_small_is_not_restored_into(
    models: dict[str, Model], slot: SlotId
) -> None:
    bench = Bench(models["default"], [CONTEXT_ROWS, 100])
    pieces = keep_in_pieces(bench, text(1, 128), (128,))
    with pytest.raises(StateNotSettled):
        keeper_of(bench).restore(slot, pieces, PieceId(99))


@dataclass
class Told:
    """A sink that keeps a reply's tokens and its end."""

    tokens: list[int] = field(default_factory=list)
    finished: Finished | None = None

    def put(self, event: Event) -> None:
        match event:
            case Tokens(ids):
                self.tokens += ids
            case Finished():
                self.finished = event
            case Failed(error=error):
                raise error

    @property
    def cached_tokens(self) -> int:
        assert self.finished is not None
        return self.finished.usage.cached_tokens


class House:
    """The lanes on a fresh backend, with a cache or without."""

    def __init__(
        self, model: Model, *, budget_bytes: int = 0, drafts: bool = True, sessions: int = 2
    ) -> None:
        self.bench = Bench(model, [CONTEXT_ROWS] * sessions)
        rules = LaneRules(
            draft_depth=None if drafts else 0,
            drafts_always=drafts,
            cache=CacheRules(budget_bytes, frozenset({START}), gap_rows=64),
        )
        self.loop = HostLoop(self.bench.backend, rules, ScriptedClock())
        self.asked = 0

    def ask(self, *prompts: Sequence[int], sampling: Sampling = SAMPLED, tokens: int = 12) -> list[Told]:
        """Replies to prompts that come together."""
        sinks = [Told() for _ in prompts]
        for prompt, sink in zip(prompts, sinks, strict=True):
            self.asked += 1
            self.loop.submit(Request(f"r{self.asked}", tuple(prompt), sampling, tokens), sink)
        for _ in range(2000):
            if not self.loop.has_requests:
                return sinks
            self.loop.step()
        raise AssertionError("requests are left")


def fresh(model: Model, prompt: Sequence[int], sampling: Sampling, tokens: int = 12) -> list[int]:
    """The reply alone, undrafted, on a backend that never kept anything."""
    (told,) = House(model, drafts=False, sessions=1).ask(prompt, sampling=sampling, tokens=tokens)
    return told.tokens


def talk(*seeds: int, tokens: int = 70) -> tuple[int, ...]:
    """A prompt of messages, each begun by the start token."""
    return (*(token for seed in seeds for token in (START, *text(seed, tokens - 1))), START, 9)


@pytest.fixture(scope="module")
def roomy(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """A model whose attention is dense for the first two states, and sparse from there on."""
    directory = tmp_path_factory.mktemp("roomy")
    write_tiny(directory, config=tiny_config(indexer_budget=160), seed=43)
    return build_model(load_checkpoint(directory), torch.float32)


@SAMPLINGS
@pytest.mark.parametrize("drafts", [True, False], ids=["drafted", "plain"])
def test_warm_replies_are_cold_ones_below_and_above_the_sparse_budget(
    roomy: Model, sampling: Sampling, drafts: bool
) -> None:
    model, house = roomy, House(roomy, budget_bytes=1 << 26, drafts=drafts)
    short, long = talk(1), talk(1, 2, 3, 4)
    assert len(short) + 12 < house.bench.backend.boundary_tokens < 256 < len(long)
    for prompt, reused in ((short, 0), (short, 64), (long, 64), (long, 256), (talk(1, 2, 8, 4), 128)):
        (told,) = house.ask(prompt, sampling=sampling)
        assert told.cached_tokens == reused
        assert told.tokens == fresh(model, prompt, sampling)


def test_a_next_turn_and_prompts_that_come_together_are_as_if_fresh(models: dict[str, Model]) -> None:
    model = models["deep"]
    house = House(model, budget_bytes=1 << 26, sessions=3)
    (first,) = house.ask(talk(1, 2))
    prompts = [(*talk(1, 2), *first.tokens, *talk(seed, tokens=40)) for seed in (5, 6, 7)]
    told = house.ask(*prompts)
    assert [reply.tokens for reply in told] == [fresh(model, prompt, SAMPLED) for prompt in prompts]
    assert [reply.cached_tokens for reply in told] == [128, 128, 128]


def turns(model: Model, count: int, *, seed: int, budget_bytes: int) -> House:
    """Conversations with forks and edits; each reply is held to a fresh one, memory to its bound."""
    house, dice = House(model, budget_bytes=budget_bytes), random.Random(seed)
    histories = [talk(1)]
    for turn in range(count):
        history = dice.choice(histories[-4:])
        if dice.random() < 0.3:
            history = history[: dice.randrange(1, len(history) + 1)]
        prompt = (*history, *talk(1000 + turn, tokens=dice.randrange(2, 60)))[-250:]
        sampling = Sampling() if dice.random() < 0.5 else SAMPLED
        (told,) = house.ask(prompt, sampling=sampling, tokens=4)
        assert told.tokens == fresh(model, prompt, sampling, tokens=4)
        assert house.bench.backend.kept_bytes <= house.loop.snapshot.cache.bytes <= budget_bytes
        # two of three conversations go on, the others begin anew
        histories.append((*prompt, *told.tokens) if dice.random() < 0.7 else talk(turn))
    return house


def budget_for(model: Model, *, states: int) -> int:
    costs = Bench(model, [64]).backend.facts().piece_costs
    assert costs is not None
    return states * (costs.rows(128) + costs.end_bytes)


def test_random_turns_with_forks_are_as_if_fresh_and_memory_stays_under_its_cap(
    models: dict[str, Model],
) -> None:
    model = models["default"]
    house = turns(model, 20, seed=3, budget_bytes=budget_for(model, states=2))
    status = house.loop.snapshot.cache
    assert status.hits > 3
    assert status.evicted > 0


@pytest.mark.long
@pytest.mark.timeout(900)
def test_200_random_turns_with_forks_are_as_if_fresh_and_memory_stays_under_its_cap(model: Model) -> None:
    house = turns(model, 200, seed=4, budget_bytes=budget_for(model, states=3))
    assert house.loop.snapshot.cache.hits > 50
