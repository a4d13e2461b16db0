"""`tool_choice` and parallel calls in every dialect, whole and streamed: a reply calls as it must and may."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from served import RANDOM, Served, events, serving

from hermitcrab.server.text.chat import ChatText

SCHEMA = {
    "type": "object",
    "properties": {"unit": {"enum": ["C", "F"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["unit", "days"],
}
CALL = (
    "<tool_call>\n<function=get_weather>\n<parameter=unit>\nC\n</parameter>\n"
    "<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>"
)
NAMES = ("get_weather", "get_tide")
Calls = list[tuple[str, Any]]


@pytest.fixture(scope="module")
def served(text: ChatText) -> Iterator[Served]:
    with serving(text) as made:
        made.replies["twice"] = f"{CALL}\n{CALL}"
        made.replies["talks"] = "I would rather talk."
        made.replies["talks and calls"] = f"Let me look.\n\n{CALL}\n{CALL}"
        made.replies["thinks"] = "\nhm\n</think>\n\nI would rather talk."
        yield made


@dataclass(frozen=True)
class Dialect:
    """How one dialect asks, and where its replies have text and calls."""

    ask: Callable[..., httpx.Response]
    tools: list[dict[str, Any]]
    required: dict[str, Any]
    named: dict[str, Any]
    once: dict[str, Any]
    whole: Callable[[dict[str, Any]], tuple[str, Calls]]
    streamed: Callable[[str], tuple[str, Calls]]


def _chat(served: Served, content: str, **fields: Any) -> httpx.Response:
    return served.chat(content, **{"enable_thinking": False, **fields})


def _chat_whole(body: dict[str, Any]) -> tuple[str, Calls]:
    message = body["choices"][0]["message"]
    calls = [call["function"] for call in message.get("tool_calls", ())]
    assert body["choices"][0]["finish_reason"] == ("tool_calls" if calls else "stop")
    return message["content"] or "", [(call["name"], json.loads(call["arguments"])) for call in calls]


def _chat_streamed(text: str) -> tuple[str, Calls]:
    deltas = [chunk["choices"][0]["delta"] for chunk in events(text)]
    parts = [part for delta in deltas for part in delta.get("tool_calls", ())]
    names = [part["function"]["name"] for part in parts if "id" in part]
    arguments = [json.loads(part["function"]["arguments"]) for part in parts if "id" not in part]
    said = "".join(delta.get("content") or "" for delta in deltas)
    return said, list(zip(names, arguments, strict=True))


def _respond(served: Served, content: str, **fields: Any) -> httpx.Response:
    body = {"input": content, "reasoning": {"effort": "none"}, **fields}
    return served.ask(body, path="/v1/responses")


def _items(body: dict[str, Any]) -> tuple[str, Calls]:
    items = body["output"]
    said = "".join(item["content"][0]["text"] for item in items if item["type"] == "message")
    calls = [item for item in items if item["type"] == "function_call"]
    return said, [(call["name"], json.loads(call["arguments"])) for call in calls]


def _message(served: Served, content: str, **fields: Any) -> httpx.Response:
    body = {"messages": [{"role": "user", "content": content}], "max_tokens": 1000, **fields}
    return served.ask(body, path="/v1/messages")


def _blocks(body: dict[str, Any]) -> tuple[str, Calls]:
    said = "".join(block["text"] for block in body["content"] if block["type"] == "text")
    calls = [(block["name"], block["input"]) for block in body["content"] if block["type"] == "tool_use"]
    assert body["stop_reason"] == ("tool_use" if calls else "end_turn")
    return said, calls


def _data(text: str) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in text.split("\n") if line.startswith("data: {")]


def _blocks_streamed(text: str) -> tuple[str, Calls]:
    told = _data(text)
    names = [
        event["content_block"]["name"]
        for event in told
        if event["type"] == "content_block_start" and event["content_block"]["type"] == "tool_use"
    ]
    deltas = [event["delta"] for event in told if event["type"] == "content_block_delta"]
    inputs = [json.loads(delta["partial_json"]) for delta in deltas if "partial_json" in delta]
    said = "".join(delta.get("text", "") for delta in deltas)
    return said, list(zip(names, inputs, strict=True))


DIALECTS = {
    "chat": Dialect(
        _chat,
        [{"type": "function", "function": {"name": name, "parameters": SCHEMA}} for name in NAMES],
        {"tool_choice": "required"},
        {"tool_choice": {"type": "function", "function": {"name": "get_tide"}}},
        {"parallel_tool_calls": False},
        _chat_whole,
        _chat_streamed,
    ),
    "responses": Dialect(
        _respond,
        [{"type": "function", "name": name, "parameters": SCHEMA} for name in NAMES],
        {"tool_choice": "required"},
        {"tool_choice": {"type": "function", "name": "get_tide"}},
        {"parallel_tool_calls": False},
        _items,
        lambda text: _items(_data(text)[-1]["response"]),
    ),
    "messages": Dialect(
        _message,
        [{"name": name, "input_schema": SCHEMA} for name in NAMES],
        {"tool_choice": {"type": "any"}},
        {"tool_choice": {"type": "tool", "name": "get_tide"}},
        {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
        _blocks,
        _blocks_streamed,
    ),
}


@pytest.fixture(params=DIALECTS)
def dialect(request: pytest.FixtureRequest) -> Dialect:
    return DIALECTS[request.param]


def replied(served: Served, dialect: Dialect, content: str, **fields: Any) -> tuple[str, Calls]:
    """Text and calls of a reply, which a stream of the same request repeats."""
    fields = {"tools": dialect.tools, "seed": 5, **fields}
    whole = dialect.whole(dialect.ask(served, content, **fields).json())
    assert dialect.streamed(dialect.ask(served, content, stream=True, **fields).text) == whole
    return whole


def is_call(call: tuple[str, Any], names: tuple[str, ...] = NAMES) -> bool:
    name, arguments = call
    return name in names and arguments["unit"] in ("C", "F") and arguments["days"] in range(1, 10)


@pytest.mark.parametrize("content", [RANDOM, "talks"])
def test_a_required_call_is_made_whatever_the_model_would_say(
    served: Served, dialect: Dialect, content: str
) -> None:
    said, calls = replied(served, dialect, content, **dialect.required)
    assert said == ""
    assert calls
    assert all(is_call(call) for call in calls)


def test_calls_that_are_made_anyway_are_left_alone(served: Served, dialect: Dialect) -> None:
    expected = ("get_weather", {"unit": "C", "days": 3})
    assert replied(served, dialect, "twice", **dialect.required) == ("", [expected, expected])


@pytest.mark.parametrize("content", [RANDOM, "twice", "talks"])
def test_a_named_function_is_the_one_called(served: Served, dialect: Dialect, content: str) -> None:
    said, calls = replied(served, dialect, content, **dialect.named)
    assert said == ""
    assert calls
    assert all(is_call(call, ("get_tide",)) for call in calls)


def test_without_parallel_calls_there_is_one_at_most(served: Served, dialect: Dialect) -> None:
    expected = ("get_weather", {"unit": "C", "days": 3})
    assert replied(served, dialect, "talks and calls", **dialect.once) == ("Let me look.", [expected])
    assert replied(served, dialect, "talks", **dialect.once) == ("I would rather talk.", [])


def test_a_required_call_without_parallel_ones_is_one(served: Served, dialect: Dialect) -> None:
    once = {**dialect.required, **dialect.once}
    if isinstance(dialect.required["tool_choice"], dict):
        once = {"tool_choice": {**dialect.once["tool_choice"], **dialect.required["tool_choice"]}}
    said, calls = replied(served, dialect, "twice", **once)
    assert (said, len(calls)) == ("", 1)


def test_a_model_thinks_before_a_call_that_it_must_make(served: Served) -> None:
    chat = DIALECTS["chat"]
    body = served.chat("thinks", tools=chat.tools, **chat.required).json()
    assert body["choices"][0]["message"]["reasoning_content"] == "hm"
    said, calls = chat.whole(body)
    assert (said, is_call(calls[0])) == ("", True)


def test_each_choice_calls(served: Served) -> None:
    chat = DIALECTS["chat"]
    body = served.chat(RANDOM, n=3, tools=chat.tools, enable_thinking=False, seed=1, **chat.required).json()
    for choice in body["choices"]:
        assert all(is_call(call) for call in _chat_whole({"choices": [choice]})[1])


def test_a_form_of_the_answer_gives_way_to_a_call_that_must_be_made(served: Served) -> None:
    form = {"response_format": {"type": "json_object"}}
    assert replied(served, DIALECTS["chat"], "twice", **DIALECTS["chat"].required, **form)[1]


def test_a_response_repeats_how_tools_were_to_be_called(served: Served) -> None:
    asked = DIALECTS["responses"]
    body = _respond(served, "twice", tools=asked.tools, **asked.named, **asked.once).json()
    assert body["tool_choice"] == {"type": "function", "name": "get_tide"}
    assert body["parallel_tool_calls"] is False


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("which", ["required", "named"])
def test_a_call_of_nothing_that_is_offered_is_refused(
    served: Served, dialect: Dialect, which: str, stream: bool
) -> None:
    offered = {"required": [], "named": dialect.tools[:1]}[which]
    response = dialect.ask(served, "hi", tools=offered, stream=stream, **getattr(dialect, which))
    assert response.status_code == 400
    assert "tool_choice" in response.json()["error"]["message"]


WRONG: list[tuple[str, Any]] = [
    ("chat", "always"),
    ("chat", 1),
    ("chat", {"type": "function"}),
    ("chat", {"type": "function", "function": "get_tide"}),
    ("chat", {"type": "function", "function": {"name": ""}}),
    ("chat", {"type": "allowed_tools", "allowed_tools": {}}),
    ("responses", {"type": "web_search"}),
    ("responses", []),
    ("messages", {"type": "tool"}),
    ("messages", {"type": "required"}),
    ("messages", "any"),
]


@pytest.mark.parametrize(("name", "choice"), WRONG, ids=str)
def test_a_choice_that_is_none_is_refused_by_name(served: Served, name: str, choice: Any) -> None:
    dialect = DIALECTS[name]
    response = dialect.ask(served, "hi", tools=dialect.tools, tool_choice=choice)
    assert response.status_code == 400
    assert "tool_choice" in response.json()["error"]["message"]


def test_a_name_that_no_call_can_spell_is_refused_only_where_it_must(served: Served) -> None:
    tools = [{"type": "function", "function": {"name": "a<b"}}]
    assert _chat(served, "hi", tools=tools).status_code == 200
    assert _chat(served, "hi", tools=tools, tool_choice="required").status_code == 400
