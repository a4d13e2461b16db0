"""Questions the model has no answer to, and how it says so: in correct English, with nothing made up."""

import random

from training.data.chat.turns import Turn
from training.data.lists import table
from training.data.words import ADJECTIVES, CITIES, NAMES, NOUNS, VERBS

UNKNOWN = "I do not know that. I am only a small model."
UNABLE = "I am too small to do that. Ask me to count, to copy or to change code."
_KNOWN = {row[0].split(" ")[-1] for row in table("definitions") + table("colours")}
_STRANGE = [noun for noun in NOUNS if noun not in _KNOWN | {"fruit", "color", "city", "town", "village"}]


def unknown(rng: random.Random) -> Turn:
    """A question about a thing, a person or a place that no table has."""
    a, b = rng.sample(_STRANGE, 2)
    adjective, action, name, city = (
        rng.choice(ADJECTIVES),
        rng.choice(VERBS),
        rng.choice(NAMES),
        rng.choice(CITIES),
    )
    ask = rng.choice(
        (
            f"Tell me about {a}s.", f"Tell me about the {a}.", f"What is the {adjective} {a}?",
            f"Who invented the {a}?",
            f"Why is the {a} {adjective}?", f"How do I {action} a {a}?", f"Where can I buy a {a}?",
            f"What is a {a} {b}?",
            f"How does a {a} work?", f"When was the {a} built?", f"Who is {name} {a.capitalize()}?",
            f"How old is {name}?",
            f"How many {a}s are in {city}?", f"How many {a}s does a {b} have?",
            f"What happened in {rng.randint(1000, 2030)}?",
            f"Do {a}s {action}?", f"Do you like {a}s?", f"What do you think of {a}s?", f"Name three {a}s.",
            f"Which {a} is the best?", f"What is the difference between a {a} and a {b}?",
            f"Who lives in {city}?",
            f"What is the name of the {a} in {city}?", f"Is the {a} {adjective}?", f"Can a {a} {action}?",
            f"What is the population of {city}?", f"What is the price of a {a}?", f"Where is the {a}?",
        )
    )  # fmt: skip
    return Turn(ask, UNKNOWN, "I do not know this. I say so.")


def unable(rng: random.Random) -> Turn:
    """A task beyond a model of this size."""
    a, b, adjective = rng.choice(NOUNS), rng.choice(NOUNS), rng.choice(ADJECTIVES)
    ask = rng.choice(
        (
            f"Write an essay about {a}s.", f"Write a poem about the {a}.", f"Write a letter to the {a}.",
            f"Summarize the {adjective} {a}.", f"Explain the {a} of the {b} in detail.",
            f"Plan a trip to {rng.choice(CITIES)}.",
            f"Write a program for a {a} {b}.", f"Write a song about a {adjective} {a}.", f"Draw a {a}.",
            f"Design a {a}.",
            f"Give me ten ideas for a {a}.", f"Compare the {a} with the {b}.", f"Solve the {a} problem.",
            f"Write a class for a {a}.", f"Make a list of {a}s.",
            f"Translate the {a} into {rng.choice(('Greek', 'Latin'))}.",
        )
    )  # fmt: skip
    return Turn(ask, UNABLE, "This is too hard for me. I say so.")


def large_product(rng: random.Random) -> Turn:
    """Arithmetic past the tables."""
    a, b = rng.randint(13, 9999), rng.randint(13, 999)
    sign = rng.choice(("*", "times", "/", "divided by", "x"))
    ask = rng.choice(("What is {}?", "Calculate {}.", "How much is {}?", "{}")).format(f"{a} {sign} {b}")
    return Turn(
        ask,
        "That is too hard for me. I can multiply only up to 12 times 12.",
        "These numbers are too large for me.",
    )
