"""Replies that must have a form: JSON, a regular expression, one of some texts; whole and streamed alike."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from served import RANDOM, Served, events, serving

from hermitcrab.server.text.chat import ChatText

PLAIN = {"enable_thinking": False}
ANSWER = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}, "count": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["ok", "count"],
    "additionalProperties": False,
}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": ANSWER}}
TURN = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"


@pytest.fixture(scope="module")
def served(text: ChatText) -> Iterator[Served]:
    with serving(text) as made:
        made.replies["fits"] = '{"ok": true, "count": 7}'
        made.replies["chats"] = 'Sure! {"ok": true, "count": 7}'
        made.replies["thinks"] = '\nhm\n</think>{"ok": false, "count": 8}'
        made.replies["thinks on"] = "\nhm and hm and hm and hm and hm and hm"
        made.replies["ends in thought"] = "\nhm<|im_end|>"
        yield made


def said(served: Served, content: str, **fields: Any) -> tuple[str, str]:
    """Content and finish reason of a reply, which a stream of the same request repeats."""
    whole = served.chat(content, **fields).json()
    choice = whole["choices"][0]
    chunks = events(served.chat(content, stream=True, **fields).text)
    streamed = "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks)
    assert streamed == choice["message"]["content"]
    assert chunks[-1]["hermitcrab"]["tokens_sha256"] == whole["hermitcrab"]["tokens_sha256"]
    return choice["message"]["content"], choice["finish_reason"]


def fits(content: str) -> bool:
    value = json.loads(content)
    return set(value) == {"ok", "count"} and value["ok"] in (True, False) and 0 <= value["count"] <= 99


@pytest.mark.parametrize("seed", range(5))
def test_whatever_is_drawn_fits_the_schema(served: Served, seed: int) -> None:
    content, finish = said(
        served, RANDOM, response_format=SCHEMA, temperature=1.0, top_k=0, top_p=1.0, seed=seed, **PLAIN
    )
    assert fits(content)
    assert finish == "stop"


def test_a_reply_that_fits_anyway_is_left_alone(served: Served) -> None:
    assert said(served, "fits", response_format=SCHEMA, **PLAIN) == ('{"ok": true, "count": 7}', "stop")
    assert (
        said(served, "fits", response_format={"type": "json_object"}, **PLAIN)[0]
        == '{"ok": true, "count": 7}'
    )


def test_words_around_the_json_are_not_drawn(served: Served) -> None:
    assert said(served, "chats", **PLAIN)[0].startswith("Sure!")
    assert fits(said(served, "chats", response_format=SCHEMA, **PLAIN)[0])


def test_thinking_comes_first_and_is_free(served: Served) -> None:
    body = served.chat("thinks", response_format=SCHEMA).json()
    message = body["choices"][0]["message"]
    assert message["reasoning_content"] == "hm"
    assert fits(message["content"])


def test_the_line_breaks_behind_thinking_come_before_the_form(served: Served) -> None:
    body = served.chat("thinks", response_format=SCHEMA, logprobs=True).json()
    names = [row["token"] for row in body["choices"][0]["logprobs"]["content"]]
    assert "".join(names).partition("</think>")[2].startswith("\n\n{")


def test_a_budget_of_thinking_and_a_form_go_together(served: Served) -> None:
    body = served.chat("thinks on", response_format=SCHEMA, thinking_budget=5).json()
    assert body["usage"]["completion_tokens_details"]["reasoning_tokens"] == 5
    assert fits(body["choices"][0]["message"]["content"])


def test_a_reply_does_not_end_before_its_form_begins(served: Served) -> None:
    body = served.chat("ends in thought", response_format=SCHEMA, thinking_budget=30).json()
    assert fits(body["choices"][0]["message"]["content"])


def test_a_regular_expression_matches_the_whole_reply(served: Served) -> None:
    content, finish = said(served, RANDOM, structured_outputs={"regex": "[a-z]{3,6} [0-9]{2}"}, **PLAIN)
    assert re.fullmatch("[a-z]{3,6} [0-9]{2}", content)
    assert finish == "stop"


@pytest.mark.parametrize("fields", [{}, {"ignore_eos": True}], ids=["", "ignore eos"])
def test_one_of_some_texts(served: Served, fields: dict[str, Any]) -> None:
    content, finish = said(
        served, "hi", structured_outputs={"choice": ["yes", "no", "perhaps"]}, **fields, **PLAIN
    )
    assert content in ("yes", "no", "perhaps")
    assert finish == "stop"


def test_structured_outputs_take_a_schema_too(served: Served) -> None:
    for asked in ({"json": ANSWER}, {"json_object": True}):
        assert said(served, "fits", structured_outputs=asked, **PLAIN)[0] == '{"ok": true, "count": 7}'


def test_each_choice_has_its_form(served: Served) -> None:
    body = served.chat(RANDOM, n=3, response_format=SCHEMA, temperature=1.0, seed=1, **PLAIN).json()
    contents = [choice["message"]["content"] for choice in body["choices"]]
    assert len(set(contents)) > 1
    assert all(fits(content) for content in contents)


def test_a_length_limit_may_cut_a_form(served: Served) -> None:
    content, finish = said(served, "fits", response_format=SCHEMA, max_tokens=4, **PLAIN)
    assert '{"ok": true, "count": 7}'.startswith(content)
    assert finish == "length"


def test_a_completion_may_have_a_form(served: Served) -> None:
    body = served.ask(
        {"prompt": TURN.format(RANDOM), "response_format": SCHEMA}, path="/v1/completions"
    ).json()
    assert fits(body["choices"][0]["text"])


@pytest.mark.parametrize("stream", [False, True])
def test_a_response_may_have_a_form(served: Served, stream: bool) -> None:
    form = {"type": "json_schema", "name": "answer", "schema": ANSWER}
    asked = {"input": RANDOM, "reasoning": {"effort": "none"}, "text": {"format": form}, "stream": stream}
    told = served.ask(asked, path="/v1/responses").text
    if stream:
        told = [line[6:] for line in told.split("\n") if line.startswith("data: {")][-1]
    body = json.loads(told).get("response") or json.loads(told)
    assert body["text"] == {"format": form}
    assert fits(body["output"][0]["content"][0]["text"])


def test_a_message_may_have_a_form(served: Served) -> None:
    asked = {
        "messages": [{"role": "user", "content": RANDOM}],
        "max_tokens": 500,
        "output_config": {"format": {"type": "json_schema", "schema": ANSWER}},
    }
    assert fits(served.ask(asked, path="/v1/messages").json()["content"][0]["text"])


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"response_format": {"type": "yaml"}}, "response_format"),
    ({"response_format": {"type": "json_schema"}}, "response_format"),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "crab"}}}},
        "response_format",
    ),
    ({"response_format": {"type": "json_schema", "json_schema": {"schema": []}}}, "response_format"),
    ({"structured_outputs": {"regex": "(("}}, "structured_outputs"),
    ({"structured_outputs": {"regex": ""}}, "structured_outputs"),
    ({"structured_outputs": {"choice": []}}, "structured_outputs"),
    ({"structured_outputs": {"choice": [""]}}, "structured_outputs"),
    ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "structured_outputs"),
    ({"structured_outputs": {"regex": "a"}, "response_format": SCHEMA}, "structured_outputs"),
    ({"structured_outputs": {"grammar": "start: 'a'"}}, "structured_outputs.grammar"),
    ({"structured_outputs": {"structural_tag": "{}"}}, "structured_outputs.structural_tag"),
    ({"guided_json": {}}, "guided_json"),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("fields", "field"), WRONG, ids=str)
def test_what_no_reply_can_be_is_refused_by_name(
    served: Served, fields: dict[str, Any], field: str, stream: bool
) -> None:
    response = served.chat("hi", stream=stream, **fields)
    assert response.status_code == 400
    assert str(response.json()["error"]["param"]).startswith(field)


def test_text_and_an_empty_wish_ask_for_nothing(served: Served) -> None:
    for fields in (
        {"response_format": {"type": "text"}},
        {"structured_outputs": {}},
        {"response_format": None},
    ):
        assert said(served, "hi", **fields, **PLAIN)[0] == "Hello there!"
