"""What the recipe's tests share: the built-in model, its encoder, and a small shape of the same kind."""

from pathlib import Path

import pytest
import torch
from training.data.documents import Encoder
from training.shape import Shape

from hermitcrab.assemble import builtin_directory


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def builtin() -> Path:
    return builtin_directory()


@pytest.fixture(scope="session")
def encoder(builtin: Path) -> Encoder:
    return Encoder(builtin)


@pytest.fixture(scope="session")
def small() -> Shape:
    """Four layers, every part of the family in them."""
    return Shape(
        hidden_size=64,
        num_hidden_layers=4,
        num_attention_heads=4,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=32,
        shared_expert_intermediate_size=32,
        ngram_vocab_size_base=256,
        indexer_budget=64,
    )
