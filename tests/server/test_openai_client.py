"""The official openai Python client against a real socket: what it parses is what was said."""

import json
import threading
from collections.abc import Iterator

import httpx2
import openai
import pytest
from openai import OpenAI
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam
from pydantic import BaseModel
from served import ENDLESS, MODEL, Gate, Served, SlowRounds, is_idle, listening, serving

from hermitcrab.core.fake import CallKind
from hermitcrab.errors import DeviceFailed
from hermitcrab.server.options import ServerOptions
from hermitcrab.server.text.chat import ChatText

pytestmark = pytest.mark.clients

ASK: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hi"}]
TOOL: ChatCompletionToolParam = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        },
    },
}
CALL = (
    "<tool_call>\n<function=get_weather>\n<parameter=city>\n{}\n</parameter>\n"
    "<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>"
)


@pytest.fixture(scope="module")
def served(text: ChatText) -> Iterator[tuple[Served, int]]:
    with serving(text, on_call=SlowRounds()) as made, listening(made.app) as port:
        made.replies["think"] = "\nlet me see\n</think>\n\nDone."
        made.replies["weather?"] = f"Looking.\n\n{CALL.format('Paris')}\n{CALL.format('Rome')}"
        made.replies["the verdict?"] = '{"is_sunny": true, "degrees": 21}'
        made.replies["It is sunny."] = "Sunny!"
        yield made, port


@pytest.fixture(scope="module")
def client(served: tuple[Served, int]) -> Iterator[OpenAI]:
    with connected(served[1]) as made:
        yield made


def connected(port: int, key: str = "none") -> OpenAI:
    """A client that does not try again, so that an error is seen at once."""
    return OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key=key, max_retries=0, timeout=10)


def test_a_whole_reply(client: OpenAI) -> None:
    reply = client.chat.completions.create(model=MODEL, messages=ASK, reasoning_effort="none")
    assert reply.choices[0].message.content == "Hello there!"
    assert reply.choices[0].finish_reason == "stop"
    assert reply.usage is not None
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens


def test_a_streamed_reply(client: OpenAI) -> None:
    stream = client.chat.completions.create(
        model=MODEL,
        messages=ASK,
        reasoning_effort="none",
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    said = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert said == "Hello there!"
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].usage is not None
    assert chunks[-1].choices == []


def test_reasoning_is_where_clients_look_for_it(client: OpenAI) -> None:
    reply = client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "think"}])
    message = reply.choices[0].message
    assert message.content == "Done."
    assert getattr(message, "reasoning_content", None) == "let me see"


def test_tool_calls_parse(client: OpenAI) -> None:
    reply = client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "weather?"}], tools=[TOOL], reasoning_effort="none"
    )
    calls = reply.choices[0].message.tool_calls or []
    assert [call.type for call in calls] == ["function", "function"]
    arguments = [json.loads(call.function.arguments) for call in calls if call.type == "function"]
    assert arguments == [{"city": "Paris", "days": 3}, {"city": "Rome", "days": 3}]
    assert reply.choices[0].finish_reason == "tool_calls"


def test_streamed_tool_calls_parse_with_the_clients_own_helper(client: OpenAI) -> None:
    with client.chat.completions.stream(
        model=MODEL, messages=[{"role": "user", "content": "weather?"}], tools=[TOOL], reasoning_effort="none"
    ) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    calls = final.choices[0].message.tool_calls or []
    assert "tool_calls.function.arguments.done" in kinds
    assert [json.loads(call.function.arguments)["city"] for call in calls] == ["Paris", "Rome"]
    assert final.choices[0].message.content == "Looking."
    assert final.choices[0].finish_reason == "tool_calls"


def test_a_tool_loop_goes_round(client: OpenAI) -> None:
    messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": "weather?"}]
    reply = client.chat.completions.create(
        model=MODEL, messages=messages, tools=[TOOL], reasoning_effort="none"
    )
    message = reply.choices[0].message
    messages.append(message.to_dict())  # type: ignore[arg-type]  # the client's own model, sent back as it came
    for call in message.tool_calls or []:
        messages.append({"role": "tool", "tool_call_id": call.id, "content": "sunny"})
    messages.append({"role": "user", "content": "It is sunny."})
    reply = client.chat.completions.create(
        model=MODEL, messages=messages, tools=[TOOL], reasoning_effort="none"
    )
    assert reply.choices[0].message.content == "Sunny!"


def test_a_plain_completion(client: OpenAI) -> None:
    prompt = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert client.completions.create(model=MODEL, prompt=prompt).choices[0].text == "Hello there!"


def test_a_streamed_plain_completion(client: OpenAI) -> None:
    prompt = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    chunks = client.completions.create(model=MODEL, prompt=prompt, stream=True)
    assert "".join(chunk.choices[0].text for chunk in chunks) == "Hello there!"


def test_log_probabilities_of_a_chat_whole_and_streamed(client: OpenAI) -> None:
    whole = client.chat.completions.create(
        model=MODEL, messages=ASK, reasoning_effort="none", logprobs=True, top_logprobs=2
    )
    told = whole.choices[0].logprobs
    assert told is not None
    assert told.content is not None
    assert "".join(row.token for row in told.content) == "Hello there!"
    assert all(row.bytes == list(row.token.encode()) and len(row.top_logprobs) == 2 for row in told.content)
    stream = client.chat.completions.create(
        model=MODEL, messages=ASK, reasoning_effort="none", logprobs=True, top_logprobs=2, stream=True
    )
    parts = [chunk.choices[0].logprobs for chunk in stream]
    streamed = [row for part in parts if part is not None for row in part.content or ()]
    assert [row.model_dump() for row in streamed] == [row.model_dump() for row in told.content]


def test_log_probabilities_of_a_completion(client: OpenAI) -> None:
    prompt = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    told = client.completions.create(model=MODEL, prompt=prompt, logprobs=1).choices[0].logprobs
    assert told is not None
    assert "".join(told.tokens or ()) == "Hello there!"
    assert [list(tops) for tops in told.top_logprobs or ()] == [[name] for name in told.tokens or ()]


def test_penalties_a_bias_and_a_thinking_budget(client: OpenAI) -> None:
    reply = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "think"}],
        presence_penalty=0.1,
        frequency_penalty=0.1,
        logit_bias={"7": -50},
        max_tokens=12,
        extra_body={"thinking_budget": 3},
    )
    assert reply.usage is not None
    assert reply.usage.completion_tokens_details is not None
    assert reply.usage.completion_tokens_details.reasoning_tokens == 3


class Verdict(BaseModel):
    """What the client asks the reply to be."""

    is_sunny: bool
    degrees: int


def test_a_reply_parsed_into_a_model(client: OpenAI) -> None:
    parsed = client.chat.completions.parse(
        model=MODEL,
        messages=[{"role": "user", "content": "the verdict?"}],
        response_format=Verdict,
        reasoning_effort="none",
    )
    assert parsed.choices[0].message.parsed == Verdict(is_sunny=True, degrees=21)


def test_the_models_list(client: OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [MODEL]
    assert client.models.retrieve("crab").id == MODEL


def test_a_wrong_request_raises_bad_request_with_its_field(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as raised:
        client.chat.completions.create(model=MODEL, messages=ASK, top_logprobs=2)
    assert raised.value.param == "top_logprobs"


def test_a_prompt_that_is_too_long_has_the_code_agents_look_for(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as raised:
        client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "word " * 2000}])
    assert raised.value.code == "context_length_exceeded"


def test_an_unknown_model_raises_not_found(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as raised:
        client.chat.completions.create(model="gpt-9", messages=ASK)
    assert raised.value.code == "model_not_found"


def test_a_failed_reply_raises_a_server_error(served: tuple[Served, int], client: OpenAI) -> None:
    served[0].backend.fail_next(CallKind.VERIFY, DeviceFailed("the device said no."))
    with pytest.raises(openai.InternalServerError, match="the device said no"):
        client.chat.completions.create(model=MODEL, messages=ASK)


def test_a_stream_that_fails_raises_with_the_servers_words(
    served: tuple[Served, int], client: OpenAI
) -> None:
    served[0].backend.fail_next(CallKind.VERIFY, DeviceFailed("the device said no."))
    stream = client.chat.completions.create(model=MODEL, messages=ASK, stream=True)
    with pytest.raises(openai.APIError, match="the device said no"):
        list(stream)


def test_a_stream_left_early_frees_its_session(served: tuple[Served, int], client: OpenAI) -> None:
    stream = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": ENDLESS}],
        stream=True,
        extra_body={"ignore_eos": True},
    )
    next(iter(stream))
    stream.close()
    served[0].wait_until(is_idle, within_s=1.0)


def test_a_client_that_runs_out_of_patience_frees_its_session(served: tuple[Served, int]) -> None:
    with connected(served[1]) as client, pytest.raises(openai.APITimeoutError):
        client.with_options(timeout=httpx2.Timeout(0.3)).chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": ENDLESS}], extra_body={"ignore_eos": True}
        )
    served[0].wait_until(is_idle, within_s=1.0)


def test_keepalives_do_not_disturb_the_client(text: ChatText) -> None:
    gate = Gate(CallKind.PREFILL)
    options = ServerOptions(MODEL, keepalive_s=0.02)
    with (
        serving(text, on_call=gate, options=options) as served,
        listening(served.app) as port,
        connected(port) as client,
    ):
        stream = client.chat.completions.create(
            model=MODEL, messages=ASK, stream=True, reasoning_effort="none"
        )
        threading.Timer(0.1, gate.open).start()
        assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == "Hello there!"


def test_the_key_is_sent_as_the_client_sends_it(text: ChatText) -> None:
    with (
        serving(text, options=ServerOptions(MODEL, api_key="secret")) as served,
        listening(served.app) as port,
    ):
        with connected(port, "secret") as client:
            assert client.models.list().data
        with connected(port, "wrong") as client, pytest.raises(openai.AuthenticationError):
            client.models.list()
