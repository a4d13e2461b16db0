"""An agent's traffic on the built-in model: rounds of asking, calling, answering, by the official clients."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from anthropic import Anthropic
from openai import OpenAI
from served import listening

from hermitcrab.clock import WallClock
from hermitcrab.core.host import LaneHost
from hermitcrab.core.lanes import LaneRules
from hermitcrab.engine.build import build_backend
from hermitcrab.models.qwen4_exp.checkpoint import Checkpoint
from hermitcrab.server.app import create_app
from hermitcrab.server.options import ServerOptions
from hermitcrab.server.text.chat import ChatText

pytestmark = pytest.mark.clients

MODEL = "crab"
QUESTIONS = ("What is the weather in Paris?", "What is 12 + 30?")
RESULTS = {"get_weather": '{"temperature": 21, "sky": "sunny"}', "calculate": "42", "read_file": "17 lines"}
# what was said and called, in order
Trail = list[tuple[str, Any]]


def function(name: str, about: str, key: str) -> dict[str, Any]:
    properties = {key: {"type": "string", "description": f"The {key}."}}
    parameters = {"type": "object", "properties": properties, "required": [key]}
    return {"name": name, "description": about, "parameters": parameters}


FUNCTIONS = [
    function("get_weather", "Get the current weather of a city.", "city"),
    function("calculate", "Evaluate an arithmetic expression.", "expression"),
    function("read_file", "Read a file and count its lines.", "path"),
]


@pytest.fixture(scope="module")
def address(checkpoint: Checkpoint, text: ChatText) -> Iterator[str]:
    backend = build_backend(
        checkpoint, dtype="float32", session_rows=[1024, 1024], draft_depth=None, threads=1
    )
    host = LaneHost(backend, LaneRules(), WallClock())
    host.start()
    try:
        with listening(create_app(host, text, ServerOptions(MODEL), WallClock())) as port:
            yield f"http://127.0.0.1:{port}"
    finally:
        host.close(drain_s=0.0)


def chat_turn(address: str, messages: list[Any], *, is_streamed: bool, choice: Any) -> Trail:
    """One reply of the chat API, added to the messages with the results of its calls."""
    tools: list[Any] = [{"type": "function", "function": about} for about in FUNCTIONS]
    with OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0, timeout=60) as client:
        fields: dict[str, Any] = {"model": MODEL, "messages": messages, "tools": tools, "tool_choice": choice}
        fields |= {"temperature": 0, "reasoning_effort": "none", "max_tokens": 150}
        if is_streamed:
            with client.chat.completions.stream(**fields) as stream:
                message = stream.get_final_completion().choices[0].message
        else:
            message = client.chat.completions.create(**fields).choices[0].message
    messages.append(message.to_dict())
    trail: Trail = [] if not message.content else [("said", message.content)]
    for call in message.tool_calls or []:
        trail.append((call.function.name, json.loads(call.function.arguments)))
        result = RESULTS[call.function.name]
        messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    return trail


def message_turn(address: str, messages: list[Any], *, is_streamed: bool, choice: Any) -> Trail:
    """One reply of the Messages API, added to the messages with the results of its calls."""
    tools: list[Any] = [
        {
            "name": about["name"],
            "description": about["description"],
            "input_schema": about["parameters"],
        }
        for about in FUNCTIONS
    ]
    if isinstance(choice, dict):
        asked = {"type": "tool", "name": choice["function"]["name"]}
    else:
        asked = {"type": {"auto": "auto", "required": "any"}[choice]}
    with Anthropic(base_url=address, api_key="none", max_retries=0, timeout=60) as client:
        fields: dict[str, Any] = {"model": MODEL, "messages": messages, "tools": tools, "tool_choice": asked}
        fields |= {"max_tokens": 150, "extra_body": {"temperature": 0}}
        if is_streamed:
            with client.messages.stream(**fields) as stream:
                message = stream.get_final_message()
        else:
            message = client.messages.create(**fields)
    messages.append({"role": "assistant", "content": [block.to_dict() for block in message.content]})
    trail: Trail = []
    results = []
    for block in message.content:
        if block.type == "text":
            trail.append(("said", block.text))
        elif block.type == "tool_use":
            trail.append((block.name, block.input))
            results.append({"type": "tool_result", "tool_use_id": block.id, "content": RESULTS[block.name]})
    if results:
        messages.append({"role": "user", "content": results})
    return trail


def went_round(turn: Callable[..., Trail], address: str, *, is_streamed: bool, choice: Any) -> Trail:
    """Two questions, each followed until no call is made; `choice` is for a question's first reply."""
    messages: list[Any] = []
    trail: Trail = []
    for question in QUESTIONS:
        messages.append({"role": "user", "content": question})
        wanted = choice
        for _ in range(3):
            told = turn(address, messages, is_streamed=is_streamed, choice=wanted)
            trail += told
            if all(kind == "said" for kind, _ in told):
                break
            wanted = "auto"
    return trail


EXPECTED: Trail = [
    ("get_weather", {"city": "Paris"}),
    ("said", "It is sunny and 21 degrees in Paris."),
    ("calculate", {"expression": "12 + 30"}),
    ("said", "The result is 42."),
]


@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("turn", [chat_turn, message_turn])
def test_an_agent_asks_calls_and_answers_through_several_turns(
    address: str, turn: Callable[..., Trail], is_streamed: bool
) -> None:
    assert went_round(turn, address, is_streamed=is_streamed, choice="auto") == EXPECTED


@pytest.mark.parametrize("turn", [chat_turn, message_turn])
def test_calls_that_must_be_made_are_made_in_a_loop_too(address: str, turn: Callable[..., Trail]) -> None:
    assert went_round(turn, address, is_streamed=True, choice="required") == EXPECTED


@pytest.mark.parametrize("turn", [chat_turn, message_turn])
def test_the_model_can_be_made_to_call_what_it_would_not(address: str, turn: Callable[..., Trail]) -> None:
    messages: list[Any] = [{"role": "user", "content": QUESTIONS[0]}]
    named = {"type": "function", "function": {"name": "read_file"}}
    ((name, arguments), *_) = turn(address, messages, is_streamed=True, choice=named)
    assert name == "read_file"
    assert set(arguments) == {"path"}


def test_a_call_that_must_be_made_is_drafted_too(address: str) -> None:
    with OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0, timeout=60) as client:
        reply = client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": QUESTIONS[0]}],
            tools=[{"type": "function", "function": FUNCTIONS[0]}],  # type: ignore[typeddict-item]  # plain values
            tool_choice="required",
            parallel_tool_calls=False,
            reasoning_effort="none",
            temperature=0,
        )
    told: dict[str, Any] = (reply.model_extra or {})["hermitcrab"]
    assert told["accepted"] > told["rounds"] / 2
