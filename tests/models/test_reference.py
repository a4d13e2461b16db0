"""The plain float32 reference against transformers, and our forward against the reference."""

from pathlib import Path

import pytest
import torch
from model_bench import FLOAT32_LOGITS, RESET, Engine, Oracle, furthest, oracle_from_disk, text_with_resets

from hermitcrab.kernels.ngram import ngram_rows
from hermitcrab.models.qwen4_exp.checkpoint import Checkpoint, load_checkpoint
from hermitcrab.models.qwen4_exp.config import NgramConfig, parse_config
from hermitcrab.models.qwen4_exp.reference import Reference, ngram_ids
from hermitcrab.models.qwen4_exp.tiny import SHAPES, Layout, tiny_config, write_tiny

# the spread of logits that FLOAT32_LOGITS was chosen for
LOGITS_STD = 0.45

# over the budget and over one prompt chunk
TEXT = text_with_resets(80, seed=21, resets=(0, 9, 10, 63, 70))


@pytest.fixture(scope="module", params=list(SHAPES))
def directory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp(request.param)
    write_tiny(path, config=tiny_config(**SHAPES[request.param]), seed=13)
    return path


@pytest.fixture(scope="module")
def checkpoint(directory: Path) -> Checkpoint:
    return load_checkpoint(directory)


@pytest.fixture(scope="module")
def oracle(directory: Path) -> Oracle:
    return oracle_from_disk(directory)


def test_the_reference_gives_transformers_logits(checkpoint: Checkpoint, oracle: Oracle) -> None:
    assert furthest(Reference(checkpoint).text(TEXT).logits, oracle.whole(TEXT)) < FLOAT32_LOGITS


@pytest.mark.parametrize("rows", [1, 2, 4, 5])
def test_the_reference_of_a_text_of_few_tokens_gives_transformers_logits(
    checkpoint: Checkpoint, oracle: Oracle, rows: int
) -> None:
    tokens = TEXT[1 : 1 + rows]
    assert furthest(Reference(checkpoint).text(tokens).logits, oracle.whole(tokens)) < FLOAT32_LOGITS


def test_a_prompt_gives_the_references_logits(checkpoint: Checkpoint) -> None:
    assert furthest(Engine(checkpoint).prompt(TEXT), Reference(checkpoint).text(TEXT).logits) < FLOAT32_LOGITS


def test_a_prompt_leaves_the_references_residual_streams(checkpoint: Checkpoint) -> None:
    streams = Engine(checkpoint).streams_of_prompt(TEXT)
    expected = Reference(checkpoint).text(TEXT).streams
    # held by their own size: the final mixer's norm scales them before they become logits
    assert furthest(streams, expected) < FLOAT32_LOGITS * float(expected.std()) / LOGITS_STD


def test_decode_gives_the_references_logits(checkpoint: Checkpoint) -> None:
    engine = Engine(checkpoint)
    rows = torch.cat((engine.prompt(TEXT[:30]), engine.decode(TEXT[30:])))
    assert furthest(rows, Reference(checkpoint).text(TEXT).logits) < FLOAT32_LOGITS


@pytest.mark.parametrize("bits", [4, 6])
def test_quantized_weights_give_the_references_logits(tmp_path: Path, bits: int) -> None:
    write_tiny(tmp_path, layout=Layout.MLX, seed=14, bits=bits, is_norm_around_one=True)
    checkpoint = load_checkpoint(tmp_path)
    assert furthest(Engine(checkpoint).prompt(TEXT), Reference(checkpoint).text(TEXT).logits) < FLOAT32_LOGITS


@pytest.mark.parametrize("shape", ["default", "deep"])
def test_the_ngram_hash_of_any_cut_text_is_the_references(shape: str) -> None:
    ngram = parse_config(tiny_config(**SHAPES[shape])).ngram
    assert isinstance(ngram, NgramConfig)
    past = ngram.ngram_tokens - 1
    tokens = text_with_resets(40, seed=22, resets=(0, 5, 6, 8, 20, 39))
    expected = [row for place in range(40) for row in ngram_ids(tokens, place, ngram)]
    for cut in range(40):
        history = [*[RESET] * past, *tokens[:cut]][-past:]
        rows = ngram_rows(
            tokens[cut:],
            history,
            multipliers=ngram.hash.multipliers,
            head_rows=ngram.hash.head_rows,
            head_offsets=ngram.hash.head_offsets,
            heads_per_ngram=ngram.heads_per_ngram,
            reset_token=ngram.reset_token,
        )
        assert rows == expected[cut * ngram.heads :]
