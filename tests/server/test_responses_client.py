"""The Responses API through the official openai Python client, against a real socket."""

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import openai
import pytest
from openai import OpenAI
from openai.types.responses import FunctionToolParam, Response, ResponseFunctionToolCall
from pydantic import BaseModel
from served import ENDLESS, MODEL, Served, SlowRounds, is_idle, listening, serving

from hermitcrab.core.fake import CallKind
from hermitcrab.errors import DeviceFailed
from hermitcrab.server.text.chat import ChatText

pytestmark = pytest.mark.clients

TOOL: FunctionToolParam = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather in a city.",
    "strict": False,
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    },
}
CALL = (
    "<tool_call>\n<function=get_weather>\n<parameter=city>\n{}\n</parameter>\n"
    "<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>"
)
PLAIN: Any = {"model": MODEL, "reasoning": {"effort": "none"}}


@pytest.fixture(scope="module")
def served(text: ChatText) -> Iterator[tuple[Served, int]]:
    with serving(text, on_call=SlowRounds()) as made, listening(made.app) as port:
        made.replies["think"] = "\nlet me see\n</think>\n\nDone."
        made.replies["weather?"] = f"Looking.\n\n{CALL.format('Paris')}\n{CALL.format('Rome')}"
        made.replies["It is sunny."] = "Sunny!"
        made.replies["the verdict?"] = '{"is_sunny": true, "degrees": 21}'
        made.replies["and then?"] = "That was all."
        yield made, port


@pytest.fixture(scope="module")
def client(served: tuple[Served, int]) -> Iterator[OpenAI]:
    address = f"http://127.0.0.1:{served[1]}/v1"
    with OpenAI(base_url=address, api_key="none", max_retries=0, timeout=10) as made:
        yield made


def calls_of(response: Response) -> list[ResponseFunctionToolCall]:
    return [item for item in response.output if item.type == "function_call"]


def test_a_whole_response(client: OpenAI) -> None:
    response = client.responses.create(input="hi", **PLAIN)
    assert response.output_text == "Hello there!"
    assert response.status == "completed"
    assert response.usage is not None
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens


def test_a_streamed_response_adds_up_in_the_clients_own_helper(client: OpenAI) -> None:
    with client.responses.stream(input="hi", **PLAIN) as stream:
        said = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        final = stream.get_final_response()
    assert said == final.output_text == "Hello there!"
    assert final.status == "completed"


def test_thinking_is_an_item_of_its_own(client: OpenAI) -> None:
    with client.responses.stream(model=MODEL, input="think") as stream:
        thought = "".join(event.delta for event in stream if event.type == "response.reasoning_text.delta")
        final = stream.get_final_response()
    thinking, answer = final.output
    assert thinking.type == "reasoning"
    assert [part.text for part in thinking.content or []] == [thought] == ["let me see"]
    assert answer.type == "message"
    assert final.output_text == "Done."
    assert final.usage is not None
    assert final.usage.output_tokens_details.reasoning_tokens > 0


def test_streamed_calls_add_up_in_the_clients_own_helper(client: OpenAI) -> None:
    with client.responses.stream(input="weather?", tools=[TOOL], **PLAIN) as stream:
        done = [event.arguments for event in stream if event.type == "response.function_call_arguments.done"]
        final = stream.get_final_response()
    assert [json.loads(arguments)["city"] for arguments in done] == ["Paris", "Rome"]
    assert [json.loads(call.arguments) for call in calls_of(final)] == [
        {"city": "Paris", "days": 3},
        {"city": "Rome", "days": 3},
    ]
    assert final.output_text == "Looking."


def results(response: Response) -> list[Any]:
    return [
        {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
        for call in calls_of(response)
    ]


SAID: Any = {"role": "user", "content": "It is sunny."}


def test_a_tool_loop_goes_round_with_the_items_sent_back(client: OpenAI) -> None:
    first = client.responses.create(input="weather?", tools=[TOOL], **PLAIN)
    assert len(calls_of(first)) == 2
    items: list[Any] = [{"role": "user", "content": "weather?"}, *first.output, *results(first), SAID]
    again = client.responses.create(input=items, tools=[TOOL], **PLAIN)
    assert again.output_text == "Sunny!"


def test_a_tool_loop_goes_round_from_a_kept_response(served: tuple[Served, int], client: OpenAI) -> None:
    first = client.responses.create(input="weather?", tools=[TOOL], **PLAIN)
    items: list[Any] = [{"role": "user", "content": "weather?"}, *first.output, *results(first), SAID]
    client.responses.create(input=items, tools=[TOOL], **PLAIN)
    kept = client.responses.create(
        previous_response_id=first.id, input=[*results(first), SAID], tools=[TOOL], **PLAIN
    )
    assert kept.output_text == "Sunny!"
    assert kept.previous_response_id == first.id
    sent_back, gone_on = served[0].lanes.submitted[-2:]
    assert sent_back.prompt == gone_on.prompt


def test_a_streamed_response_can_be_gone_on_from(client: OpenAI) -> None:
    with client.responses.stream(input="hi", **PLAIN) as stream:
        first = stream.get_final_response()
    second = client.responses.create(input="and then?", previous_response_id=first.id, **PLAIN)
    third = client.responses.create(input="hi", previous_response_id=second.id, **PLAIN)
    assert (second.output_text, third.output_text) == ("That was all.", "Hello there!")
    assert first.usage is not None
    assert second.usage is not None
    assert third.usage is not None
    assert first.usage.input_tokens < second.usage.input_tokens < third.usage.input_tokens


def test_an_unknown_response_raises_not_found(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as raised:
        client.responses.create(input="hi", previous_response_id="resp_nothing", **PLAIN)
    assert raised.value.code == "previous_response_not_found"
    assert raised.value.param == "previous_response_id"


class Verdict(BaseModel):
    """What the client asks the response to be."""

    is_sunny: bool
    degrees: int


def test_a_response_parsed_into_a_model(client: OpenAI) -> None:
    response = client.responses.parse(input="the verdict?", text_format=Verdict, **PLAIN)
    assert response.output_parsed == Verdict(is_sunny=True, degrees=21)


def test_a_stored_response_can_be_read_again_until_it_is_deleted(client: OpenAI) -> None:
    made = client.responses.create(input="hi", **PLAIN)
    with client.responses.stream(input="hi", **PLAIN) as stream:
        streamed = stream.get_final_response()
    for response in (made, streamed):
        kept = client.responses.retrieve(response.id)
        assert kept.output_text == "Hello there!"
        assert kept.usage == response.usage
        client.responses.delete(response.id)
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(response.id)
        with pytest.raises(openai.NotFoundError):
            client.responses.create(input="and then?", previous_response_id=response.id, **PLAIN)


def test_what_went_on_from_a_deleted_response_can_still_be_gone_on_from(client: OpenAI) -> None:
    first = client.responses.create(input="hi", **PLAIN)
    second = client.responses.create(input="and then?", previous_response_id=first.id, **PLAIN)
    client.responses.delete(first.id)
    third = client.responses.create(input="hi", previous_response_id=second.id, **PLAIN)
    assert third.output_text == "Hello there!"


def test_a_response_that_is_not_to_be_stored_cannot_be_gone_on_from(client: OpenAI) -> None:
    first = client.responses.create(input="hi", store=False, **PLAIN)
    with pytest.raises(openai.NotFoundError):
        client.responses.create(input="hi", previous_response_id=first.id, **PLAIN)


def test_a_response_that_is_cut_is_incomplete(client: OpenAI) -> None:
    response = client.responses.create(input="hi", max_output_tokens=1, **PLAIN)
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"


def test_a_failed_response_raises_a_server_error(served: tuple[Served, int], client: OpenAI) -> None:
    served[0].backend.fail_next(CallKind.VERIFY, DeviceFailed("the device said no."))
    with pytest.raises(openai.InternalServerError, match="the device said no"):
        client.responses.create(input="hi", **PLAIN)


def test_a_stream_that_fails_ends_with_the_failed_response(
    served: tuple[Served, int], client: OpenAI
) -> None:
    served[0].backend.fail_next(CallKind.VERIFY, DeviceFailed("the device said no."))
    *_, last = client.responses.create(input="hi", stream=True, **PLAIN)
    assert last.type == "response.failed"
    assert last.response.error is not None
    assert last.response.error.message == "the device said no."


def test_a_stream_left_early_frees_its_session(served: tuple[Served, int], client: OpenAI) -> None:
    stream = client.responses.create(input=ENDLESS, stream=True, extra_body={"ignore_eos": True}, **PLAIN)
    next(iter(stream))
    stream.close()
    served[0].wait_until(is_idle, within_s=1.0)


def test_a_client_that_runs_out_of_patience_frees_its_session(
    served: tuple[Served, int], client: OpenAI
) -> None:
    with pytest.raises(openai.APITimeoutError):
        client.with_options(timeout=httpx2.Timeout(0.3)).responses.create(
            input=ENDLESS, extra_body={"ignore_eos": True}, **PLAIN
        )
    served[0].wait_until(is_idle, within_s=1.0)


def test_a_long_prompt_has_the_code_agents_look_for(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as raised:
        client.responses.create(input="word " * 2000, **PLAIN)
    assert raised.value.code == "context_length_exceeded"
