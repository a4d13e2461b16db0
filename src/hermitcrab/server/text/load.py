"""A model directory's text files -> `ChatText`."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hermitcrab.clock import Clock
from hermitcrab.errors import CheckpointError
from hermitcrab.server.text.chat import ChatText, Habits
from hermitcrab.server.text.grammar import Grammars
from hermitcrab.server.text.template import ChatTemplate
from hermitcrab.server.text.vocabulary import Vocabulary, load_vocabulary

# the family's published advice, for what generation_config.json leaves open
_THINKING = Habits(temperature=1.0, top_p=0.95, top_k=20)
_PLAIN = Habits(temperature=0.7, top_p=0.8, top_k=20)

_TURN_START = "<|im_start|>"
_TURN_END = "<|im_end|>"


def load_chat_text(directory: Path, clock: Clock) -> ChatText:
    """Read tokenizer.json and what there is of tokenizer_config, chat_template.jinja and generation_config.

    A reply ends at any of generation_config.json's eos ids (config.json's where that file names none), and at
    the end of a turn. Raises CheckpointError naming the file and what is wrong with it.
    """
    vocabulary = load_vocabulary(directory / "tokenizer.json")
    tokenizer_config = _object(directory / "tokenizer_config.json")
    generation = _object(directory / "generation_config.json")
    source = _template_source(directory, tokenizer_config)
    special = {
        name: text
        for name in ("bos_token", "eos_token", "pad_token", "unk_token")
        if (text := _token_text(tokenizer_config.get(name))) is not None
    }
    eos_ids = _eos_ids(directory, generation, vocabulary)
    start = vocabulary.id_of(_TURN_START)
    ends = frozenset(token for token in eos_ids if 0 <= token < vocabulary.end_id)
    return ChatText(
        vocabulary=vocabulary,
        template=None if source is None else ChatTemplate(source, vocabulary, special, clock),
        eos_ids=eos_ids,
        thinking=_habits(directory, generation, _THINKING),
        plain=_habits(directory, generation, _PLAIN),
        grammars=Grammars(vocabulary, ends) if ends else None,
        start_ids=frozenset() if start is None else frozenset({start}),
    )


def _object(file: Path) -> Mapping[str, Any]:
    if not file.exists():
        return {}
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise CheckpointError(f"{file}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{file}: not valid JSON: {error}") from error
    if not isinstance(data, dict):
        raise CheckpointError(f"{file}: must hold a JSON object")
    return data


def _template_source(directory: Path, tokenizer_config: Mapping[str, Any]) -> str | None:
    file = directory / "chat_template.jinja"
    if file.exists():
        try:
            return file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise CheckpointError(f"{file}: cannot be read: {error}") from error
    given = tokenizer_config.get("chat_template")
    if isinstance(given, list):
        named = {entry.get("name"): entry.get("template") for entry in given if isinstance(entry, dict)}
        given = named.get("default")
    if given is not None and not isinstance(given, str):
        raise CheckpointError(f"{directory / 'tokenizer_config.json'}: chat_template must be text")
    return given


def _token_text(value: object) -> str | None:
    """A special token's spelling, given as text or as an object with its content."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None


def _eos_ids(directory: Path, generation: Mapping[str, Any], vocabulary: Vocabulary) -> frozenset[int]:
    file, value = directory / "generation_config.json", generation.get("eos_token_id")
    if value is None:
        file = directory / "config.json"
        config = _object(file)
        text_config = config.get("text_config")
        inner = text_config.get("eos_token_id") if isinstance(text_config, dict) else None
        value = config.get("eos_token_id") if inner is None else inner
    ids = value if isinstance(value, list) else [] if value is None else [value]
    if not all(isinstance(item, int) for item in ids):
        raise CheckpointError(f"{file}: eos_token_id must be a token id or a list of them")
    turn_end = vocabulary.id_of(_TURN_END)
    return frozenset(ids if turn_end is None else [*ids, turn_end])


def _habits(directory: Path, generation: Mapping[str, Any], advised: Habits) -> Habits:
    def number(name: str, advice: float) -> float:
        value = generation.get(name)
        if value is None:
            return advice
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise CheckpointError(f"{directory / 'generation_config.json'}: {name} must be a number")
        return value

    is_greedy = generation.get("do_sample") is False
    return Habits(
        temperature=0.0 if is_greedy else number("temperature", advised.temperature),
        top_p=number("top_p", advised.top_p),
        top_k=int(number("top_k", advised.top_k)),
        min_p=number("min_p", advised.min_p),
    )
