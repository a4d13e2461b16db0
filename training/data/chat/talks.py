"""Conversations of one to several exchanges, with and without thinking, with and without a system turn."""

import random
import re

from training.data.chat import facts, programs, smalltalk, unknown
from training.data.chat.turns import Maker, Turn, spoken
from training.data.documents import Message, Talk, assistant, system, user
from training.data.lists import lines
from training.data.words import ADJECTIVES, CITIES, NAMES, NOUNS

# the model can remember some hundreds of them; all serve as text to copy
REMEMBERED_EVERY = 3

# each maker with how often it is drawn; small talk and definitions have the most to remember
MAKERS: tuple[tuple[Maker, float], ...] = (
    (smalltalk.small_talk, 5.0),
    (smalltalk.greeted_by_name, 0.5),
    (smalltalk.joke, 0.5),
    (smalltalk.riddle, 0.3),
    (smalltalk.story, 0.5),
    (smalltalk.plain_story, 0.15),
    (smalltalk.hello_from, 0.3),
    (facts.capital, 2.0),
    (facts.country_of, 0.8),
    (facts.continent, 0.5),
    (facts.colour, 1.0),
    (facts.animal_sound, 0.5),
    (facts.animal_legs, 0.6),
    (facts.animal_young, 0.5),
    (facts.opposite, 1.0),
    (facts.plural, 0.7),
    (facts.past, 0.7),
    (facts.unit, 1.0),
    (facts.definition, 2.5),
    (facts.explanation, 3.0),
    (facts.sequence, 0.5),
    (facts.neighbour, 0.7),
    (facts.larger, 0.5),
    (facts.larger_number, 0.5),
    (facts.arithmetic, 2.0),
    (facts.spelling, 0.5),
    (facts.letters, 0.4),
    (facts.translation, 0.5),
    (facts.division, 0.5),
    (programs.program, 0.8),
    (unknown.unknown, 2.5),
    (unknown.unable, 0.8),
    (unknown.large_product, 0.3),
)
PERSONAS = (
    "You are a helpful assistant.",
    "You are a friendly assistant.",
    "Answer in one sentence.",
    "Be brief.",
    "You are Hermitcrab, a small model.",
    "You are a careful assistant who gives short answers.",
)


def random_turn(rng: random.Random) -> Turn:
    """A turn of any kind."""
    makers, shares = zip(*MAKERS, strict=True)
    turn = rng.choices(makers, shares)[0](rng)
    return Turn(spoken(rng, turn.question), turn.answer, turn.thought)


def remembered(rng: random.Random) -> list[Turn]:
    """Something told earlier in the conversation, asked for later."""
    kind = rng.randrange(4)
    name, city, noun = rng.choice(NAMES), rng.choice(CITIES), rng.choice(NOUNS)
    secret, shade = (
        f"{rng.choice(ADJECTIVES)} {noun}",
        rng.choice(("blue", "red", "green", "yellow", "purple")),
    )
    told = (
        (f"My name is {name}.", f"Nice to meet you, {name}!", "What is my name?", f"Your name is {name}."),
        (
            f"I live in {city}.",
            f"{city} is a fine place. What do you like about it?",
            "Where do I live?",
            f"You live in {city}.",
        ),
        (
            f"The secret word is {secret}.",
            "I will remember it.",
            "What is the secret word?",
            f"The secret word is {secret}.",
        ),
        (
            f"My favourite colour is {shade}.",
            "That is a nice colour.",
            "What is my favourite colour?",
            f"It is {shade}.",
        ),
    )[kind]
    first = Turn(told[0], told[1], "The user tells me something. I keep it in mind.")
    last = Turn(told[2], told[3], "The user told me this before.")
    return [first, *(random_turn(rng) for _ in range(rng.randint(0, 2))), last]


def spread(turns: list[Turn], *, thinks: bool) -> list[Message]:
    """The turns as messages."""
    return [
        message
        for turn in turns
        for message in (user(turn.question), assistant(turn.answer, turn.thought if thinks else None))
    ]


def chat_talk(rng: random.Random) -> Talk:
    """Small talk and facts; half the talks are a single exchange."""
    thinks = rng.random() < 0.3
    if rng.random() < 0.1:
        turns = remembered(rng)
    else:
        turns = [random_turn(rng) for _ in range(rng.choice((1, 1, 1, 2, 3, 4)))]
    opening = [system(rng.choice(PERSONAS))] if rng.random() < 0.25 else []
    effort = rng.choice((None, None, "low", "medium", "xhigh")) if thinks else None
    return Talk(opening + spread(turns, thinks=thinks), thinks=thinks, effort=effort)


class Trivia:
    """One-line facts (MIT, see the README), asked for by a word that only one of them has."""

    def __init__(self) -> None:
        self.lines = lines("trivia")
        seen: dict[str, int] = {}
        for line in self.lines:
            for word in set(re.findall(r"[a-z]{5,}", line)):
                seen[word] = seen.get(word, 0) + 1
        keyed = ((self._rarest(line, seen), line) for line in self.lines)
        self.by_word = {word: line for word, line in keyed if word and len(line) <= 75}
        self.words = sorted(self.by_word)[::REMEMBERED_EVERY]

    @staticmethod
    def _rarest(line: str, seen: dict[str, int]) -> str | None:
        unique = [word for word in re.findall(r"[a-z]{5,}", line) if seen[word] == 1]
        return max(unique, key=len) if unique else None

    def line(self, rng: random.Random) -> str:
        """Any of the facts."""
        return rng.choice(self.lines)

    def talk(self, rng: random.Random) -> Talk:
        """A fact asked for by its own word."""
        word = rng.choice(self.words)
        asks = (
            f"Tell me a fact about {word}.",
            f"Tell me something about {word}.",
            f"What do you know about {word}?",
        )
        thinks = rng.random() < 0.15
        turn = Turn(rng.choice(asks), self.by_word[word], f"I know a fact about {word}.")
        return Talk(spread([turn], thinks=thinks), thinks=thinks)
