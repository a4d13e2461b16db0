"""POST /v1/completions: the prompt as it stands, whole and streamed."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from served import MODEL, RANDOM, Served, events, serving

from hermitcrab.server.text.chat import ChatText

PATH = "/v1/completions"
TURN = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"


@pytest.fixture(scope="module")
def served(text: ChatText) -> Iterator[Served]:
    with serving(text) as made:
        yield made


def complete(served: Served, prompt: object, **fields: Any) -> httpx.Response:
    return served.ask({"prompt": prompt, **fields}, path=PATH)


def test_a_completion_has_the_apis_shape(served: Served) -> None:
    body = complete(served, TURN.format("hi"), model=MODEL).json()
    assert body["object"] == "text_completion"
    assert body["choices"] == [
        {"index": 0, "text": "Hello there!", "logprobs": None, "finish_reason": "stop"}
    ]
    assert "completion_tokens_details" not in body["usage"]


def test_structural_tokens_are_written_out(served: Served) -> None:
    body = complete(served, TURN.format("spell")).json()
    assert body["choices"][0]["text"] == served.replies["spell"]


def test_text_a_list_of_one_and_token_ids_are_the_same_prompt(served: Served) -> None:
    prompt = TURN.format("hi")
    ids = served.text.vocabulary.encode(prompt)
    bodies = [complete(served, given).json() for given in (prompt, [prompt], ids, [ids])]
    assert {body["hermitcrab"]["tokens_sha256"] for body in bodies} == {
        bodies[0]["hermitcrab"]["tokens_sha256"]
    }
    assert {body["usage"]["prompt_tokens"] for body in bodies} == {len(ids)}


def test_the_prompt_can_be_repeated_before_the_reply(served: Served) -> None:
    prompt = TURN.format("hi")
    body = complete(served, prompt, echo=True).json()
    assert body["choices"][0]["text"] == prompt + "Hello there!"


def test_a_prompt_of_tokens_is_repeated_as_its_text(served: Served) -> None:
    body = complete(served, served.text.vocabulary.encode("hi é"), echo=True, max_tokens=1).json()
    assert body["choices"][0]["text"].startswith("hi é")


@pytest.mark.parametrize("fields", [{}, {"stop": "the"}, {"max_tokens": 4}, {"echo": True}])
def test_streamed_and_whole_say_the_same(served: Served, fields: dict[str, Any]) -> None:
    prompt = TURN.format("spell")
    whole = complete(served, prompt, **fields).json()
    streamed = complete(served, prompt, stream=True, stream_options={"include_usage": True}, **fields)
    chunks = events(streamed.text)
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks[:-1]) == whole["choices"][0]["text"]
    assert chunks[-2]["choices"][0]["finish_reason"] == whole["choices"][0]["finish_reason"]
    assert chunks[-1]["usage"] == whole["usage"]


@pytest.mark.parametrize("prompt", [RANDOM, TURN.format("hi")])
def test_a_length_limit_is_kept(served: Served, prompt: str) -> None:
    body = complete(served, prompt, max_tokens=3, ignore_eos=True).json()
    assert (body["usage"]["completion_tokens"], body["choices"][0]["finish_reason"]) == (3, "length")


@pytest.mark.parametrize(
    ("prompt", "says"),
    [
        ("", "The prompt is empty"),
        ([], "must be a string, a list of strings, or a list of token ids"),
        (None, "must be a string"),
        (5, "must be a string"),
        ([True], "must be a string"),
        ([1, "a"], "must be a string"),
        ([[1], "a"], "must be a string"),
        ([[]], "The prompt is empty"),
        (["a", "b"], "prompt has 2 prompts; send one request for each"),
        ([-1], "outside 0 to"),
        ([10**30], "outside 0 to"),
    ],
)
def test_a_prompt_that_is_none_is_refused(served: Served, prompt: object, says: str) -> None:
    response = complete(served, prompt)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "prompt"
    assert says in response.json()["error"]["message"]


@pytest.mark.parametrize(
    ("field", "value"), [("best_of", 2), ("suffix", "end"), ("thinking_budget", 9), ("top_logprobs", 5)]
)
def test_what_is_not_supported_is_refused_by_name(served: Served, field: str, value: object) -> None:
    response = complete(served, "hi", **{field: value})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == field
