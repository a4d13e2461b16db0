"""What the backend says of itself, and what it refuses: a refused call leaves every session as it was."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from engine_bench import DRAFT_DEPTH, ROW_LIMIT, WINDOW_ROWS, Bench, build_model, differing

from hermitcrab.core.backend import DraftRequest, SlotId, Window
from hermitcrab.engine.backend import TorchBackend
from hermitcrab.engine.build import build_backend
from hermitcrab.engine.footprint import backlog_bytes, cpu_memory
from hermitcrab.errors import DeviceFailed, StateNotSettled
from hermitcrab.kernels.deltanet import CHUNK_ROWS
from hermitcrab.models.qwen4_exp.checkpoint import Checkpoint, load_checkpoint
from hermitcrab.models.qwen4_exp.config import parse_config
from hermitcrab.models.qwen4_exp.footprint import assumed_bytes
from hermitcrab.models.qwen4_exp.model import Model
from hermitcrab.models.qwen4_exp.state import Sessions, session_bytes
from hermitcrab.models.qwen4_exp.tiny import SHAPES, tiny_config, write_tiny
from hermitcrab.sampling.params import Sampling

GREEDY = Sampling()
FIRST, SECOND, THIRD = SlotId(0), SlotId(1), SlotId(2)
PROMPT = tuple(range(3, 23))
ROWS = len(PROMPT)


@pytest.fixture
def bench(models: dict[str, Model]) -> Bench:
    """Session 0 holds a settled prompt, absorbed by the head; 1 (larger) and 2 (smaller) are empty."""
    bench = Bench(models["default"], [24, 96, 16])
    bench.backend.prefill(FIRST, 0, PROMPT)
    bench.backend.draft([DraftRequest(FIRST, ROWS - 1, (9,), 0, GREEDY)])
    return bench


def window(position: int = ROWS, rows: int = 1, slot: SlotId = FIRST) -> Window:
    return Window(slot, position, (9,) * rows, GREEDY)


def request(position: int, tokens: int = 1, depth: int = 0, slot: SlotId = FIRST) -> DraftRequest:
    return DraftRequest(slot, position, (9,) * tokens, depth, GREEDY)


REFUSED: dict[str, Callable[[TorchBackend], object]] = {
    "a prompt pass that leaves a gap": lambda b: b.prefill(FIRST, CHUNK_ROWS, (5,)),
    "a prompt pass over settled rows": lambda b: b.prefill(FIRST, 0, (5,)),
    "a prompt pass that starts off the grid": lambda b: b.prefill(FIRST, ROWS, (5,)),
    "a prompt pass of no rows": lambda b: b.prefill(SECOND, 0, ()),
    "a prompt longer than the session": lambda b: b.prefill(THIRD, 0, (5,) * 17),
    "a first draw at another position": lambda b: b.draw_first(FIRST, ROWS + 1, GREEDY),
    "a first draw from an empty session": lambda b: b.draw_first(SECOND, 0, GREEDY),
    "a round without windows": lambda b: b.verify([]),
    "a window without rows": lambda b: b.verify([window(rows=0)]),
    "a window wider than allowed": lambda b: b.verify([window(rows=WINDOW_ROWS + 1)]),
    "a window at another position": lambda b: b.verify([window(ROWS - 1)]),
    "a window in an empty session": lambda b: b.verify([window(0, slot=SECOND)]),
    "a window past the session's end": lambda b: b.verify([window(rows=WINDOW_ROWS), window(0, slot=SECOND)]),
    "two windows of one session": lambda b: b.verify([window(), window()]),
    "a round of which one window is wrong": lambda b: b.verify([window(), window(3, slot=SECOND)]),
    "a keep without a window": lambda b: b.keep(FIRST, 1),
    "drafting from rows absorbed already": lambda b: b.draft([request(ROWS - 1)]),
    "drafting that leaves a gap": lambda b: b.draft([request(ROWS)]),
    "drafting in an empty session": lambda b: b.draft([request(0, slot=SECOND)]),
    "a move to a smaller session": lambda b: b.move(FIRST, THIRD),
    "a move onto itself": lambda b: b.move(FIRST, FIRST),
}


@pytest.mark.parametrize("call", REFUSED)
def test_a_call_that_does_not_follow_is_refused_and_changes_nothing(bench: Bench, call: str) -> None:
    before = bench.state(0, rows=ROWS, head_rows=ROWS)
    with pytest.raises(StateNotSettled):
        REFUSED[call](bench.backend)
    assert differing(bench.state(0, rows=ROWS, head_rows=ROWS), before) == []
    # the session goes on, and the others are empty still
    bench.backend.verify([window()])
    bench.backend.keep(FIRST, 1)
    bench.backend.draft([request(ROWS)])
    bench.backend.prefill(SECOND, 0, PROMPT)


UNSETTLED: dict[str, Callable[[TorchBackend], object]] = {
    "another window": lambda b: b.verify([window(ROWS + 2)]),
    "the same window": lambda b: b.verify([window()]),
    "a prompt pass": lambda b: b.prefill(FIRST, ROWS, (5,)),
    "a first draw": lambda b: b.draw_first(FIRST, ROWS, GREEDY),
    "a draft": lambda b: b.draft([request(ROWS)]),
    "a move": lambda b: b.move(FIRST, SECOND),
    "a keep of no rows": lambda b: b.keep(FIRST, 0),
    "a keep of more rows than the window has": lambda b: b.keep(FIRST, 3),
}


@pytest.mark.parametrize("call", UNSETTLED)
def test_while_a_window_awaits_its_keep_nothing_else_is_allowed(bench: Bench, call: str) -> None:
    bench.backend.verify([window(rows=2)])
    with pytest.raises(StateNotSettled):
        UNSETTLED[call](bench.backend)
    bench.backend.keep(FIRST, 2)
    bench.backend.draft([request(ROWS, 2)])


def test_a_move_to_a_session_in_use_is_refused(bench: Bench) -> None:
    bench.backend.prefill(SECOND, 0, PROMPT)
    before = bench.state(1, rows=ROWS, head_rows=ROWS - 1)
    with pytest.raises(StateNotSettled):
        bench.backend.move(FIRST, SECOND)
    assert differing(bench.state(1, rows=ROWS, head_rows=ROWS - 1), before) == []


def test_drafts_that_would_pass_the_sessions_end_are_refused(bench: Bench) -> None:
    bench.backend.verify([window(rows=WINDOW_ROWS)])
    bench.backend.keep(FIRST, WINDOW_ROWS)
    with pytest.raises(StateNotSettled):
        bench.backend.draft([request(ROWS, WINDOW_ROWS, depth=2)])
    assert len(bench.backend.draft([request(ROWS, WINDOW_ROWS, depth=1)])[0]) == 1


def test_a_head_that_too_many_rows_wait_for_is_lost_and_the_stream_goes_on(models: dict[str, Model]) -> None:
    bench = Bench(models["default"], [320])
    most = bench.backend.facts().backlog_rows
    bench.backend.prefill(FIRST, 0, PROMPT)
    # the prompt's last row waits already
    waiting, rows = 1, ROWS
    while waiting <= most:
        bench.backend.verify([window(rows, WINDOW_ROWS)])
        bench.backend.keep(FIRST, WINDOW_ROWS)
        waiting, rows = waiting + WINDOW_ROWS, rows + WINDOW_ROWS
    with pytest.raises(StateNotSettled):
        bench.backend.draft([request(ROWS - 1, waiting)])
    with pytest.raises(StateNotSettled):
        bench.backend.draft([request(rows - 1)])
    bench.backend.verify([window(rows)])
    bench.backend.keep(FIRST, 1)


def test_as_many_rows_as_the_facts_say_may_wait_for_the_head(models: dict[str, Model]) -> None:
    bench = Bench(models["default"], [320])
    most = bench.backend.facts().backlog_rows
    bench.backend.prefill(FIRST, 0, PROMPT)
    for position in range(ROWS, ROWS + most - 1):
        bench.backend.verify([window(position)])
        bench.backend.keep(FIRST, 1)
    assert len(bench.backend.draft([request(ROWS - 1, most, depth=1)])[0]) == 1


def test_a_round_of_more_rows_than_allowed_is_refused(models: dict[str, Model]) -> None:
    bench = Bench(models["default"], [32] * 5)
    for slot in range(5):
        bench.backend.prefill(SlotId(slot), 0, PROMPT)
    windows = [window(rows=WINDOW_ROWS, slot=SlotId(slot)) for slot in range(5)]
    assert sum(len(each.tokens) for each in windows) > ROW_LIMIT
    with pytest.raises(StateNotSettled, match=str(ROW_LIMIT)):
        bench.backend.verify(windows)
    assert len(bench.backend.verify(windows[:4])) == 4


def test_a_released_session_is_empty_whatever_it_was(bench: Bench) -> None:
    bench.backend.verify([window(rows=2)])
    for _ in range(2):
        bench.backend.release(FIRST)
        bench.backend.release(THIRD)
    with pytest.raises(StateNotSettled):
        bench.backend.keep(FIRST, 1)
    bench.backend.prefill(FIRST, 0, PROMPT)


def test_a_token_outside_the_vocabulary_fails_the_call_and_a_release_mends_the_session(bench: Bench) -> None:
    with pytest.raises(DeviceFailed):
        bench.backend.verify([Window(FIRST, ROWS, (512,), GREEDY)])
    bench.backend.release(FIRST)
    bench.backend.prefill(FIRST, 0, PROMPT)
    assert bench.backend.draw_first(FIRST, ROWS, GREEDY) == int(bench.logits[-1].argmax())


def test_a_backend_without_a_draft_head_drafts_nothing(tmp_path: Path) -> None:
    write_tiny(tmp_path, mtp=False)
    backend = build_backend(load_checkpoint(tmp_path), dtype="float32", session_rows=[64], threads=1)
    assert backend.facts().draft_depth == 0
    backend.prefill(FIRST, 0, PROMPT)
    with pytest.raises(StateNotSettled, match="drafts nothing"):
        backend.draft([request(ROWS - 1)])
    backend.verify([window()])
    backend.keep(FIRST, 1)
    backend.verify([window(ROWS + 1)])


def test_facts_are_those_it_was_built_with(checkpoint: Checkpoint) -> None:
    backend = build_backend(checkpoint, dtype="float32", session_rows=[64, 100], draft_depth=2, threads=1)
    facts = backend.facts()
    assert facts == backend.facts()
    assert (facts.vocab_tokens, facts.session_rows) == (512, (64, 100))
    assert facts.draft_depth == 2
    assert facts.window_rows > facts.draft_depth
    assert facts.prompt_grid_rows == CHUNK_ROWS
    assert facts.prompt_pass_rows % facts.prompt_grid_rows == 0


def test_the_deepest_drafts_are_as_many_as_the_facts_say(bench: Bench) -> None:
    bench.backend.prefill(SECOND, 0, PROMPT)
    drafts = bench.backend.draft([request(ROWS - 1, depth=DRAFT_DEPTH, slot=SECOND)])
    assert [len(each) for each in drafts] == [bench.backend.facts().draft_depth]
    bench.backend.verify([window(slot=SECOND)])
    bench.backend.keep(SECOND, 1)
    with pytest.raises(StateNotSettled):
        bench.backend.draft([request(ROWS, depth=DRAFT_DEPTH + 1, slot=SECOND)])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_bytes_foretold_of_sessions_are_those_allocated(shape: str, dtype: str) -> None:
    config = parse_config(tiny_config(**SHAPES[shape]))
    kind = getattr(torch, dtype)
    cost = cpu_memory(assumed_bytes(config, None), dtype, None).session_bytes
    rows = (1, 63, 64, 65, 1000, 4096, 5000)
    sessions = Sessions(config, rows, kind)
    held = [part for part in vars(sessions).values() if isinstance(part, torch.Tensor)]
    waiting = sum(backlog_bytes(config, kind, each) for each in rows)
    assert sum(part.untyped_storage().nbytes() for part in held) + waiting == sum(map(cost, rows))


def test_more_rows_never_take_fewer_bytes() -> None:
    config = parse_config(tiny_config())
    sizes = [session_bytes(config, rows, torch.float32) for rows in range(1, 2000)]
    assert sizes == sorted(sizes)


def test_a_session_of_the_familys_model_takes_the_bytes_that_are_known_of_it() -> None:
    """13 attention layers of 2,048 B of K and V, 256 B of raw and 64 B of pooled key a token; 36 states."""
    config = parse_config(json.loads(FAMILY_CONFIG))
    small, large = (session_bytes(config, rows, torch.bfloat16) for rows in (16_384, 262_144))
    assert large - small == (262_144 - 16_384) * 13 * (2_048 + 256 + 64)
    fixed = large - 262_144 * 13 * (2_048 + 256 + 64)
    # DeltaNet states and their convolutions' tails, and the n-gram convolution's tail
    assert fixed == 36 * (48 * 128 * 128 * 4 + 3 * 10_240 * 2) + 9 * 4 * 2_560 * 2


def test_a_model_gives_the_same_bits_built_twice(checkpoint: Checkpoint) -> None:
    drawn = []
    for _ in range(2):
        bench = Bench(build_model(checkpoint, torch.float32), [96])
        bench.backend.prefill(FIRST, 0, PROMPT)
        bench.backend.draw_first(FIRST, ROWS, GREEDY)
        drawn.append(bench.logits[0])
    assert torch.equal(*drawn)


# the shape that the family's published configuration gives
FAMILY_CONFIG = """
{
  "model_type": "qwen4_exp_text", "vocab_size": 248320, "hidden_size": 2560, "num_hidden_layers": 48,
  "full_attention_interval": 4, "num_attention_heads": 24, "num_key_value_heads": 2, "head_dim": 256,
  "rope_parameters": {
    "rope_type": "default", "rope_theta": 10000000, "partial_rotary_factor": 0.25,
    "mrope_section": [11, 11, 10]
  },
  "indexer_n_heads": 4, "indexer_kv_heads": 1, "indexer_head_dim": 128, "indexer_budget": 2048,
  "indexer_compress_ratio": 4, "linear_num_key_heads": 16, "linear_num_value_heads": 48,
  "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4,
  "output_gate_type": "sigmoid", "num_experts": 512, "num_experts_per_tok": 10, "moe_intermediate_size": 640,
  "shared_expert_intermediate_size": 640, "hc_count": 4, "hc_lowrank": 320, "ple_layer_ids": [2],
  "ngram_size": 3, "heads_per_ngram": 8, "ple_embed_dim": 2560, "ple_conv_kernel_size": 4,
  "eos_token_id": 248044
}
"""
