"""What the tests of the HTTP side share: a small model's text files, read once."""

from pathlib import Path

import pytest
from small_model import full_tokenizer, write_model_text
from tokenizers import Tokenizer

from hermitcrab.clock import ScriptedClock
from hermitcrab.server.text.chat import ChatText
from hermitcrab.server.text.load import load_chat_text


@pytest.fixture(scope="session")
def model_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("small-model")
    write_model_text(directory)
    return directory


@pytest.fixture(scope="session")
def text(model_directory: Path) -> ChatText:
    return load_chat_text(model_directory, ScriptedClock())


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    """The same tokenizer as the library itself runs it."""
    return full_tokenizer()
