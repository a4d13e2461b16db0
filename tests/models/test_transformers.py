"""Our forward against transformers' implementation of the family, on random checkpoints of several shapes."""

from pathlib import Path

import pytest
import torch
from model_bench import (
    BFLOAT16_MEAN,
    FLOAT32_LOGITS,
    RESET,
    Engine,
    Oracle,
    apart_on_average,
    furthest,
    oracle_from_disk,
    oracle_from_mlx,
    text_with_resets,
)

from hermitcrab.models.qwen4_exp.checkpoint import Checkpoint, load_checkpoint
from hermitcrab.models.qwen4_exp.tiny import SHAPES, Layout, tiny_config, write_tiny
from hermitcrab.weights.affine import BITS, GROUP_SIZES

# the tiny budgets are 16 and 24 tokens: 15 rows are dense everywhere, 150 pass budget and two prompt chunks
BELOW_BUDGET, ABOVE_BUDGET = 15, 150

# two in a row, one at a chunk's first row, one in its middle
RESETS = (4, 5, 64, 100)

Pair = tuple[Checkpoint, Oracle]


@pytest.fixture(scope="module", params=list(SHAPES))
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """One tiny checkpoint, read by us and by transformers."""
    directory = tmp_path_factory.mktemp(request.param)
    write_tiny(directory, config=tiny_config(**SHAPES[request.param]), seed=3)
    return load_checkpoint(directory), oracle_from_disk(directory)


@pytest.fixture(scope="module")
def default_pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    directory = tmp_path_factory.mktemp("default-pair")
    write_tiny(directory, seed=4)
    return load_checkpoint(directory), oracle_from_disk(directory)


def test_a_prompt_below_the_sparse_budget_agrees(pair: Pair) -> None:
    checkpoint, oracle = pair
    tokens = text_with_resets(BELOW_BUDGET, seed=1, resets=[7])
    assert furthest(Engine(checkpoint).prompt(tokens), oracle.whole(tokens)) < FLOAT32_LOGITS


def test_a_prompt_of_three_chunks_above_the_budget_agrees(pair: Pair) -> None:
    checkpoint, oracle = pair
    tokens = text_with_resets(ABOVE_BUDGET, seed=2, resets=RESETS)
    assert furthest(Engine(checkpoint).prompt(tokens), oracle.whole(tokens)) < FLOAT32_LOGITS


def test_a_text_decoded_token_by_token_from_its_first_reply_row_agrees(pair: Pair) -> None:
    checkpoint, oracle = pair
    tokens = text_with_resets(90, seed=3, resets=(1, 30, 31, 64))
    engine = Engine(checkpoint)
    rows = torch.cat((engine.prompt(tokens[:1]), engine.decode(tokens[1:])))
    assert furthest(rows, oracle.whole(tokens)) < FLOAT32_LOGITS


def test_decode_agrees_with_transformers_own_cached_decode(pair: Pair) -> None:
    checkpoint, oracle = pair
    tokens = text_with_resets(100, seed=4, resets=(69, 72))
    engine = Engine(checkpoint)
    engine.prompt(tokens[:70])
    assert furthest(engine.decode(tokens[70:]), oracle.cached(tokens[:70], tokens[70:])) < FLOAT32_LOGITS


def test_windows_with_rejected_drafts_agree_on_every_row(pair: Pair) -> None:
    checkpoint, oracle = pair
    tokens = text_with_resets(60, seed=5, resets=(22, 40))
    engine = Engine(checkpoint)
    engine.prompt(tokens[:20])
    position = 20
    for kept in (1, 4, 2, 3, 1, 4, 4, 1, 2, 3, 4):
        # what is not kept stands in the window as wrong tokens, one of them a reset
        wrong = [RESET, 9, 8][: 4 - kept]
        window = [*tokens[position : position + kept], *wrong]
        logits = engine.round({0: window}, keep={0: kept})[0]
        expected = oracle.whole([*tokens[:position], *window])[position:]
        assert furthest(logits, expected) < FLOAT32_LOGITS
        position += kept


def test_sessions_of_unequal_lengths_in_one_round_each_agree(pair: Pair) -> None:
    checkpoint, oracle = pair
    texts = {
        slot: text_with_resets(length + 12, seed=10 + slot, resets=(length - 1, length + 1))
        for slot, length in enumerate((3, 17, 66, 131))
    }
    engine = Engine(checkpoint, session_rows=(32, 64, 96, 256))
    for slot, tokens in texts.items():
        engine.prompt(tokens[: len(tokens) - 12], slot)
    rows: dict[int, list[torch.Tensor]] = {slot: [] for slot in texts}
    for sizes in ((1, 1, 1, 1), (4, 1, 3, 2), (1, 4, 2, 3), (2, 2, 2, 2), (4, 4, 4, 4)):
        ends = {slot: engine.lengths[slot] + size for slot, size in enumerate(sizes)}
        windows = {slot: tokens[engine.lengths[slot] : ends[slot]] for slot, tokens in texts.items()}
        for slot, logits in engine.round(windows).items():
            rows[slot].append(logits)
    for slot, tokens in texts.items():
        expected = oracle.whole(tokens)[-12:]
        assert furthest(torch.cat(rows[slot]), expected) < FLOAT32_LOGITS


@pytest.mark.parametrize("layout", [Layout.ORIGINAL, Layout.PER_EXPERT])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", SHAPES)
def test_original_layouts_and_stored_types_agree(
    tmp_path: Path, layout: Layout, dtype: torch.dtype, shape: str
) -> None:
    write_tiny(tmp_path, layout=layout, config=tiny_config(**SHAPES[shape]), seed=6, dtype=dtype, shards=2)
    tokens = text_with_resets(40, seed=6, resets=(20,))
    engine = Engine(load_checkpoint(tmp_path))
    assert furthest(engine.prompt(tokens), oracle_from_disk(tmp_path).whole(tokens)) < FLOAT32_LOGITS


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("group_size", GROUP_SIZES)
def test_mlx_quantized_weights_agree_with_their_dequantized_values(
    tmp_path: Path, bits: int, group_size: int
) -> None:
    config = tiny_config(**SHAPES["wide"])
    write_tiny(tmp_path, layout=Layout.MLX, config=config, seed=7, bits=bits, group_size=group_size)
    tokens = text_with_resets(40, seed=7, resets=(20,))
    engine = Engine(load_checkpoint(tmp_path))
    assert furthest(engine.prompt(tokens), oracle_from_mlx(tmp_path).whole(tokens)) < FLOAT32_LOGITS


@pytest.mark.parametrize("bits", [None, 6])
@pytest.mark.parametrize("shape", SHAPES)
def test_mlx_layouts_of_every_shape_agree(tmp_path: Path, bits: int | None, shape: str) -> None:
    write_tiny(tmp_path, layout=Layout.MLX, config=tiny_config(**SHAPES[shape]), seed=8, bits=bits)
    tokens = text_with_resets(40, seed=8, resets=(20,))
    engine = Engine(load_checkpoint(tmp_path))
    assert furthest(engine.prompt(tokens), oracle_from_mlx(tmp_path).whole(tokens)) < FLOAT32_LOGITS


@pytest.mark.parametrize(
    "overrides",
    [
        {"eos_token_id": [2, 9]},
        {"linear_conv_kernel_dim": 2},
        {"ple_layer_ids": [1]},
        {"ple_layer_ids": [3], "ple_conv_kernel_size": 2},
        {"indexer_n_heads": 1},
        {"indexer_budget": 4, "indexer_compress_ratio": 4},
        {"indexer_compress_ratio": 2},
        {"indexer_budget": 32, "indexer_compress_ratio": 16},
        {"indexer_budget": 64, "indexer_compress_ratio": 64},
        {"layer_types": ["full_attention", "linear_attention", "full_attention", "linear_attention"]},
        {"num_experts": 48, "num_experts_per_tok": 6},
        {"num_experts": 8, "num_experts_per_tok": 8},
        {"hc_count": 3},
        {"rms_norm_eps": 1e-2},
        {"rope_parameters": tiny_config()["rope_parameters"] | {"rope_theta": 100.0}},
    ],
    ids=str,
)
def test_other_branches_of_the_configuration_agree(tmp_path: Path, overrides: dict[str, object]) -> None:
    write_tiny(tmp_path, config=tiny_config(**overrides), seed=9)
    tokens = text_with_resets(80, seed=9, resets=(20, 66))
    tokens[30] = 9
    engine, oracle = Engine(load_checkpoint(tmp_path)), oracle_from_disk(tmp_path)
    rows = torch.cat((engine.prompt(tokens[:60]), engine.decode(tokens[60:])))
    assert furthest(rows, oracle.whole(tokens)) < FLOAT32_LOGITS


def test_a_text_of_more_blocks_than_the_indexer_scores_at_once_agrees(default_pair: Pair) -> None:
    """Block 256 begins at token 1024; every row but the first few selects among all that are finished."""
    checkpoint, oracle = default_pair
    tokens = text_with_resets(1045, seed=13, resets=(500, 1030))
    engine = Engine(checkpoint, session_rows=(1100,))
    rows = torch.cat((engine.prompt(tokens[:1020]), engine.decode(tokens[1020:])))
    assert furthest(rows, oracle.whole(tokens)) < FLOAT32_LOGITS


def test_bfloat16_agrees_on_average_below_the_budget(pair: Pair) -> None:
    checkpoint, oracle = pair
    tokens = text_with_resets(BELOW_BUDGET, seed=1, resets=[7])
    engine = Engine(checkpoint, dtype=torch.bfloat16)
    rows = torch.cat((engine.prompt(tokens[:9]), engine.decode(tokens[9:])))
    assert apart_on_average(rows, oracle.whole(tokens)) < BFLOAT16_MEAN


def test_greedy_replies_agree_token_for_token(default_pair: Pair) -> None:
    checkpoint, oracle = default_pair
    prompt = text_with_resets(30, seed=12)
    engine = Engine(checkpoint)
    ours = [int(engine.prompt(prompt)[-1].argmax())]
    theirs = [int(oracle.whole(prompt)[-1].argmax())]
    for _ in range(40):
        ours.append(int(engine.decode(ours[-1:])[-1].argmax()))
        theirs.append(int(oracle.whole([*prompt, *theirs])[-1].argmax()))
    assert ours == theirs


@pytest.mark.parametrize(
    "part", ["ple.conv1d.weight", "q_layernorm.weight", "hc_norm.weight", "norm_conv.weight"]
)
def test_no_part_that_transformers_starts_at_zero_is_zero_here(default_pair: Pair, part: str) -> None:
    weights = {name: value for name, value in default_pair[0].tensors.items() if name.endswith(part)}
    assert weights
    assert all(isinstance(value, torch.Tensor) and value.abs().min() > 0 for value in weights.values())
