"""Shapes that transformers runs and this server does not: each is refused in words, by the config alone."""

import pytest
import transformers
from model_bench import Oracle, text_with_resets

from hermitcrab.errors import CheckpointError
from hermitcrab.models.qwen4_exp.config import parse_config
from hermitcrab.models.qwen4_exp.tiny import tiny_config

REFUSED: list[tuple[dict[str, object], str]] = [
    (
        {"indexer_compress_ratio": 1},
        "indexer_compress_ratio is 1, but it must be a whole number of at least 2.",
    ),
    (
        {"indexer_compress_ratio": 6, "indexer_budget": 18},
        "indexer_compress_ratio is 6, but it must divide 64, the keys that attention reads at once.",
    ),
    ({"ple_layer_ids": [1, 2]}, "this server reads models with one n-gram layer at most."),
]


@pytest.mark.parametrize(("overrides", "words"), REFUSED, ids=str)
def test_a_shape_that_this_server_cannot_run_is_refused(overrides: dict[str, object], words: str) -> None:
    config = tiny_config(**overrides)
    oracle = Oracle(transformers.Qwen4ExpForCausalLM(transformers.Qwen4ExpTextConfig(**config)).eval())
    assert oracle.whole(text_with_resets(30, seed=1)).isfinite().all()
    with pytest.raises(CheckpointError) as refusal:
        parse_config(config)
    assert words in str(refusal.value)
