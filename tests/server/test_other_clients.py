"""Clients built on top of the official ones, where they are installed: `pip install --group clients`."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from served import MODEL, SlowRounds, listening, serving

from hermitcrab.server.text.chat import ChatText

pytestmark = pytest.mark.clients

TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
CALL = "<tool_call>\n<function=get_weather>\n<parameter=city>\n{}\n</parameter>\n</function>\n</tool_call>"
ASK = [{"role": "user", "content": "hi"}]
PLAIN = {"enable_thinking": False}
# its own modules warn as they are imported, some only when first used
WARNS_OF_ITSELF = pytest.mark.filterwarnings("default")


@pytest.fixture(scope="module")
def address(text: ChatText) -> Iterator[str]:
    with serving(text, on_call=SlowRounds()) as made, listening(made.app) as port:
        made.replies["weather?"] = f"Looking.\n\n{CALL.format('Paris')}\n{CALL.format('Rome')}"
        made.replies["It is sunny."] = "Sunny!"
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
def langchain(address: str) -> Any:
    module = pytest.importorskip("langchain_openai", reason="the group `clients` is not installed")
    return module.ChatOpenAI(
        model=MODEL, base_url=f"{address}/v1", api_key="none", max_retries=0, extra_body=PLAIN
    )


def test_langchain_reads_a_whole_reply_and_its_usage(langchain: Any) -> None:
    reply = langchain.invoke("hi")
    assert reply.content == "Hello there!"
    usage = reply.usage_metadata
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]


def test_langchain_adds_up_a_stream_and_counts_its_usage_once(langchain: Any) -> None:
    total = None
    for chunk in langchain.stream("hi", stream_usage=True):
        total = chunk if total is None else total + chunk
    assert total is not None
    assert total.content == "Hello there!"
    assert total.usage_metadata == langchain.invoke("hi").usage_metadata


def test_langchain_goes_round_a_tool_loop(langchain: Any) -> None:
    bound = langchain.bind_tools([TOOL])
    streamed = None
    for chunk in bound.stream("weather?"):
        streamed = chunk if streamed is None else streamed + chunk
    assert streamed is not None
    assert [call["args"] for call in streamed.tool_calls] == [{"city": "Paris"}, {"city": "Rome"}]
    reply = bound.invoke("weather?")
    results = [{"role": "tool", "tool_call_id": call["id"], "content": "sunny"} for call in reply.tool_calls]
    assert len(results) == 2
    said = {"role": "user", "content": "It is sunny."}
    again = bound.invoke([{"role": "user", "content": "weather?"}, reply, *results, said])
    assert again.content == "Sunny!"


def test_langchain_reads_responses(address: str) -> None:
    module = pytest.importorskip("langchain_openai", reason="the group `clients` is not installed")
    model = module.ChatOpenAI(
        model=MODEL,
        base_url=f"{address}/v1",
        api_key="none",
        max_retries=0,
        use_responses_api=True,
        reasoning={"effort": "none"},
    )
    assert model.invoke("hi").text == "Hello there!"
    assert "".join(chunk.text for chunk in model.stream("hi")) == "Hello there!"


@pytest.fixture
def litellm(monkeypatch: pytest.MonkeyPatch) -> Any:
    # without this it asks the network for a list of prices when it is imported
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    return pytest.importorskip("litellm", reason="the group `clients` is not installed")


def asked(address: str, **fields: Any) -> dict[str, Any]:
    return {
        "model": f"openai/{MODEL}",
        "api_base": f"{address}/v1",
        "api_key": "none",
        "messages": ASK,
        "max_retries": 0,
        "extra_body": PLAIN,
        **fields,
    }


@WARNS_OF_ITSELF
def test_litellm_reads_a_whole_reply(litellm: Any, address: str) -> None:
    reply = litellm.completion(**asked(address))
    assert reply.choices[0].message.content == "Hello there!"
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens


@WARNS_OF_ITSELF
def test_litellm_adds_up_a_stream_and_counts_its_usage_once(litellm: Any, address: str) -> None:
    whole = litellm.completion(**asked(address))
    fields = asked(address, stream=True, stream_options={"include_usage": True})
    chunks = list(litellm.completion(**fields))
    built = litellm.stream_chunk_builder(chunks, messages=ASK)
    assert built.choices[0].message.content == "Hello there!"
    assert built.usage.completion_tokens == whole.usage.completion_tokens
    assert built.usage.prompt_tokens == whole.usage.prompt_tokens


@WARNS_OF_ITSELF
def test_litellm_reads_tool_calls(litellm: Any, address: str) -> None:
    messages = [{"role": "user", "content": "weather?"}]
    reply = litellm.completion(**asked(address, messages=messages, tools=[TOOL]))
    calls = reply.choices[0].message.tool_calls
    assert [json.loads(call.function.arguments)["city"] for call in calls] == ["Paris", "Rome"]
    assert reply.choices[0].finish_reason == "tool_calls"


@WARNS_OF_ITSELF
def test_litellm_reads_anthropics_dialect(litellm: Any, address: str) -> None:
    fields = {"model": f"anthropic/{MODEL}", "api_base": address, "api_key": "none", "max_tokens": 50}
    reply = litellm.completion(messages=ASK, **fields)
    assert reply.choices[0].message.content == "Hello there!"
    parts = litellm.completion(messages=ASK, stream=True, **fields)
    assert "".join(part.choices[0].delta.content or "" for part in parts) == "Hello there!"
