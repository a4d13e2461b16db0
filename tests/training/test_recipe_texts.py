"""The recipe's texts are a function of their seed, and its prompts are the ones a server makes."""

import random
import re
from pathlib import Path

import numpy as np
import pytest
from training.data import code
from training.data.chat.facts import arithmetic
from training.data.documents import Encoder
from training.data.lists import TEXT, lines
from training.data.mixture import KINDS, LOOKAHEAD_TOKENS, Mixture

from hermitcrab.clock import WallClock
from hermitcrab.server.text.load import load_chat_text

# not "own": the recipe's own sources spell control tokens, which only a server keeps as plain text
TALK_KINDS = ("code", "copy", "tool", "chat", "trivia")


@pytest.mark.parametrize("kind", KINDS)
def test_documents_of_a_seed_are_the_same_every_time(encoder: Encoder, kind: str) -> None:
    ours, again = Mixture(encoder, 5), Mixture(encoder, 5)
    for _ in range(10):
        one, two = ours.document(600, kind), again.document(600, kind)
        for part in ("ids", "weights", "positions"):
            np.testing.assert_array_equal(getattr(one, part), getattr(two, part))


def test_another_seed_gives_other_documents(encoder: Encoder) -> None:
    one, two = (Mixture(encoder, seed).sequence(1_000).ids for seed in (5, 6))
    assert not np.array_equal(one, two)


def test_a_sequence_is_full_and_its_positions_rise(encoder: Encoder) -> None:
    mixture = Mixture(encoder, 9)
    for _ in range(5):
        sequence = mixture.sequence(1_000)
        assert len(sequence.ids) == len(sequence.weights) == 1_000 + LOOKAHEAD_TOKENS
        assert (np.diff(sequence.positions) > 0).all()


@pytest.mark.parametrize("kind", TALK_KINDS)
def test_the_recipe_renders_prompts_as_the_server_does(encoder: Encoder, builtin: Path, kind: str) -> None:
    text, mixture = load_chat_text(builtin, WallClock()), Mixture(encoder, 11)
    for _ in range(10):
        talk = mixture.talk(kind)
        del talk.messages[next(i for i, one in enumerate(talk.messages) if one["role"] == "assistant") :]
        switches = {"enable_thinking": talk.thinks} | (
            {"reasoning_effort": talk.effort} if talk.effort else {}
        )
        served = text.chat_prompt(talk.messages, talk.tools or [], switches)
        assert served.ids == tuple(encoder.prompt(talk).tolist())


def test_only_replies_are_learned_and_each_to_its_end_token(encoder: Encoder) -> None:
    mixture = Mixture(encoder, 13)
    for _ in range(20):
        talk = mixture.talk("chat")
        document = encoder.talk(talk)
        learned = encoder.tokenizer.decode(
            document.ids[document.weights > 0].tolist(), skip_special_tokens=False
        )
        replies = [str(one["content"]) for one in talk.messages if one["role"] == "assistant"]
        assert learned.count("<|im_end|>") == len(replies)
        assert all(reply in learned for reply in replies)
        assert "<|im_start|>" not in learned


def test_a_rename_changes_whole_words_only() -> None:
    assert code.renamed("total = total_sum + total(x)", "total", "all") == "all = total_sum + all(x)"


def test_sums_are_right() -> None:
    rng = random.Random(3)
    signs = {"plus": "+", "minus": "-", "times": "*"}
    for _ in range(200):
        a, kind, b, value = re.fullmatch(r"(\d+) (\w+) (\d+) is (\d+)\.", arithmetic(rng).answer).groups()
        assert int(value) == {"+": int(a) + int(b), "-": int(a) - int(b), "*": int(a) * int(b)}[signs[kind]]


def test_the_borrowed_lines_stand_beside_their_terms() -> None:
    assert "Permission is hereby granted" in (TEXT / "trivia.LICENSE").read_text()
    assert len(lines("trivia")) == 4_175
