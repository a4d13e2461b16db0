"""Tool calls: functions in the system turn, a request, the call with the user's values, and the answer."""

import json
import random
from dataclasses import dataclass

from training.data.documents import Message, Talk, assistant, system, user
from training.data.words import ADJECTIVES, CITIES, NAMES, NOUNS, VERBS


@dataclass(frozen=True, slots=True)
class Use:
    """A function's schema, a request for it, the arguments that answer it, its result and the answer."""

    schema: dict[str, object]
    ask: str
    arguments: dict[str, object]
    result: str
    answer: str
    thought: str


def schema(name: str, purpose: str, parameters: dict[str, str], required: list[str]) -> dict[str, object]:
    """A function in the chat interfaces' form; parameter types are JSON's."""
    properties = {
        key: {"type": kind, "description": f"The {key.replace('_', ' ')}."}
        for key, kind in parameters.items()
    }
    about = {"type": "object", "properties": properties, "required": required}
    return {"type": "function", "function": {"name": name, "description": purpose, "parameters": about}}


def weather(rng: random.Random) -> Use:
    city, degrees = rng.choice(CITIES), rng.randint(-10, 38)
    sky = rng.choice(("sunny", "cloudy", "rainy", "windy", "foggy", "clear"))
    name = rng.choice(("get_weather", "weather", "current_weather", "fetch_weather"))
    key = rng.choice(("city", "location", "place"))
    ask = rng.choice(
        (
            "What is the weather in {}?",
            "How is the weather in {}?",
            "What's the weather like in {} today?",
            "Weather in {}",
        )
    ).format(city)
    shown = {"temperature": degrees, "sky": sky}
    answer = f"It is {sky} and {degrees} degrees in {city}."
    about = schema(name, "Get the current weather of a city.", {key: "string"}, [key])
    return Use(about, ask, {key: city}, json.dumps(shown), answer, f"I need the weather in {city}.")


def arithmetic(rng: random.Random) -> Use:
    a, b = rng.randint(2, 999), rng.randint(2, 999)
    sign, value = rng.choice((("+", a + b), ("*", a * b), ("-", a - b)))
    name = rng.choice(("calculate", "calculator", "compute", "evaluate"))
    expression = f"{a} {sign} {b}"
    ask = rng.choice(("What is {}?", "Calculate {}", "Compute {} for me.", "How much is {}?")).format(
        expression
    )
    about = schema(name, "Evaluate an arithmetic expression.", {"expression": "string"}, ["expression"])
    return Use(
        about,
        ask,
        {"expression": expression},
        str(value),
        f"The result is {value}.",
        f"I compute {expression}.",
    )


def clock(rng: random.Random) -> Use:
    city, time = rng.choice(CITIES), f"{rng.randint(0, 23):02d}:{rng.randint(0, 59):02d}"
    name = rng.choice(("get_time", "current_time", "clock"))
    ask = rng.choice(("What time is it in {}?", "Tell me the time in {}.", "What is the time in {}?")).format(
        city
    )
    about = schema(name, "Get the local time of a city.", {"city": "string"}, ["city"])
    return Use(about, ask, {"city": city}, time, f"It is {time} in {city}.", f"I need the time in {city}.")


def message(rng: random.Random) -> Use:
    who = rng.choice(NAMES)
    text = f"{rng.choice(VERBS)} the {rng.choice(ADJECTIVES)} {rng.choice(NOUNS)}"
    name = rng.choice(("send_message", "send_email", "notify"))
    ask = rng.choice(('Send {} the message "{}".', 'Tell {}: "{}"', 'Write to {}: "{}"')).format(who, text)
    keys = {"recipient": "string", "text": "string"}
    about = schema(name, "Send a message to a person.", keys, list(keys))
    answer = f"I sent the message to {who}."
    return Use(about, ask, {"recipient": who, "text": text}, "sent", answer, f"I send the message to {who}.")


def search(rng: random.Random) -> Use:
    query = f"{rng.choice(ADJECTIVES)} {rng.choice(NOUNS)}"
    limit = rng.randint(1, 20)
    name = rng.choice(("search", "web_search", "find_documents", "lookup"))
    ask = rng.choice(("Search for {q} and show {n} results.", "Find {n} results for {q}.")).format(
        q=query, n=limit
    )
    found = rng.randint(0, limit)
    about = schema(name, "Search for documents.", {"query": "string", "limit": "integer"}, ["query"])
    answer = f"I found {found} results for {query}."
    return Use(
        about, ask, {"query": query, "limit": limit}, f"{found} results", answer, f"I search for {query}."
    )


def file_read(rng: random.Random) -> Use:
    path = f"{rng.choice(NOUNS)}/{rng.choice(NOUNS)}.{rng.choice(('txt', 'py', 'md', 'json', 'csv'))}"
    lines = rng.randint(1, 500)
    name = rng.choice(("read_file", "open_file", "count_lines"))
    ask = rng.choice(("Open {}.", "Read the file {}", "How many lines are in {}?")).format(path)
    about = schema(name, "Read a file and count its lines.", {"path": "string"}, ["path"])
    return Use(about, ask, {"path": path}, f"{lines} lines", f"{path} has {lines} lines.", f"I read {path}.")


def invented(rng: random.Random) -> Use:
    """A function with made-up names, so that a call must copy them from the system turn."""
    noun, action = rng.choice(NOUNS), rng.choice(VERBS)
    name = rng.choice((f"{action}_{noun}", f"{action}{noun.capitalize()}", f"{noun}_{action}"))
    keys = rng.sample(NOUNS, rng.randint(1, 3))
    kinds = {key: rng.choice(("string", "integer")) for key in keys}
    values: dict[str, object] = {
        key: rng.randint(0, 999) if kind == "integer" else rng.choice((rng.choice(NOUNS), rng.choice(NAMES)))
        for key, kind in kinds.items()
    }
    given = " and ".join(f"{key} {value}" for key, value in values.items())
    opening = rng.choice(("", "Please ", "Can you "))
    ask = f"{opening}{action} the {noun} with {given}"
    ask = ask[0].upper() + ask[1:] + ("?" if opening == "Can you " else rng.choice((".", "")))
    result = rng.choice(("ok", "done", f'{{"{noun}": {rng.randint(0, 99)}}}'))
    about = schema(name, f"{action.capitalize()} the {noun}.", kinds, keys)
    return Use(about, ask, values, result, f"Done. The {noun} is ready.", f"I call {name} with {given}.")


USES = (weather, arithmetic, clock, message, search, file_read)


def random_use(rng: random.Random) -> Use:
    """A usual function, or an invented one."""
    return rng.choice(USES)(rng) if rng.random() < 0.5 else invented(rng)


def name_of(use: Use) -> str:
    """The function's name in its schema."""
    return str(use.schema["function"]["name"])  # type: ignore[index]


def call(use: Use, *, thinks: bool) -> Message:
    """The assistant's turn that calls the function."""
    entry = {"type": "function", "function": {"name": name_of(use), "arguments": use.arguments}}
    return assistant("", use.thought if thinks else None) | {"tool_calls": [entry]}


def exchange(use: Use, rng: random.Random, *, thinks: bool) -> list[Message]:
    """The request, the call, its result and the closing answer."""
    closing = assistant(
        use.answer, rng.choice(("The tool answered.", "I have the result.")) if thinks else None
    )
    return [user(use.ask), call(use, thinks=thinks), {"role": "tool", "content": use.result}, closing]


def tool_talk(rng: random.Random) -> Talk:
    """One or two exchanges with the right one of up to four functions."""
    thinks = rng.random() < 0.3
    uses = [random_use(rng) for _ in range(rng.choice((1, 1, 2, 3, 4)))]
    by_name = {name_of(use): use for use in uses}
    uses = list(by_name.values())
    order = rng.sample(uses, len(uses))
    messages = (
        [system(rng.choice(("You are a helpful assistant.", "Use the tools.")))] if rng.random() < 0.3 else []
    )
    if rng.random() < 0.15:
        polite = rng.choice((("Hello!", "Hello! How can I help you?"), ("Hi!", "Hi! What can I do for you?")))
        thought = "This is small talk. I answer in a friendly way." if thinks else None
        messages += [user(polite[0]), assistant(polite[1], thought)]
    for use in uses[: rng.choice((1, 1, 2))]:
        messages += exchange(use, rng, thinks=thinks)
    effort = rng.choice((None, None, "low", "medium", "xhigh")) if thinks else None
    return Talk(messages, tools=[use.schema for use in order], thinks=thinks, effort=effort)
