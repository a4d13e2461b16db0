"""From conversations to token ids: what is read, what is learned, and at which positions."""

import json
import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import jinja2
import numpy as np
from jinja2.sandbox import ImmutableSandboxedEnvironment
from numpy.typing import NDArray
from tokenizers import Tokenizer

from training.shape import END_OF_TEXT_ID, IM_END_ID

TEMPLATE = Path(__file__).parents[1] / "template" / "chat_template.jinja"

Message = dict[str, object]
_REPLY = re.compile(r"<\|im_start\|>assistant\n<think>\n(?:\n</think>\n\n)?(.*?<\|im_end\|>)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Talk:
    """A conversation; every assistant turn in it is learned, or only the last `learned_turns`."""

    messages: list[Message]
    tools: list[dict[str, object]] | None = None
    thinks: bool = False
    effort: str | None = None
    learned_turns: int | None = None


@dataclass(frozen=True, slots=True)
class Document:
    """Token ids, the loss weight of each as a target, and positions from 0; the three have one length."""

    ids: NDArray[np.int32]
    weights: NDArray[np.float32]
    positions: NDArray[np.int32] = field(repr=False)


def user(text: str) -> Message:
    """A user turn."""
    return {"role": "user", "content": text}


def system(text: str) -> Message:
    """A system turn."""
    return {"role": "system", "content": text}


def assistant(text: str, thought: str | None = None) -> Message:
    """An assistant turn, with the thought before it if it had one."""
    return {"role": "assistant", "content": text} | ({"reasoning_content": thought} if thought else {})


def document(ids: NDArray[np.int32], weights: NDArray[np.float32]) -> Document:
    """A document whose positions have no gap."""
    return Document(ids, weights, np.arange(len(ids), dtype=np.int32))


def render(talk: Talk, *, asks: bool = False) -> str:
    """The talk's text by the model's own template; with `asks`, ready for the next assistant turn."""
    return _template().render(
        messages=talk.messages,
        tools=talk.tools,
        add_generation_prompt=asks,
        enable_thinking=talk.thinks,
        reasoning_effort=talk.effort,
    )


class Encoder:
    """Encodes talks as a server would."""

    def __init__(self, tokenizer_folder: Path) -> None:
        self.tokenizer = Tokenizer.from_file(str(tokenizer_folder / "tokenizer.json"))
        digits = [self.ids(str(digit)) for digit in range(10)]
        space = self.ids(" ")
        if any(len(one) != 1 for one in (*digits, space)):
            raise ValueError("a digit or a space is not one token in this tokenizer")
        self.characters = np.full(128, -1, dtype=np.int32)
        self.characters[ord(" ")] = space[0]
        for digit, (one,) in enumerate(digits):
            self.characters[ord(str(digit))] = one

    def ids(self, text: str) -> list[int]:
        """Token ids of a text; special tokens in it are one id each."""
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def prompt(self, talk: Talk) -> NDArray[np.int32]:
        """The ids a server would prefill for the talk's next assistant turn."""
        return np.array(self.ids(render(talk, asks=True)), dtype=np.int32)

    def digits(self, text: str) -> NDArray[np.int32]:
        """Ids of a text of digits and single spaces, without the tokenizer's cost."""
        return self.characters[np.frombuffer(text.encode("ascii"), dtype=np.uint8)]

    def talk(self, talk: Talk) -> Document:
        """Encode a talk, each reply apart from what was before it, as generation makes it."""
        text = render(talk)
        spans = [match.span(1) for match in _REPLY.finditer(text)]
        learned_from = 0 if talk.learned_turns is None else len(spans) - talk.learned_turns
        ids: list[int] = []
        weights: list[float] = []
        done = 0
        for turn, (start, end) in enumerate(spans):
            for piece, weight in ((text[done:start], 0.0), (text[start:end], float(turn >= learned_from))):
                found = self.ids(piece)
                ids += found
                weights += [weight] * len(found)
            done = end
        return document(np.array(ids, dtype=np.int32), np.array(weights, dtype=np.float32))

    def text(self, text: str) -> Document:
        """Encode plain text, all of it learned."""
        ids = np.array([*self.ids(text), END_OF_TEXT_ID], dtype=np.int32)
        return document(ids, np.ones(len(ids), dtype=np.float32))

    def reply(self, talk: Talk, reply: NDArray[np.int32]) -> Document:
        """The talk's prompt, then reply ids and the end of the turn."""
        prompt = self.prompt(talk)
        ids = np.concatenate((prompt, reply, [IM_END_ID])).astype(np.int32)
        weights = np.ones(len(ids), dtype=np.float32)
        weights[: len(prompt)] = 0.0
        return document(ids, weights)


@cache
def _template() -> jinja2.Template:
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    environment.filters["fromjson"] = json.loads
    return environment.from_string(TEMPLATE.read_text())
