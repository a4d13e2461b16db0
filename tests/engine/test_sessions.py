"""One session step by step: whatever the way to a state, it has the bits that the plain way gives."""

import pytest
import torch
from engine_bench import DRAFT_DEPTH, WINDOW_ROWS, Alone, Bench, differing

from hermitcrab.core.backend import DraftRequest, SlotId, Window
from hermitcrab.models.qwen4_exp.model import Model
from hermitcrab.sampling.params import Sampling

SAMPLED = Sampling(temperature=0.8, top_p=0.95, top_k=20, seed=7)
FIRST, SECOND = SlotId(0), SlotId(1)


def text_of(rows: int, seed: int = 1) -> list[int]:
    """Random tokens, every ninth the reset token."""
    generator = torch.Generator().manual_seed(seed)
    tokens: list[int] = torch.randint(3, 512, (rows,), generator=generator).tolist()
    tokens[8::9] = [2] * len(tokens[8::9])
    return tokens


def absorb(
    bench: Bench, text: list[int], rows: int, count: int, depth: int = 0, slot: SlotId = FIRST
) -> tuple[int, ...]:
    """Let the draft head absorb the last `count` of `rows` settled rows."""
    request = DraftRequest(slot, rows - count, tuple(text[rows - count + 1 : rows + 1]), depth, SAMPLED)
    return bench.backend.draft([request])[0]


# a row, a block and one more, a chunk and one more, two chunks, past them
@pytest.mark.parametrize("rows", [1, 4, 5, 63, 64, 65, 128, 150])
def test_a_prompt_in_the_smallest_passes_equals_it_in_one(model: Model, rows: int) -> None:
    text = text_of(rows + 1)
    bench = Bench(model, [192])
    for start in range(0, rows, 64):
        bench.backend.prefill(FIRST, start, text[start : min(start + 64, rows)])
    first = bench.backend.draw_first(FIRST, rows, SAMPLED)
    absorb(bench, text, rows, 1)
    alone = Alone(model, text, rows, SAMPLED)
    assert [first] == alone.drawn
    assert torch.equal(bench.logits[0], alone.logits[0])
    assert differing(bench.state(0, rows=rows, head_rows=rows), alone.state) == []


@pytest.mark.parametrize("start", [3, 17, 62])
@pytest.mark.parametrize("kept", range(1, WINDOW_ROWS + 1))
def test_a_window_of_which_some_rows_are_kept_equals_those_rows_alone(
    model: Model, start: int, kept: int
) -> None:
    text = text_of(start + WINDOW_ROWS + 1)
    bench = Bench(model, [192])
    bench.backend.prefill(FIRST, 0, text[:start])
    bench.backend.draw_first(FIRST, start, SAMPLED)
    absorb(bench, text, start, 1, depth=DRAFT_DEPTH)
    window = [*text[start : start + kept], *[11, 2, 13][: WINDOW_ROWS - kept]]
    (verified,) = bench.backend.verify([Window(FIRST, start, tuple(window), SAMPLED)])
    bench.backend.keep(FIRST, kept)
    absorb(bench, text, start + kept, kept, depth=DRAFT_DEPTH)
    alone = Alone(model, text[: start + kept + 1], start, SAMPLED)
    assert list(verified.drawn[:kept]) == alone.drawn[1:]
    assert all(torch.equal(*pair) for pair in zip(bench.logits[: kept + 1], alone.logits, strict=True))
    assert differing(bench.state(0, rows=start + kept, head_rows=start + kept), alone.state) == []


@pytest.mark.parametrize("rows", [5, 18, 66])
def test_a_moved_session_goes_on_as_if_it_had_not_moved(model: Model, rows: int) -> None:
    """The session it moves to has held NaN everywhere."""
    text = text_of(rows + 9)
    bench = Bench(model, [96, 192])
    bench.backend.prefill(FIRST, 0, text[:rows])
    bench.backend.draw_first(FIRST, rows, SAMPLED)
    absorb(bench, text, rows, 1)
    bench.backend.move(FIRST, SECOND)
    bench.backend.release(FIRST)
    for position in range(rows, rows + 8):
        bench.backend.verify([Window(SECOND, position, (text[position],), SAMPLED)])
        bench.backend.keep(SECOND, 1)
        absorb(bench, text, position + 1, 1, slot=SECOND)
    alone = Alone(model, text, rows, SAMPLED)
    assert all(torch.equal(*pair) for pair in zip(bench.logits, alone.logits, strict=True))
    assert differing(bench.state(1, rows=rows + 8, head_rows=rows + 8), alone.state) == []


def test_the_source_of_a_move_stays_as_it_was_until_released(model: Model) -> None:
    text = text_of(31)
    bench = Bench(model, [96, 192])
    bench.backend.prefill(FIRST, 0, text[:30])
    absorb(bench, text, 30, 1)
    before = bench.state(0, rows=30, head_rows=30)
    bench.backend.move(FIRST, SECOND)
    assert differing(bench.state(0, rows=30, head_rows=30), before) == []
    assert differing(bench.state(1, rows=30, head_rows=30), before) == []


def test_a_session_used_before_is_as_good_as_new(model: Model) -> None:
    bench = Bench(model, [192])
    used = text_of(100, seed=2)
    bench.backend.prefill(FIRST, 0, used[:90])
    bench.backend.verify([Window(FIRST, 90, tuple(used[90:93]), SAMPLED)])
    bench.backend.release(FIRST)
    bench.logits.clear()
    text = text_of(31)
    bench.backend.prefill(FIRST, 0, text[:30])
    bench.backend.draw_first(FIRST, 30, SAMPLED)
    absorb(bench, text, 30, 1)
    alone = Alone(model, text, 30, SAMPLED)
    assert torch.equal(bench.logits[0], alone.logits[0])
    assert differing(bench.state(0, rows=30, head_rows=30), alone.state) == []


def test_a_draft_does_not_depend_on_the_streams_it_is_drawn_beside(model: Model) -> None:
    texts = {FIRST: text_of(40, seed=3), SECOND: text_of(71, seed=4)}
    drafts = {}
    together = Bench(model, [96, 96])
    requests = []
    for slot, text in texts.items():
        rows = len(text) - 1
        together.backend.prefill(slot, 0, text[:rows])
        requests.append(DraftRequest(slot, rows - 1, (text[rows],), DRAFT_DEPTH, SAMPLED))
        apart = Bench(model, [96, 96])
        apart.backend.prefill(slot, 0, text[:rows])
        drafts[slot] = absorb(apart, text, rows, 1, DRAFT_DEPTH, slot)
    assert dict(zip(texts, together.backend.draft(requests), strict=True)) == drafts


def test_drafts_are_drawn_at_their_own_positions_with_the_streams_parameters(model: Model) -> None:
    """Other seeds give other drafts; the same seed gives the same ones."""
    text = text_of(21)
    drafted = []
    for seed in (1, 1, 2, 3):
        bench = Bench(model, [96])
        bench.backend.prefill(FIRST, 0, text[:20])
        hot = Sampling(temperature=5.0, seed=seed)
        drafted.append(bench.backend.draft([DraftRequest(FIRST, 19, (text[20],), DRAFT_DEPTH, hot)])[0])
    assert drafted[0] == drafted[1]
    assert len(set(drafted)) == 3
