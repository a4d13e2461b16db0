"""The official anthropic Python client against a real socket: what it parses is what was said."""

from collections.abc import Iterator

import anthropic
import httpx2
import pytest
from anthropic import Anthropic
from anthropic.types import MessageParam, ToolParam
from pydantic import BaseModel
from served import ENDLESS, MODEL, Gate, Served, SlowRounds, is_idle, listening, serving

from hermitcrab.core.fake import CallKind
from hermitcrab.errors import DeviceFailed
from hermitcrab.server.options import ServerOptions
from hermitcrab.server.text.chat import ChatText

pytestmark = pytest.mark.clients

ASK: list[MessageParam] = [{"role": "user", "content": "hi"}]
TOOL: ToolParam = {
    "name": "get_weather",
    "description": "The weather in a city.",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
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
def client(served: tuple[Served, int]) -> Iterator[Anthropic]:
    with connected(served[1]) as made:
        yield made


def connected(port: int, key: str = "none") -> Anthropic:
    """A client that does not try again, so that an error is seen at once."""
    return Anthropic(base_url=f"http://127.0.0.1:{port}", api_key=key, max_retries=0, timeout=10)


def test_a_whole_message(client: Anthropic) -> None:
    message = client.messages.create(model=MODEL, messages=ASK, max_tokens=50)
    assert [block.text for block in message.content if block.type == "text"] == ["Hello there!"]
    assert message.stop_reason == "end_turn"
    assert message.usage.output_tokens > 0
    count = client.messages.count_tokens(model=MODEL, messages=ASK)
    assert count.input_tokens == message.usage.input_tokens


def test_a_streamed_message_adds_up_to_the_whole_one(client: Anthropic) -> None:
    whole = client.messages.create(model=MODEL, messages=ASK, max_tokens=50)
    with client.messages.stream(model=MODEL, messages=ASK, max_tokens=50) as stream:
        assert "".join(stream.text_stream) == "Hello there!"
        final = stream.get_final_message()
    assert [block.to_dict() for block in final.content] == [block.to_dict() for block in whole.content]
    assert (final.stop_reason, final.usage.output_tokens) == ("end_turn", whole.usage.output_tokens)
    assert final.usage.input_tokens == whole.usage.input_tokens


def test_thinking_comes_as_a_block_of_its_own_when_it_is_asked_for(client: Anthropic) -> None:
    with client.messages.stream(
        model=MODEL,
        messages=[{"role": "user", "content": "think"}],
        max_tokens=2000,
        thinking={"type": "enabled", "budget_tokens": 1024},
    ) as stream:
        thought = "".join(event.thinking for event in stream if event.type == "thinking")
        final = stream.get_final_message()
    thinking, answer = final.content
    assert thinking.type == "thinking"
    assert thinking.thinking == thought == "let me see"
    assert thinking.signature
    assert answer.type == "text"
    assert answer.text == "Done."


def test_tool_calls_are_blocks_with_their_input(client: Anthropic) -> None:
    asked: list[MessageParam] = [{"role": "user", "content": "weather?"}]
    message = client.messages.create(model=MODEL, messages=asked, max_tokens=500, tools=[TOOL])
    assert [block.type for block in message.content] == ["text", "tool_use", "tool_use"]
    calls = [block for block in message.content if block.type == "tool_use"]
    assert [call.input for call in calls] == [{"city": "Paris", "days": 3}, {"city": "Rome", "days": 3}]
    assert len({call.id for call in calls}) == 2
    assert message.stop_reason == "tool_use"


def test_streamed_tool_calls_add_up_in_the_clients_own_helper(client: Anthropic) -> None:
    asked: list[MessageParam] = [{"role": "user", "content": "weather?"}]
    with client.messages.stream(model=MODEL, messages=asked, max_tokens=500, tools=[TOOL]) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_message()
    assert "input_json" in kinds
    calls = [block for block in final.content if block.type == "tool_use"]
    assert [call.input for call in calls] == [{"city": "Paris", "days": 3}, {"city": "Rome", "days": 3}]
    assert final.stop_reason == "tool_use"


def test_a_tool_loop_goes_round(client: Anthropic) -> None:
    messages: list[MessageParam] = [{"role": "user", "content": "weather?"}]
    reply = client.messages.create(model=MODEL, messages=messages, max_tokens=500, tools=[TOOL])
    messages.append({"role": "assistant", "content": reply.content})
    results = [
        {"type": "tool_result", "tool_use_id": block.id, "content": "sunny"}
        for block in reply.content
        if block.type == "tool_use"
    ]
    assert len(results) == 2
    text = {"type": "text", "text": "It is sunny."}
    messages.append({"role": "user", "content": [*results, text]})  # type: ignore[typeddict-item]
    reply = client.messages.create(model=MODEL, messages=messages, max_tokens=500, tools=[TOOL])
    assert [block.text for block in reply.content if block.type == "text"] == ["Sunny!"]
    assert reply.stop_reason == "end_turn"


class Verdict(BaseModel):
    """What the client asks the message to be."""

    is_sunny: bool
    degrees: int


def test_a_message_parsed_into_a_model(client: Anthropic) -> None:
    message = client.messages.parse(
        model=MODEL,
        max_tokens=100,
        messages=[{"role": "user", "content": "the verdict?"}],
        output_format=Verdict,
    )
    assert message.parsed_output == Verdict(is_sunny=True, degrees=21)


def test_a_stop_sequence_is_named(client: Anthropic) -> None:
    message = client.messages.create(
        model=MODEL, messages=ASK, max_tokens=50, stop_sequences=["never", " there"]
    )
    assert [block.text for block in message.content if block.type == "text"] == ["Hello"]
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", " there")


def test_a_prompt_that_is_too_long_says_so_as_coding_agents_expect(client: Anthropic) -> None:
    long: list[MessageParam] = [{"role": "user", "content": "word " * 2000}]
    with pytest.raises(anthropic.BadRequestError, match=r"prompt is too long: \d+ tokens > \d+ maximum"):
        client.messages.create(model=MODEL, messages=long, max_tokens=5)


def test_an_unknown_model_raises_not_found(client: Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError, match="claude-9"):
        client.messages.create(model="claude-9", messages=ASK, max_tokens=5)


def test_a_failed_message_raises_a_server_error(served: tuple[Served, int], client: Anthropic) -> None:
    served[0].backend.fail_next(CallKind.VERIFY, DeviceFailed("the device said no."))
    with pytest.raises(anthropic.InternalServerError, match="the device said no"):
        client.messages.create(model=MODEL, messages=ASK, max_tokens=50)


def test_a_stream_that_fails_raises_with_the_servers_words(
    served: tuple[Served, int], client: Anthropic
) -> None:
    served[0].backend.fail_next(CallKind.VERIFY, DeviceFailed("the device said no."))
    stream = client.messages.create(model=MODEL, messages=ASK, max_tokens=50, stream=True)
    with pytest.raises(anthropic.APIError, match="the device said no"):
        list(stream)


def test_a_stream_left_early_frees_its_session(served: tuple[Served, int], client: Anthropic) -> None:
    stream = client.messages.create(
        model=MODEL,
        messages=[{"role": "user", "content": ENDLESS}],
        max_tokens=4000,
        stream=True,
        extra_body={"ignore_eos": True},
    )
    next(iter(stream))
    stream.close()
    served[0].wait_until(is_idle, within_s=1.0)


def test_a_client_that_runs_out_of_patience_frees_its_session(
    served: tuple[Served, int], client: Anthropic
) -> None:
    with pytest.raises(anthropic.APITimeoutError):
        client.with_options(timeout=httpx2.Timeout(0.3)).messages.create(
            model=MODEL,
            messages=[{"role": "user", "content": ENDLESS}],
            max_tokens=4000,
            extra_body={"ignore_eos": True},
        )
    served[0].wait_until(is_idle, within_s=1.0)


def test_pings_keep_a_waiting_stream_alive(text: ChatText) -> None:
    gate = Gate(CallKind.PREFILL)
    options = ServerOptions(MODEL, keepalive_s=0.02)
    with (
        serving(text, on_call=gate, options=options) as served,
        listening(served.app) as port,
        connected(port) as client,
        client.messages.with_streaming_response.create(
            model=MODEL, messages=ASK, max_tokens=50, stream=True
        ) as response,
    ):
        lines = []
        for line in response.iter_lines():
            lines.append(line)
            if line == "event: ping":
                gate.open()
        assert "event: ping" in lines
        assert lines.index("event: message_start") < lines.index("event: ping")
        assert lines[-4:-1] == ["", "event: message_stop", 'data: {"type":"message_stop"}']


@pytest.mark.parametrize("how", ["api_key", "auth_token"])
def test_the_key_is_taken_under_either_header(text: ChatText, how: str) -> None:
    with (
        serving(text, options=ServerOptions(MODEL, api_key="secret")) as served,
        listening(served.app) as port,
    ):
        address = f"http://127.0.0.1:{port}"
        right, wrong = {how: "secret"}, {how: "wrong"}
        with Anthropic(base_url=address, max_retries=0, **right) as client:  # type: ignore[arg-type]
            assert client.messages.create(model=MODEL, messages=ASK, max_tokens=5).id
        with (
            Anthropic(base_url=address, max_retries=0, **wrong) as client,  # type: ignore[arg-type]
            pytest.raises(anthropic.AuthenticationError),
        ):
            client.messages.create(model=MODEL, messages=ASK, max_tokens=5)
