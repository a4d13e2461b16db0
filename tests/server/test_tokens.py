"""POST /tokenize and /detokenize: the very tokens the model gets, and back."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from nasty import answers
from served import MODEL, Served, serving
from tokenizers import Tokenizer

from hermitcrab.server.text.chat import ChatText

TURN = "<|im_start|>user\nhi 👋<|im_end|>\n<|im_start|>assistant\n<think>\n"
ASK = {"messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture(scope="module")
def served(text: ChatText) -> Iterator[Served]:
    with serving(text) as made:
        yield made


def tokenize(served: Served, **body: Any) -> httpx.Response:
    return served.ask(body, path="/tokenize")


def detokenize(served: Served, tokens: object) -> httpx.Response:
    return served.ask({"tokens": tokens}, path="/detokenize")


def refusal(response: httpx.Response) -> dict[str, Any]:
    assert response.status_code in (400, 404), response.text
    assert set(response.json()["error"]) == {"message", "type", "param", "code"}
    return dict(response.json()["error"])


@pytest.mark.parametrize("name", ["prompt", "content", "text"])
def test_a_text_is_what_the_tokenizer_makes_of_it(served: Served, tokenizer: Tokenizer, name: str) -> None:
    body = tokenize(served, **{name: TURN}).json()
    ids = tokenizer.encode(TURN, add_special_tokens=False).ids
    assert body == {"tokens": ids, "count": len(ids), "max_model_len": served.host.context_tokens}


def test_control_tokens_can_be_plain_text(served: Served, tokenizer: Tokenizer) -> None:
    body = tokenize(served, content="a<|im_end|>b", parse_special=False).json()
    assert tokenizer.token_to_id("<|im_end|>") not in body["tokens"]
    assert detokenize(served, body["tokens"]).json()["content"] == "a<|im_end|>b"


@pytest.mark.parametrize("fields", [{}, {"enable_thinking": False}, {"reasoning_effort": "low"}])
def test_messages_are_the_prompt_that_a_chat_request_is(served: Served, fields: dict[str, Any]) -> None:
    tool = {"type": "function", "function": {"name": "f"}}
    asked = {**ASK, **fields, "tools": [tool]}
    served.ask(asked)
    body = tokenize(served, **asked).json()
    assert tuple(body["tokens"]) == served.lanes.submitted[-1].prompt


@pytest.mark.parametrize("written", ["", "hi", TURN, "日本語 Zürich\n\n  👋", "<tool_call></think>"])
def test_detokenizing_gives_the_text_back(served: Served, written: str) -> None:
    tokens = tokenize(served, prompt=written).json()["tokens"]
    assert detokenize(served, tokens).json() == {"prompt": written, "content": written}


def test_half_a_character_is_shown_as_broken(served: Served) -> None:
    first, *_ = tokenize(served, prompt="日").json()["tokens"]
    assert detokenize(served, [first]).json()["content"] == "�"


@pytest.mark.parametrize("token", [-1, 400_000, 10**30])
def test_a_token_the_model_does_not_have_is_refused(served: Served, token: int) -> None:
    error = refusal(detokenize(served, [0, token]))
    assert error["param"] == "tokens.1"


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({}, "prompt"),
    ({"prompt": "a", "content": "a"}, "content"),
    ({"prompt": "a", **ASK}, "messages"),
    ({"prompt": ["a"]}, "prompt"),
    ({"messages": []}, "messages"),
    ({**ASK, "n": 0}, "n"),
    ({"prompt": "a", "return_token_strs": True}, "return_token_strs"),
    ({"prompt": "a", "with_pieces": True}, "with_pieces"),
    ({**ASK, "add_generation_prompt": False}, "add_generation_prompt"),
    ({**ASK, "continue_final_message": True}, "continue_final_message"),
    ({"prompt": "a", "model": "gpt-9"}, "model"),
]


@pytest.mark.parametrize(("body", "param"), REFUSED, ids=str)
def test_what_is_wrong_or_not_supported_is_refused_by_name(
    served: Served, body: dict[str, Any], param: str
) -> None:
    assert refusal(tokenize(served, **body))["param"] == param


FULL: list[tuple[str, dict[str, Any]]] = [
    ("/tokenize", {"model": MODEL, "prompt": "hi", "parse_special": True}),
    (
        "/tokenize",
        {"messages": [{"role": "user", "content": "hi"}], "chat_template_kwargs": {"a": 1}},
    ),
    ("/detokenize", {"model": MODEL, "tokens": [1, 2]}),
]


@pytest.mark.parametrize(("path", "good"), FULL)
def test_no_body_makes_the_server_stumble(served: Served, path: str, good: dict[str, Any]) -> None:
    for _, response in answers(served.app, path, good):
        if response.status_code != 200:
            refusal(response)
    assert served.ask(good, path=path).status_code == 200
