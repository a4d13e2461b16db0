"""Tiny models, built once for all tests of this folder."""

import sys
from pathlib import Path

import pytest
import torch
from engine_bench import build_model

from hermitcrab.models.qwen4_exp.checkpoint import Checkpoint, load_checkpoint
from hermitcrab.models.qwen4_exp.model import Model
from hermitcrab.models.qwen4_exp.tiny import SHAPES, tiny_config, write_tiny

# the failing backend is shared with the tests of the core
sys.path.insert(0, str(Path(__file__).parents[1] / "core"))

MODELS = {
    "default": ("default", torch.float32),
    "deep": ("deep", torch.float32),
    "bfloat16": ("default", torch.bfloat16),
}


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    directory = tmp_path_factory.mktemp("tiny")
    write_tiny(directory, seed=41)
    return load_checkpoint(directory)


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Model]:
    """Several tiny models: a deep one with 4-grams and larger blocks too, and one in bfloat16."""
    built = {}
    for name, (shape, dtype) in MODELS.items():
        directory = tmp_path_factory.mktemp(name)
        write_tiny(directory, config=tiny_config(**SHAPES[shape]), seed=42)
        built[name] = build_model(load_checkpoint(directory), dtype)
    return built


@pytest.fixture(params=list(MODELS))
def model(request: pytest.FixtureRequest, models: dict[str, Model]) -> Model:
    return models[request.param]
