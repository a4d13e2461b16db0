"""Small facts by rule: each question has one right answer."""

import random

from training.data.chat.turns import Turn
from training.data.lists import lines, listed, table
from training.data.words import NOUNS

_CAPITALS = table("capitals")
_CONTINENTS = {country: row[0] for row in table("continents") for country in listed(row[1])}
_COLOURS = table("colours")
_ANIMALS = table("animals")
_LEGS = table("legs") + [[row[0], row[2]] for row in table("animals")]
_OPPOSITES = table("opposites")
_PLURALS = table("plurals")
_PAST = table("past")
_UNITS = table("units")
_DEFINITIONS = table("definitions")
_EXPLANATIONS = table("explanations")
_SEQUENCES = {row[0]: listed(row[1]) for row in table("sequences")}
_SIZES = listed(lines("sizes")[0])
_TRANSLATIONS = table("translations")
NUMBER_WORDS = listed("zero, one, two, three, four, five, six, seven, eight, nine, ten, eleven, twelve")


def article(noun: str) -> str:
    """The noun with its indefinite article."""
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def capital(rng: random.Random) -> Turn:
    country, city = rng.choice(_CAPITALS)
    asks = (
        "What is the capital of {}?",
        "What's the capital of {}?",
        "Capital of {}?",
        "Tell me the capital of {}.",
    )
    asks += ("Which city is the capital of {}?", "Do you know the capital of {}?")
    ask = rng.choice(asks).format(country)
    end = "" if city.endswith(".") else "."
    thought = f"The user asks for the capital of {country}. It is {city}{end}"
    return Turn(ask, f"The capital of {country} is {city}{end}", thought)


def country_of(rng: random.Random) -> Turn:
    country, city = rng.choice(
        [row for row in _CAPITALS if row[1] not in ("London", "Singapore", "Luxembourg")]
    )
    ask = rng.choice((f"{city} is the capital of which country?", f"Which country has the capital {city}?"))
    return Turn(ask, f"{city} is the capital of {country}.", f"{city} is the capital of {country}.")


def continent(rng: random.Random) -> Turn:
    country, where = rng.choice(list(_CONTINENTS.items()))
    verb = "are" if country.endswith("States") else "is"
    ask = rng.choice(
        (
            f"Where {verb} {country}?",
            f"On which continent {verb} {country}?",
            f"What continent {verb} {country} in?",
        )
    )
    subject = country[0].upper() + country[1:]
    return Turn(ask, f"{subject} {verb} in {where}.", f"{subject} {verb} in {where}.")


def colour(rng: random.Random) -> Turn:
    thing, shade = rng.choice(_COLOURS)
    ask = rng.choice(("What colour is {}?", "What color is {}?", "Which colour is {}?")).format(thing)
    return Turn(
        ask, f"{thing[0].upper()}{thing[1:]} is {shade}.", f"The user asks for a colour. It is {shade}."
    )


def animal_sound(rng: random.Random) -> Turn:
    animal, sound = rng.choice(_ANIMALS)[:2]
    asks = (
        f"What sound does {article(animal)} make?",
        f"What does {article(animal)} say?",
        f"What noise does {article(animal)} make?",
    )
    answer = f"{article(animal).capitalize()} {sound}."
    return Turn(rng.choice(asks), answer, f"The user asks for the sound of {article(animal)}.")


def animal_legs(rng: random.Random) -> Turn:
    animal, legs = rng.choice(_LEGS)
    count = "no" if legs == "0" else NUMBER_WORDS[int(legs)]
    ask = f"How many legs does {article(animal)} have?"
    answer = f"{article(animal).capitalize()} has {count} legs."
    return Turn(ask, answer, f"The user asks about legs. {answer}")


def animal_young(rng: random.Random) -> Turn:
    row = rng.choice(_ANIMALS)
    animal, young = row[0], row[3]
    asks = (
        f"What is a baby {animal} called?",
        f"What do you call a baby {animal}?",
        f"What is a young {animal} called?",
    )
    return Turn(
        rng.choice(asks),
        f"A baby {animal} is called {article(young)}.",
        f"A baby {animal} is {article(young)}.",
    )


def opposite(rng: random.Random) -> Turn:
    word, other = rng.choice(_OPPOSITES)
    asks = (
        "What is the opposite of {}?",
        "What's the opposite of {}?",
        "Opposite of {}?",
        "Tell me the opposite of {}.",
    )
    return Turn(
        rng.choice(asks).format(word),
        f"The opposite of {word} is {other}.",
        f"The opposite of {word} is {other}.",
    )


def plural(rng: random.Random) -> Turn:
    one, many = rng.choice(_PLURALS)
    asks = ("What is the plural of {}?", "Plural of {}?", "What's the plural of {}?")
    return Turn(rng.choice(asks).format(one), f"The plural of {one} is {many}.", f"One {one}, two {many}.")


def past(rng: random.Random) -> Turn:
    verb, before = rng.choice(_PAST)
    asks = ("What is the past tense of {}?", "Past tense of {}?", "What is the past of {}?")
    return Turn(
        rng.choice(asks).format(verb),
        f"The past tense of {verb} is {before}.",
        f"Today {verb}, yesterday {before}.",
    )


def unit(rng: random.Random) -> Turn:
    things, whole, count = rng.choice(_UNITS)
    asks = (
        f"How many {things} are in {whole}?",
        f"How many {things} are there in {whole}?",
        f"How many {things} in {whole}?",
    )
    return Turn(
        rng.choice(asks),
        f"There are {count} {things} in {whole}.",
        f"The user asks about {things}. The count is {count}.",
    )


def definition(rng: random.Random) -> Turn:
    thing, meaning = rng.choice(_DEFINITIONS)
    bare = thing.removeprefix("a ").removeprefix("an ").removeprefix("the ")
    asks = (
        f"What is {thing}?",
        f"What's {thing}?",
        f"Define {bare}.",
        f"Explain {thing}.",
        f"What does {bare} mean?",
    )
    asks += (f"Can you explain what {thing} is?", f"Tell me what {thing} is.")
    return Turn(rng.choice(asks), meaning, f"The user asks what {thing} is. I explain it in one sentence.")


def explanation(rng: random.Random) -> Turn:
    asks, answer = rng.choice(_EXPLANATIONS)
    return Turn(rng.choice(asks.split("/")), answer, "I know this one. I answer in one or two sentences.")


def sequence(rng: random.Random) -> Turn:
    name, entries = rng.choice(list(_SEQUENCES.items()))
    asks = (
        f"Name the {name}.",
        f"What are the {name}?",
        f"List the {name}.",
        f"Tell me the {name}.",
        f"Say the {name}.",
    )
    said = ", ".join(entries[:-1]) + f" and {entries[-1]}" if len(entries) < 26 else ", ".join(entries)
    return Turn(
        rng.choice(asks),
        f"{said[0].upper()}{said[1:]}.",
        f"The user wants the {name}. There are {len(entries)}.",
    )


def neighbour(rng: random.Random) -> Turn:
    name = rng.choice(("days of the week", "months of the year", "letters of the alphabet", "planets"))
    entries = _SEQUENCES[name]
    index = rng.randrange(len(entries) - 1)
    first, second = entries[index], entries[index + 1]
    kind = {"d": "day", "m": "month", "l": "letter", "p": "planet"}[name[0]]
    if rng.random() < 0.5:
        return Turn(
            f"What {kind} comes after {first}?",
            f"{second} comes after {first}.",
            f"After {first} comes {second}.",
        )
    return Turn(
        f"What {kind} comes before {second}?",
        f"{first} comes before {second}.",
        f"Before {second} comes {first}.",
    )


def larger(rng: random.Random) -> Turn:
    a, b = rng.sample(range(len(_SIZES)), 2)
    big, small = _SIZES[max(a, b)], _SIZES[min(a, b)]
    wants_big = rng.random() < 0.6
    word, answer, other = ("bigger", big, small) if wants_big else ("smaller", small, big)
    asks = (f"Which is {word}, {_SIZES[a]} or {_SIZES[b]}?", f"What is {word}: {_SIZES[a]} or {_SIZES[b]}?")
    said = f"{answer[0].upper()}{answer[1:]} is {word} than {other}."
    return Turn(rng.choice(asks), said, f"I compare {_SIZES[a]} with {_SIZES[b]}.")


def larger_number(rng: random.Random) -> Turn:
    a, b = rng.randint(0, 9999), rng.randint(0, 9999)
    if rng.random() < 0.5:
        a, b = a % 100, b % 100
    if a == b:
        b += 1
    wants_big = rng.random() < 0.6
    word, answer = ("larger", max(a, b)) if wants_big else ("smaller", min(a, b))
    ask = rng.choice((f"Which is {word}, {a} or {b}?", f"Which number is {word}: {a} or {b}?"))
    return Turn(ask, f"{answer} is {word}.", f"I compare {a} with {b}.")


def arithmetic(rng: random.Random) -> Turn:
    most = rng.choice((10, 10, 20, 100))
    a, b = rng.randint(0, most), rng.randint(0, most)
    kind = rng.choice(("plus", "plus", "minus", "times"))
    if kind == "times":
        a, b = rng.randint(0, 12), rng.randint(0, 12)
    if kind == "minus" and b > a:
        a, b = b, a
    sign = {"plus": "+", "minus": "-", "times": "*"}[kind]
    value = {"plus": a + b, "minus": a - b, "times": a * b}[kind]
    shown = rng.choice((f"{a} {kind} {b}", f"{a} {sign} {b}", f"{a}{sign}{b}"))
    ask = rng.choice(("What is {}?", "How much is {}?", "Calculate {}.", "{}", "{} =", "What's {}?")).format(
        shown
    )
    return Turn(ask, f"{a} {kind} {b} is {value}.", f"I compute {a} {sign} {b} = {value}.")


def spelling(rng: random.Random) -> Turn:
    word = rng.choice(NOUNS)
    ask = rng.choice((f"Spell {word}.", f"How do you spell {word}?", f"Spell the word {word}."))
    return Turn(ask, f"{'-'.join(word.upper())}.", f"I spell {word} letter by letter.")


def letters(rng: random.Random) -> Turn:
    word = rng.choice(NOUNS)
    ask = rng.choice((f"How many letters are in {word}?", f"How many letters does the word {word} have?"))
    return Turn(
        ask, f"The word {word} has {len(word)} letters.", f"{'-'.join(word.upper())}: that is {len(word)}."
    )


def translation(rng: random.Random) -> Turn:
    row = rng.choice(_TRANSLATIONS)
    index = rng.randint(1, 3)
    language = ("Spanish", "French", "German")[index - 1]
    asks = ("How do you say {} in {}?", "What is {} in {}?", "Translate {} to {}.")
    ask = rng.choice(asks).format(row[0], language)
    return Turn(
        ask,
        f'"{row[0].capitalize()}" in {language} is "{row[index]}".',
        f"The user wants a word in {language}.",
    )


def division(rng: random.Random) -> Turn:
    """A division that leaves nothing."""
    a, b = rng.randint(1, 12), rng.randint(1, 12)
    shown = rng.choice((f"{a * b} divided by {b}", f"{a * b} / {b}"))
    ask = rng.choice(("What is {}?", "How much is {}?", "Calculate {}.", "{}")).format(shown)
    return Turn(ask, f"{a * b} divided by {b} is {a}.", f"I compute {a * b} / {b} = {a}.")
