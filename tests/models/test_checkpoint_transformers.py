"""Against transformers' own reading and writing of the family: the same tensors and hash constants."""

from pathlib import Path

import pytest
import torch
import transformers
from transformers.models.qwen4_exp import modeling_qwen4_exp as oracle

from hermitcrab.models.qwen4_exp.checkpoint import load_checkpoint
from hermitcrab.models.qwen4_exp.config import parse_config
from hermitcrab.models.qwen4_exp.tiny import SHAPES, Layout, tiny_config, write_tiny

torch.set_num_threads(1)

CONSTANTS = ("layer_multipliers", "ngram_heads_vocab_sizes", "ngram_heads_offsets")
TABLE = "model.layers.1.ple.ple_embedding.ngram_embedding.weight"


def oracle_config(**overrides: object) -> transformers.Qwen4ExpTextConfig:
    return transformers.Qwen4ExpTextConfig(**tiny_config(**overrides))


def oracle_model(seed: int = 0) -> transformers.Qwen4ExpForCausalLM:
    torch.manual_seed(seed)
    return transformers.Qwen4ExpForCausalLM(oracle_config())


def oracle_name(name: str) -> str:
    return name if name.startswith("lm_head.") else f"model.{name}"


def test_what_transformers_saves_loads_to_identical_tensors(tmp_path: Path) -> None:
    model = oracle_model()
    model.save_pretrained(tmp_path, max_shard_size="300KB")
    state = model.state_dict()
    checkpoint = load_checkpoint(tmp_path)
    assert checkpoint.ngram is not None
    table = checkpoint.ngram.gather(torch.arange(checkpoint.ngram.rows), torch.float32)
    assert torch.equal(table, state.pop(TABLE))
    differing = [
        name
        for name, value in checkpoint.tensors.items()
        if not torch.equal(value, state.pop(oracle_name(name)))
    ]
    assert differing == []
    assert {name.rsplit(".", 1)[1] for name in state} == set(CONSTANTS)


@pytest.mark.parametrize("layout", [Layout.ORIGINAL, Layout.PER_EXPERT])
@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_written_here_loads_in_transformers_whole(tmp_path: Path, layout: Layout, shape: str) -> None:
    written = write_tiny(tmp_path, layout=layout, config=tiny_config(**SHAPES[shape]), shards=2)
    config = transformers.Qwen4ExpTextConfig.from_pretrained(tmp_path)
    model, report = transformers.Qwen4ExpForCausalLM.from_pretrained(
        tmp_path, config=config, output_loading_info=True
    )
    assert {kind: list(names) for kind, names in report.items() if names} == {}
    state = model.state_dict()
    body = {name: value for name, value in written.items() if not name.startswith("mtp.")}
    assert [name for name, value in body.items() if not torch.equal(value, state[oracle_name(name)])] == []


@pytest.mark.parametrize(
    "overrides",
    [
        {},
        {"vocab_size": 1000, "seed": 7},
        {"ngram_size": 4, "heads_per_ngram": 8, "ple_embed_dim": 24 * 8},
        {"ngram_vocab_size_base": 100_003, "make_ngram_vocab_size_divisible_by": 1},
    ],
    ids=str,
)
def test_hash_constants_are_those_transformers_derives(overrides: dict[str, object]) -> None:
    with torch.device("meta"):
        table_rows = oracle.Qwen4ExpTextNGramEmbedding(
            oracle_config(**overrides), 128, layer_idx=1
        ).ngram_embedding.num_embeddings
    config = oracle_config(**overrides)
    heads = (config.ngram_size - 1) * config.heads_per_ngram
    sizes = [
        oracle._find_nth_prime_after(config.ngram_vocab_size_base - 1, head + 1) for head in range(heads)
    ]
    multipliers = oracle._build_layer_multipliers(config.vocab_size, config.ngram_size, 0, config.seed)
    ngram = parse_config(tiny_config(**overrides)).ngram
    assert ngram is not None
    assert ngram.hash.multipliers == tuple(multipliers.tolist())
    assert ngram.hash.head_rows == tuple(sizes)
    assert ngram.hash.head_offsets == tuple(sum(sizes[:head]) for head in range(heads))
    assert ngram.hash.table_rows == table_rows
