"""Anthropic's dialect on the wire: its events, its errors, and the same prompt as any other dialect's."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from nasty import answers
from served import ENDLESS, MODEL, RANDOM, Gate, Served, asking, is_idle, serving

from hermitcrab.core.fake import CallKind
from hermitcrab.errors import DeviceFailed
from hermitcrab.server.options import ServerOptions
from hermitcrab.server.text.chat import ChatText

PATH = "/v1/messages"
ASK: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 50}
CALL = "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>"
TOOL = {"name": "f", "input_schema": {"type": "object", "properties": {"a": {"type": "integer"}}}}


@pytest.fixture(scope="module")
def served(text: ChatText) -> Iterator[Served]:
    with serving(text) as made:
        made.replies["all"] = f"\nhm\n</think>\n\nSo.\n{CALL}"
        made.replies["two"] = f"{CALL}\n{CALL}"
        made.replies["long"] = "\n" + "hm " * 50 + "\n</think>\n\nDone."
        yield made


def message(served: Served, content: object = "hi", **fields: Any) -> httpx.Response:
    return served.ask({**ASK, "messages": [{"role": "user", "content": content}], **fields}, path=PATH)


def refusal(response: httpx.Response, status: int) -> dict[str, Any]:
    """The error of a response that must have this status and the API's shape."""
    assert response.status_code == status, response.text
    body = response.json()
    assert (set(body), body["type"]) == ({"type", "error", "request_id"}, "error")
    assert set(body["error"]) == {"type", "message"}
    assert body["error"]["message"]
    return dict(body["error"])


def stream_events(response: httpx.Response) -> list[dict[str, Any]]:
    """A stream's events; each one's name must be its type."""
    frames = [frame.split("\n") for frame in response.text.removesuffix("\n\n").split("\n\n")]
    parsed = [json.loads(data.removeprefix("data: ")) for _, data in frames]
    assert [name for name, _ in frames] == [f"event: {event['type']}" for event in parsed]
    return parsed


def test_a_message_has_the_apis_shape(served: Served) -> None:
    body = message(served).json()
    assert body.pop("id").startswith("msg_")
    assert body.pop("hermitcrab")["tokens_sha256"]
    usage = body.pop("usage")
    assert body == {
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "content": [{"type": "text", "text": "Hello there!"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
    }
    assert usage["input_tokens"] > 0
    assert usage["cache_read_input_tokens"] == usage["cache_creation_input_tokens"] == 0


def test_a_stream_has_the_apis_events_in_their_order(served: Served) -> None:
    asked = {"thinking": {"type": "adaptive"}, "tools": [TOOL], "max_tokens": 500, "stream": True}
    events = stream_events(message(served, "all", **asked))
    kinds = [event["type"] for event in events]
    squeezed = [kind for at, kind in enumerate(kinds) if at == 0 or kinds[at - 1] != kind]
    block = ["content_block_start", "content_block_delta", "content_block_stop"]
    assert squeezed == ["message_start", *block * 3, "message_delta", "message_stop"]
    starts = [event for event in events if event["type"] == "content_block_start"]
    assert [event["index"] for event in starts] == [0, 1, 2]
    assert [event["content_block"]["type"] for event in starts] == ["thinking", "text", "tool_use"]
    assert starts[2]["content_block"]["input"] == {}
    deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    order = list(dict.fromkeys(delta["type"] for delta in deltas))
    assert order == ["thinking_delta", "signature_delta", "text_delta", "input_json_delta"]
    assert events[-2]["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}


@pytest.mark.parametrize("content", ["hi", "two", "all", RANDOM])
@pytest.mark.parametrize("thinking", ["enabled", "disabled"])
def test_a_stream_adds_up_to_the_whole_message(served: Served, content: str, thinking: str) -> None:
    fields = {"tools": [TOOL], "thinking": {"type": thinking}, "max_tokens": 120, "seed": 5}
    whole = message(served, content, temperature=1.0, **fields).json()
    events = stream_events(message(served, content, temperature=1.0, stream=True, **fields))
    blocks: list[dict[str, Any]] = []
    parts: dict[int, str] = {}
    for event in events:
        if event["type"] == "content_block_start":
            blocks.append(event["content_block"])
        if event["type"] == "content_block_delta":
            delta = event["delta"]
            kind = delta["type"].removesuffix("_delta")
            if kind == "input_json":
                parts[event["index"]] = parts.get(event["index"], "") + delta["partial_json"]
            else:
                blocks[event["index"]][kind] += delta[kind]
    for index, arguments in parts.items():
        blocks[index]["input"] = json.loads(arguments)
    for block in [*blocks, *whole["content"]]:
        block.pop("id", None)
    assert blocks == whole["content"]
    assert events[-2]["usage"] == whole["usage"]
    assert events[-2]["delta"]["stop_reason"] == whole["stop_reason"]
    assert events[-2]["hermitcrab"]["tokens_sha256"] == whole["hermitcrab"]["tokens_sha256"]


def test_a_message_that_is_cut_says_max_tokens(served: Served) -> None:
    body = message(served, max_tokens=1).json()
    assert (body["stop_reason"], body["usage"]["output_tokens"]) == ("max_tokens", 1)


def test_without_a_wish_to_think_the_model_answers_at_once(served: Served) -> None:
    asked = {"messages": ASK["messages"]}
    plain = served.ask({**asked, "enable_thinking": False}).json()["usage"]["prompt_tokens"]
    assert message(served).json()["usage"]["input_tokens"] == plain


def test_thinking_ends_at_its_budget_and_is_counted(served: Served) -> None:
    thinking = {"type": "enabled", "budget_tokens": 6}
    body = message(served, "long", thinking=thinking, max_tokens=12, ignore_eos=True).json()
    assert body["usage"]["output_tokens_details"] == {"thinking_tokens": 6}
    assert [block["type"] for block in body["content"]] == ["thinking", "text"]


def test_a_budget_of_nothing_is_no_thinking(served: Served) -> None:
    body = message(served, thinking={"type": "enabled", "budget_tokens": 0}).json()
    assert body["content"] == [{"type": "text", "text": "Hello there!"}]


SAME_CONVERSATIONS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (
        {"system": "Be kind.", "messages": [{"role": "user", "content": "hi"}]},
        {"messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "hi"}]},
    ),
    (
        {
            "system": [
                {"type": "text", "text": "Be "},
                {"type": "text", "text": "kind.", "cache_control": {}},
            ],
            "messages": [
                {"role": "system", "content": "And brief."},
                {"role": "user", "content": [{"type": "text", "text": "hi"}]},
            ],
        },
        {
            "messages": [
                {"role": "system", "content": "Be kind.\n\nAnd brief."},
                {"role": "user", "content": "hi"},
            ]
        },
    ),
    (
        {
            "tools": [{**TOOL, "description": "adds"}],
            "messages": [
                {"role": "user", "content": "hi"},
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": "hm", "signature": "x"},
                        {"type": "redacted_thinking", "data": "x"},
                        {"type": "text", "text": "So."},
                        {"type": "tool_use", "id": "c1", "name": "f", "input": {"a": 1}},
                    ],
                },
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": "c1", "content": "2"},
                        {
                            "type": "tool_result",
                            "tool_use_id": "c2",
                            "content": [{"type": "text", "text": "3"}],
                            "is_error": True,
                        },
                        {"type": "tool_result", "tool_use_id": "c3"},
                        {"type": "text", "text": "go on"},
                    ],
                },
            ],
        },
        {
            "tools": [
                {
                    "type": "function",
                    "function": {
                        "name": "f",
                        "description": "adds",
                        "parameters": TOOL["input_schema"],
                    },
                }
            ],
            "messages": [
                {"role": "user", "content": "hi"},
                {
                    "role": "assistant",
                    "content": "So.",
                    "reasoning_content": "hm",
                    "tool_calls": [
                        {
                            "id": "c1",
                            "type": "function",
                            "function": {"name": "f", "arguments": '{"a": 1}'},
                        }
                    ],
                },
                {"role": "tool", "tool_call_id": "c1", "content": "2"},
                {"role": "tool", "tool_call_id": "c2", "content": "3"},
                {"role": "tool", "tool_call_id": "c3", "content": ""},
                {"role": "user", "content": "go on"},
            ],
        },
    ),
]


@pytest.mark.parametrize(("mine", "theirs"), SAME_CONVERSATIONS)
def test_a_conversation_is_the_same_prompt_as_in_chat(
    served: Served, mine: dict[str, Any], theirs: dict[str, Any]
) -> None:
    served.ask({**mine, "max_tokens": 1}, path=PATH)
    served.ask({**theirs, "max_tokens": 1, "enable_thinking": False})
    first, second = served.lanes.submitted[-2:]
    assert first.prompt == second.prompt
    counted = served.ask(mine, path=f"{PATH}/count_tokens").json()
    assert counted == {"input_tokens": len(first.prompt)}


def test_tool_choice_none_offers_no_tools(served: Served) -> None:
    served.ask({**ASK, "tools": [TOOL], "tool_choice": {"type": "none"}}, path=PATH)
    served.ask(ASK, path=PATH)
    first, second = served.lanes.submitted[-2:]
    assert first.prompt == second.prompt


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"max_tokens": None}, "max_tokens"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"messages": []}, "messages"),
    ({"messages": [{"role": "tool", "content": "hi"}]}, "role"),
    ({"messages": [{"role": "user", "content": None}]}, "content"),
    ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, "image"),
    ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "text"),
    ({"messages": [{"role": "user", "content": [{"type": "tool_use", "name": "f"}]}]}, "tool_use"),
    (
        {
            "messages": [
                {"role": "user", "content": [{"type": "tool_result", "content": [{"type": "image"}]}]},
            ]
        },
        "image",
    ),
    (
        {
            "messages": [
                {"role": "assistant", "content": [{"type": "tool_use"}]},
                {"role": "user", "content": "hi"},
            ]
        },
        "name",
    ),
    (
        {
            "messages": [
                {"role": "assistant", "content": [{"type": "thinking"}]},
                {"role": "user", "content": "hi"},
            ]
        },
        "thinking",
    ),
    ({"messages": [*ASK["messages"], {"role": "assistant", "content": "He"}]}, "prefill"),
    ({"tool_choice": {"type": "any"}}, "tool_choice"),
    ({"tool_choice": {"type": "tool", "name": "f"}}, "tool_choice"),
    ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "web_search_20250305"),
    ({"tools": [TOOL, TOOL]}, "tools"),
    ({"thinking": {"type": "hard"}}, "thinking"),
    ({"thinking": {"type": "enabled", "budget_tokens": -1}}, "budget_tokens"),
    ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format"),
    ({"output_config": {"format": {"type": "json_schema", "schema": {"type": "crab"}}}}, "output_config"),
    ({"output_config": {"effort": "lots"}}, "lots"),
    ({"output_format": {}}, "output_format"),
    ({"mcp_servers": [{"url": "x"}]}, "mcp_servers"),
    ({"container": "x"}, "container"),
    ({"temperature": -1}, "temperature"),
    ({"stop_sequences": [""]}, "stop_sequences"),
    ({"logprobs": True}, "logprobs"),
]


@pytest.mark.parametrize(("fields", "word"), REFUSED, ids=str)
def test_what_is_wrong_or_not_supported_is_refused_by_name(
    served: Served, fields: dict[str, Any], word: str
) -> None:
    error = refusal(served.ask({**ASK, **fields}, path=PATH), 400)
    assert error["type"] == "invalid_request_error"
    assert word in error["message"]


def test_an_effort_reaches_the_template(served: Served) -> None:
    count = f"{PATH}/count_tokens"
    plain = served.ask(ASK, path=count).json()["input_tokens"]
    effort = served.ask({**ASK, "output_config": {"effort": "low"}}, path=count).json()["input_tokens"]
    assert effort > plain


FULL = {
    "model": MODEL,
    "max_tokens": 3,
    "system": [{"type": "text", "text": "Be kind."}],
    "messages": [
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "x"},
                {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "2"}]},
    ],
    "tools": [TOOL],
    "tool_choice": {"type": "auto"},
    "thinking": {"type": "enabled", "budget_tokens": 1024},
    "stop_sequences": ["x"],
    "temperature": 0.5,
    "top_p": 0.9,
    "top_k": 5,
    "stream": False,
    "metadata": {"user_id": "u"},
}


@pytest.mark.parametrize("path", [PATH, f"{PATH}/count_tokens"])
def test_no_body_makes_the_server_stumble(served: Served, path: str) -> None:
    for body, response in answers(served.app, path, FULL):
        if response.status_code != 200:
            assert response.status_code in (400, 404), (body[:300], response.text)
            refusal(response, response.status_code)
    served.wait_until(is_idle)
    assert message(served).json()["content"][0]["text"] == "Hello there!"


@pytest.mark.parametrize(
    ("send", "status", "kind"),
    [
        (("GET", PATH), 405, "invalid_request_error"),
        (("POST", f"{PATH}/nothing"), 404, "not_found_error"),
        (("GET", f"{PATH}/batches"), 404, "not_found_error"),
    ],
)
def test_a_wrong_route_below_messages_is_answered_in_its_dialect(
    served: Served, send: tuple[str, str], status: int, kind: str
) -> None:
    assert refusal(served.send(*send), status)["type"] == kind


def test_a_missing_key_and_a_huge_body_are_answered_in_the_dialect(text: ChatText) -> None:
    with serving(text, options=ServerOptions(MODEL, api_key="secret", max_body_bytes=200)) as served:
        assert refusal(served.ask(ASK, path=PATH), 401)["type"] == "authentication_error"
        keyed = {"headers": {"x-api-key": "secret"}}
        assert served.ask(ASK, path=PATH, **keyed).status_code == 200
        huge = {**ASK, "pad": "x" * 200}
        assert refusal(served.ask(huge, path=PATH, **keyed), 413)["type"] == "request_too_large"


def test_a_full_queue_and_an_ending_server_say_when_to_come_back(text: ChatText) -> None:
    gate = Gate(CallKind.PREFILL)
    with serving(text, session_rows=(256,), queue_limit=1, on_call=gate) as served:
        with asking(served, 1):
            assert gate.is_reached.wait(5)
            full = message(served)
            assert refusal(full, 429)["type"] == "rate_limit_error"
            gate.open()
        served.host.close(drain_s=0.0)
        ending = message(served)
        assert refusal(ending, 529)["type"] == "overloaded_error"
    assert all(int(response.headers["retry-after"]) > 0 for response in (full, ending))


def test_a_stream_that_fails_ends_with_the_apis_error_event(served: Served) -> None:
    served.backend.fail_next(CallKind.VERIFY, DeviceFailed("the device said no."))
    *_, last = stream_events(message(served, ENDLESS, stream=True, ignore_eos=True))
    assert last == {
        "type": "error",
        "error": {"type": "api_error", "message": "the device said no."},
        "request_id": None,
    }
