"""The Responses API on the wire: its events, what it keeps, and the same prompt as any other dialect's."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from nasty import answers
from served import MODEL, RANDOM, Served, events, is_idle, serving

from hermitcrab.core.fake import CallKind
from hermitcrab.errors import DeviceFailed, UnknownResponse
from hermitcrab.server.kept import NOTHING, KeptResponses
from hermitcrab.server.text.chat import ChatText
from hermitcrab.server.wire.responses import read_output

PATH = "/v1/responses"
PLAIN: dict[str, Any] = {"reasoning": {"effort": "none"}}
CALL = "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>"
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
TOOL = {"type": "function", "name": "f", "parameters": SCHEMA}


@pytest.fixture(scope="module")
def served(text: ChatText) -> Iterator[Served]:
    with serving(text) as made:
        made.replies["all"] = f"\nhm\n</think>\n\nSo.\n{CALL}"
        made.replies["two"] = f"{CALL}\n{CALL}"
        yield made


def respond(served: Served, given: object = "hi", **fields: Any) -> httpx.Response:
    return served.ask({"input": given, **fields}, path=PATH)


def refusal(response: httpx.Response, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.text
    body = response.json()
    assert set(body["error"]) == {"message", "type", "param", "code"}
    return dict(body["error"])


def test_a_response_has_the_apis_shape(served: Served) -> None:
    body = respond(served, **PLAIN, metadata={"a": "b"}, instructions="Be kind.").json()
    assert body["id"].startswith("resp_")
    assert (body["object"], body["status"], body["model"]) == ("response", "completed", MODEL)
    assert body["error"] is body["incomplete_details"] is None
    assert (body["instructions"], body["metadata"]) == ("Be kind.", {"a": "b"})
    (item,) = body["output"]
    assert item.pop("id").startswith("msg_")
    assert item == {
        "type": "message",
        "status": "completed",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "Hello there!", "annotations": [], "logprobs": []}],
    }
    assert body["hermitcrab"]["tokens_sha256"]


def test_a_stream_has_the_apis_events_in_their_order(served: Served) -> None:
    parsed = events(respond(served, "all", tools=[TOOL], stream=True).text)
    kinds = [event["type"].removeprefix("response.") for event in parsed]
    squeezed = [kind for at, kind in enumerate(kinds) if at == 0 or kinds[at - 1] != kind]
    opened, closed = ["output_item.added", "content_part.added"], ["content_part.done", "output_item.done"]
    assert squeezed == [
        *["created", "in_progress"],
        *[*opened, "reasoning_text.delta", "reasoning_text.done", *closed],
        *[*opened, "output_text.delta", "output_text.done", *closed],
        *["output_item.added", "function_call_arguments.delta", "function_call_arguments.done"],
        *["output_item.done", "completed"],
    ]
    assert [event["sequence_number"] for event in parsed] == list(range(len(parsed)))
    names = [event["output_index"] for event in parsed if "output_index" in event]
    assert names == sorted(names)
    assert set(names) == {0, 1, 2}


def test_events_carry_their_type_as_a_name(served: Served) -> None:
    frames = respond(served, stream=True, **PLAIN).text.removesuffix("\n\n").split("\n\n")
    assert frames.pop() == "data: [DONE]"
    assert all(frame.startswith("event: response.") for frame in frames)


@pytest.mark.parametrize("given", ["hi", "two", "all", RANDOM])
@pytest.mark.parametrize("effort", ["none", "low"])
def test_a_stream_adds_up_to_the_whole_response(served: Served, given: str, effort: str) -> None:
    fields = {"tools": [TOOL], "reasoning": {"effort": effort}, "max_output_tokens": 120, "seed": 5}
    whole = respond(served, given, temperature=1.0, **fields).json()
    parsed = events(respond(served, given, temperature=1.0, stream=True, **fields).text)
    last = parsed[-1]["response"]
    done = [event["item"] for event in parsed if event["type"] == "response.output_item.done"]
    assert done == last["output"]
    texts = [
        (event["output_index"], event["delta"]) for event in parsed if event["type"].endswith("_text.delta")
    ]
    for index, item in enumerate(last["output"]):
        if item["type"] != "function_call":
            assert "".join(delta for at, delta in texts if at == index) == item["content"][0]["text"]
    for body in (whole, last):
        for item in body["output"]:
            item.pop("id")
            item.pop("call_id", None)
    assert last["output"] == whole["output"]
    assert (last["status"], last["usage"]) == (whole["status"], whole["usage"])
    assert last["hermitcrab"]["tokens_sha256"] == whole["hermitcrab"]["tokens_sha256"]


def test_an_item_that_is_cut_off_says_so(served: Served) -> None:
    body = respond(served, max_output_tokens=2, **PLAIN).json()
    assert (body["status"], body["output"][-1]["status"]) == ("incomplete", "incomplete")


def test_a_response_that_fails_keeps_what_was_said(served: Served) -> None:
    first = respond(served, stream=True, max_output_tokens=1, **PLAIN)
    served.backend.fail_next(CallKind.VERIFY, DeviceFailed("the device said no."))
    last = events(respond(served, stream=True, **PLAIN).text)[-1]
    assert last["type"] == "response.failed"
    assert last["response"]["error"] == {"code": "server_error", "message": "the device said no."}
    said = events(first.text)[-1]["response"]["output"][0]["content"]
    assert last["response"]["output"][0]["content"] == said
    assert last["response"]["output"][0]["status"] == "incomplete"
    refusal(respond(served, previous_response_id=last["response"]["id"]), 404)


SAME_CONVERSATIONS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"input": "hi"}, {"messages": [{"role": "user", "content": "hi"}]}),
    (
        {"input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}]},
        {"messages": [{"role": "user", "content": "hi"}]},
    ),
    (
        {
            "instructions": "Be kind.",
            "input": [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "hi"}],
        },
        {
            "messages": [
                {"role": "system", "content": "Be kind.\n\nBe brief."},
                {"role": "user", "content": "hi"},
            ]
        },
    ),
    (
        {
            "tools": [TOOL],
            "input": [
                {"role": "user", "content": "hi"},
                {
                    "type": "reasoning",
                    "id": "r",
                    "summary": [],
                    "content": [{"type": "reasoning_text", "text": "hm"}],
                },
                {"type": "reasoning", "summary": [], "encrypted_content": "x"},
                {
                    "type": "message",
                    "role": "assistant",
                    "content": [{"type": "output_text", "text": "So.", "annotations": []}],
                },
                {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"a": 1}'},
                {"type": "function_call", "call_id": "c2", "name": "f", "arguments": "{"},
                {"type": "function_call_output", "call_id": "c1", "output": "2"},
                {
                    "type": "function_call_output",
                    "call_id": "c2",
                    "output": [{"type": "input_text", "text": "3"}],
                },
                {"role": "assistant", "content": "Well."},
                {"role": "assistant", "content": "Then."},
                {"role": "user", "content": "go on"},
            ],
        },
        {
            "tools": [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}],
            "messages": [
                {"role": "user", "content": "hi"},
                {
                    "role": "assistant",
                    "content": "So.",
                    "reasoning_content": "hm",
                    "tool_calls": [
                        {"id": "c1", "function": {"name": "f", "arguments": '{"a": 1}'}},
                        {"id": "c2", "function": {"name": "f", "arguments": "{"}},
                    ],
                },
                {"role": "tool", "tool_call_id": "c1", "content": "2"},
                {"role": "tool", "tool_call_id": "c2", "content": "3"},
                {"role": "assistant", "content": "Well."},
                {"role": "assistant", "content": "Then."},
                {"role": "user", "content": "go on"},
            ],
        },
    ),
]


@pytest.mark.parametrize(("mine", "theirs"), SAME_CONVERSATIONS)
def test_a_conversation_is_the_same_prompt_as_in_chat(
    served: Served, mine: dict[str, Any], theirs: dict[str, Any]
) -> None:
    assert served.ask({**mine, "max_output_tokens": 1}, path=PATH).status_code == 200
    assert served.ask({**theirs, "max_tokens": 1}).status_code == 200
    first, second = served.lanes.submitted[-2:]
    assert first.prompt == second.prompt


def test_instructions_are_not_carried_over(served: Served) -> None:
    first = respond(served, instructions="Be kind.", **PLAIN).json()
    respond(served, previous_response_id=first["id"], **PLAIN)
    respond(
        served,
        [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "Hello there!"},
            {"role": "user", "content": "hi"},
        ],
        **PLAIN,
    )
    gone_on, sent_back = served.lanes.submitted[-2:]
    assert gone_on.prompt == sent_back.prompt


def test_tool_choice_none_offers_no_tools(served: Served) -> None:
    respond(served, tools=[TOOL], tool_choice="none", **PLAIN)
    respond(served, **PLAIN)
    first, second = served.lanes.submitted[-2:]
    assert first.prompt == second.prompt


ITEMS = read_output([{"role": "user", "content": "hi"}])


def test_the_newest_responses_are_kept_up_to_a_number() -> None:
    kept = KeptResponses(max_responses=2)
    for name in ("a", "b", "c"):
        kept.keep(name, NOTHING, ITEMS, {}, size_bytes=1)
    with pytest.raises(UnknownResponse):
        kept.get("a")
    assert kept.get("b").items == kept.get("c").items == ITEMS


def test_a_response_in_use_stays_longer() -> None:
    kept = KeptResponses(max_responses=2)
    kept.keep("a", NOTHING, ITEMS, {}, size_bytes=1)
    kept.keep("b", kept.get("a"), ITEMS, {}, size_bytes=1)
    kept.keep("c", kept.get("a"), ITEMS, {}, size_bytes=1)
    assert kept.get("a").items == ITEMS
    assert kept.get("c").items == ITEMS * 2
    with pytest.raises(UnknownResponse):
        kept.get("b")


def test_responses_are_kept_up_to_a_size_their_history_included() -> None:
    kept = KeptResponses(max_bytes=100)
    kept.keep("a", NOTHING, ITEMS, {}, size_bytes=40)
    kept.keep("b", kept.get("a"), ITEMS, {}, size_bytes=20)
    assert kept.get("a").size_bytes == 40
    kept.keep("c", kept.get("b"), ITEMS, {}, size_bytes=20)
    assert kept.get("c").size_bytes == 80
    for name in ("a", "b"):
        with pytest.raises(UnknownResponse):
            kept.get(name)
    kept.keep("d", NOTHING, ITEMS, {}, size_bytes=101)
    with pytest.raises(UnknownResponse):
        kept.get("d")


def test_a_response_that_is_deleted_leaves_its_place() -> None:
    kept = KeptResponses(max_bytes=100)
    kept.keep("a", NOTHING, ITEMS, {"id": "a"}, size_bytes=60)
    assert kept.get("a").response == {"id": "a"}
    kept.delete("a")
    with pytest.raises(UnknownResponse):
        kept.delete("a")
    kept.keep("b", NOTHING, ITEMS, {}, size_bytes=40)
    kept.keep("c", NOTHING, ITEMS, {}, size_bytes=60)
    assert kept.get("b").items == ITEMS


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"input": None}, "input"),
    ({"input": []}, "input"),
    ({"input": [{"role": "king", "content": "hi"}]}, "role"),
    ({"input": [{"role": "user", "content": None}]}, "content"),
    ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "input_image"),
    ({"input": [{"type": "computer_call_output"}]}, "computer_call_output"),
    ({"input": [{"type": "item_reference", "id": "x"}]}, "item_reference"),
    ({"input": [{"type": "function_call", "name": "f"}]}, "call_id"),
    ({"max_output_tokens": 0}, "max_output_tokens"),
    ({"tools": [{"type": "web_search"}]}, "web_search"),
    ({"tools": [{"type": "function"}]}, "name"),
    ({"tools": [TOOL, TOOL]}, "tools"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"text": {"format": {"type": "json_schema", "name": "x"}}}, "text.format"),
    ({"text": {"format": {"type": "json_schema", "schema": {"type": "crab"}}}}, "text.format"),
    ({"text": {"format": {"type": "yaml"}}}, "text.format"),
    ({"truncation": "auto"}, "truncation"),
    ({"background": True}, "background"),
    ({"conversation": "conv_1"}, "conversation"),
    ({"prompt": {"id": "p"}}, "prompt"),
    ({"max_tool_calls": 3}, "max_tool_calls"),
    ({"include": ["message.output_text.logprobs"]}, "logprobs"),
    ({"reasoning": {"effort": "lots"}}, "lots"),
    ({"top_logprobs": 2}, "top_logprobs"),
    ({"metadata": {"a": 5}}, "metadata"),
    ({"temperature": -1}, "temperature"),
]


@pytest.mark.parametrize(("fields", "word"), REFUSED, ids=str)
def test_what_is_wrong_or_not_supported_is_refused_by_name(
    served: Served, fields: dict[str, Any], word: str
) -> None:
    error = refusal(served.ask({"input": "hi", **fields}, path=PATH), 400)
    assert word in error["message"]
    assert error["param"]


def test_what_asks_for_nothing_is_fine(served: Served) -> None:
    harmless = {
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "truncation": "disabled",
        "background": False,
        "include": ["reasoning.encrypted_content"],
        "text": {"format": {"type": "text"}, "verbosity": "low"},
        "reasoning": {"effort": "none", "summary": "auto"},
        "service_tier": "auto",
        "prompt_cache_key": "x",
    }
    assert respond(served, **harmless).status_code == 200


FULL = {
    "model": MODEL,
    "instructions": "Be kind.",
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "hm"}]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "2"},
    ],
    "tools": [TOOL],
    "tool_choice": "auto",
    "reasoning": {"effort": "low"},
    "text": {"format": {"type": "text"}},
    "max_output_tokens": 3,
    "store": False,
    "stream": False,
    "temperature": 0.5,
    "include": [],
    "metadata": {"a": "b"},
}


def test_no_body_makes_the_server_stumble(served: Served) -> None:
    for body, response in answers(served.app, PATH, FULL):
        if response.status_code != 200:
            assert response.status_code in (400, 404), (body[:300], response.text)
            refusal(response, response.status_code)
    served.wait_until(is_idle)
    assert respond(served, **PLAIN).json()["output"][0]["content"][0]["text"] == "Hello there!"
