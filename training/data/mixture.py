"""The mixture of all generators, and sequences packed from it."""

import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from training.data import code, counts, tools
from training.data.chat.talks import Trivia, chat_talk
from training.data.documents import Document, Encoder, Talk, assistant, render, user
from training.shape import END_OF_TEXT_ID

# how often each kind is drawn; code and tool calls are long, chats and most counts are short
KINDS = ("count", "code", "own", "copy", "tool", "chat", "trivia", "prose")
SHARES = (0.69, 0.055, 0.02, 0.03, 0.035, 0.14, 0.025, 0.005)
LOOKAHEAD_TOKENS = 4
LARGEST_OFFSET = 6_000
OWN_SOURCES = Path(__file__).parents[1]


def own_code() -> list[str]:
    """Functions and classes of this folder's own sources, as code to copy."""
    texts = [path.read_text() for path in sorted(OWN_SOURCES.rglob("*.py"))]
    return [part for text in texts for part in text.split("\n\n\n") if 80 < len(part) < 2500]


class Talks:
    """Draws conversations of every kind but counts from one random stream."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.trivia = Trivia()
        self.own = own_code()

    def own_talk(self) -> Talk:
        """Repeat real code, or rename one of its words."""
        rng = self.rng
        shown = rng.choice(self.own)
        known = [word for word in shown.replace("(", " ").split() if word.isidentifier()]
        if rng.random() < 0.5 or not known:
            ask, answer = code.repeat_ask(rng), shown
        else:
            old, new = rng.choice(known), code.name(rng)
            ask, answer = code.rename_ask(rng, old, new), code.renamed(shown, old, new)
        return Talk([user(code.asked(rng, ask, "python", shown)), assistant(code.fenced("python", answer))])

    def copy_talk(self) -> Talk:
        """Repeat a line of words or a fact."""
        if self.rng.random() < 0.7:
            return code.text_talk(self.rng)
        line = self.trivia.line(self.rng)
        return Talk(
            [
                user(self.rng.choice(("Repeat after me: ", "Repeat this: ", "Repeat: ")) + line),
                assistant(line),
            ]
        )

    def talk(self, kind: str) -> Talk:
        """A conversation of any kind but counts."""
        if kind == "code":
            return code.code_talk(self.rng)
        if kind == "own":
            return self.own_talk()
        if kind == "copy":
            return self.copy_talk()
        if kind == "tool":
            return tools.tool_talk(self.rng)
        return self.trivia.talk(self.rng) if kind == "trivia" else chat_talk(self.rng)


class Mixture(Talks):
    """Draws documents of every kind, and packs sequences of them."""

    def __init__(self, encoder: Encoder, seed: int) -> None:
        super().__init__(seed)
        self.encoder = encoder

    def document(self, room_tokens: int, kind: str | None = None) -> Document:
        """A document of the kind, or of one drawn by the shares."""
        kind = kind or self.rng.choices(KINDS, SHARES)[0]
        if kind == "count":
            return counts.count_document(self.rng, self.encoder, max(200, room_tokens))
        if kind == "prose":
            return self.encoder.text(" ".join(self.trivia.line(self.rng) for _ in range(3)))
        return self.encoder.talk(self.talk(kind))

    def first(self, length_tokens: int) -> Document:
        """What a sequence starts with: in a long one, mostly a whole count of thousands of numbers."""
        if length_tokens < 8_000 or self.rng.random() < 0.15:
            return self.document(length_tokens)
        most = self.rng.randint(length_tokens // 3, length_tokens - 150)
        return counts.whole(self.rng, self.encoder, counts.long_count(self.rng, most))

    def sequence(self, length_tokens: int) -> Document:
        """One packed sequence of `length_tokens` + 4 tokens, documents parted by <|endoftext|>.

        Positions run on from document to document; some sequences start far from 0.
        """
        total = length_tokens + LOOKAHEAD_TOKENS
        position = self.rng.randint(0, LARGEST_OFFSET) if self.rng.random() < 0.15 else 0
        ids: list[NDArray[np.int32]] = []
        weights: list[NDArray[np.float32]] = []
        positions: list[NDArray[np.int32]] = []
        filled = 0
        while filled < total:
            found = self.document(total - filled) if ids else self.first(length_tokens)
            if position + int(found.positions[-1]) > 32_000:
                found = self.document(total - filled, "chat")
            last = position + int(found.positions[-1])
            ids += [found.ids, np.array([END_OF_TEXT_ID], dtype=np.int32)]
            weights += [found.weights, np.zeros(1, dtype=np.float32)]
            positions += [found.positions + position, np.array([last + 1], dtype=np.int32)]
            position = last + 2
            filled += len(found.ids) + 1
        cut = [np.concatenate(parts)[:total] for parts in (ids, weights, positions)]
        return Document(*cut)


def sample_texts(count: int) -> Iterator[str]:
    """Texts of every kind for the tokenizer, before there is one."""
    talks = Talks(seed=7)
    for _ in range(count):
        kind = talks.rng.choices(KINDS[1:], SHARES[1:])[0]
        yield talks.trivia.line(talks.rng) if kind == "prose" else render(talks.talk(kind))
        yield counts.phrase(talks.rng, counts.random_count(talks.rng, 50))
