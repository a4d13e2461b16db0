"""The built-in model, loaded once for all tests of this folder."""

import sys
from pathlib import Path

import pytest
import torch

from hermitcrab.assemble import builtin_directory
from hermitcrab.clock import WallClock
from hermitcrab.models.qwen4_exp.checkpoint import Checkpoint, load_checkpoint
from hermitcrab.server.text.chat import ChatText
from hermitcrab.server.text.load import load_chat_text

# the server of tests/server, with this model behind it
sys.path.insert(0, str(Path(__file__).parents[1] / "server"))


@pytest.fixture(scope="session")
def directory() -> Path:
    return builtin_directory()


@pytest.fixture(scope="session")
def checkpoint(directory: Path) -> Checkpoint:
    torch.set_num_threads(1)
    return load_checkpoint(directory)


@pytest.fixture(scope="session")
def text(directory: Path) -> ChatText:
    return load_chat_text(directory, WallClock())
