"""One exchange: a question, its answer and the brief thought between them."""

import random
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Turn:
    """A question with its answer; the thought is used only where thinking is on."""

    question: str
    answer: str
    thought: str


Maker = Callable[[random.Random], Turn]


def spoken(rng: random.Random, question: str) -> str:
    """The question as people type it: sometimes lower case, sometimes without its mark, sometimes polite."""
    if rng.random() < 0.08:
        question = rng.choice(("Please tell me: ", "Tell me, ", "Quick question: ", "Hey, ")) + question
    if rng.random() < 0.15:
        question = question[0].lower() + question[1:]
    if rng.random() < 0.15:
        question = question.rstrip("?.!")
    return question
