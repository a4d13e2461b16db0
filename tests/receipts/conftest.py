"""Receipts over HTTP are tested against the served model of tests/server."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "server"))

from small_model import write_model_text

from hermitcrab.clock import ScriptedClock
from hermitcrab.server.text.chat import ChatText
from hermitcrab.server.text.load import load_chat_text


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> ChatText:
    directory = tmp_path_factory.mktemp("small-model")
    write_model_text(directory)
    return load_chat_text(directory, ScriptedClock())
