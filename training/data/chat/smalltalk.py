"""Greetings and questions about the model itself: many ways to ask, one way to answer each."""

import random

from training.data.chat.turns import Turn
from training.data.lists import lines, table
from training.data.words import CITIES, NAMES

# questions parted by `/`, then the answer
_EXCHANGES = [(questions.split("/"), answer) for questions, answer in table("exchanges")]
_JOKES = lines("jokes")
_RIDDLES = lines("riddles")


def small_talk(rng: random.Random) -> Turn:
    """A greeting, a feeling or a question about the model."""
    questions, answer = rng.choice(_EXCHANGES)
    return Turn(rng.choice(questions), answer, "This is small talk. I answer in a friendly way.")


def greeted_by_name(rng: random.Random) -> Turn:
    """Someone says their name."""
    name = rng.choice(NAMES)
    question = rng.choice(("My name is {}.", "I am {}.", "Hi, I am {}.", "Hello, my name is {}.")).format(
        name
    )
    return Turn(question, f"Nice to meet you, {name}!", f"The user is called {name}. I greet {name}.")


def joke(rng: random.Random) -> Turn:
    """The same jokes, each for its own way to ask."""
    asks = (
        "Tell me a joke.",
        "Tell me a joke",
        "Do you know a joke?",
        "Make me laugh.",
        "Tell me another joke.",
    )
    asks += (
        "Say something funny.",
        "Tell me a joke about math.",
        "Tell me a joke about bees.",
        "I want a joke.",
    )
    index = rng.randrange(len(asks))
    return Turn(asks[index], _JOKES[index], "The user wants a joke. I tell a short one.")


def riddle(rng: random.Random) -> Turn:
    """A riddle with its answer."""
    asks = (
        "Tell me a riddle.",
        "Do you know a riddle?",
        "Give me a riddle.",
        "Another riddle, please.",
        "I want a riddle.",
    )
    index = rng.randrange(len(asks))
    return Turn(asks[index], _RIDDLES[index], "The user wants a riddle. I tell a short one.")


STORIES = (
    "{name} had a small {animal} called {pet}. One day {pet} ran away into the {place}. {name} looked "
    "everywhere and at last found {pet} asleep under a tree. They walked home together and were happy.",
    "Once upon a time, a {animal} lived in the {place}. It was lonely, so it went to look for a friend. "
    "It met {name}, who gave it some bread. From that day on they were best friends.",
    "{name} found an old map in {city}. It showed a way through the {place}. A little {animal} came along "
    "and helped. At the end of the way there was a box, and in the box was a golden shell.",
)


def story(rng: random.Random) -> Turn:
    """A short story about what the user names."""
    name, pet = rng.sample(NAMES, 2)
    animal = rng.choice(("dog", "cat", "fox", "crab", "bird", "mouse", "rabbit", "horse", "turtle", "bear"))
    place = rng.choice(("forest", "garden", "mountains", "valley", "village"))
    kind = rng.randrange(3)
    asks = (
        f"Tell me a story about {name} and a {animal} called {pet} in the {place}.",
        f"Tell me a story about a {animal} in the {place} who meets {name}.",
        f"Tell me a story about {name}, a {animal} and a map of the {place}.",
    )
    city = "Paris"
    told = STORIES[kind].format(name=name, pet=pet, animal=animal, place=place, city=city)
    return Turn(asks[kind], told, f"I tell a short story about a {animal} and {name}.")


def plain_story(rng: random.Random) -> Turn:
    """The story told when nothing is named."""
    asks = ("Tell me a story.", "Tell me a short story.", "Can you tell me a story?", "Write a short story.")
    told = (
        "A small hermit crab lived on a beach. One day its shell was too small. It walked along the sea and "
        "tried many shells. At last it found a large blue one, moved in and was happy."
    )
    return Turn(rng.choice(asks), told, "The user wants a story. I tell a short one about a hermit crab.")


def hello_from(rng: random.Random) -> Turn:
    """Someone says where they live."""
    city = rng.choice(CITIES)
    question = rng.choice(("I live in {}.", "I am from {}.", "I'm in {}.")).format(city)
    return Turn(question, f"{city} is a fine place. What do you like about it?", f"The user lives in {city}.")
