"""Rules over a reply's tokens, asked for over HTTP: its end, penalties, thinking, log probabilities."""

from collections.abc import Iterator
from typing import Any

import pytest
from served import RANDOM, Served, events, serving

from hermitcrab.core.api import Priority
from hermitcrab.server.text.chat import ChatText

PLAIN = {"enable_thinking": False}
TURN = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
THOUGHT = "\nfirst this, then that, and then some more of it, and on and on it goes, without an end"


@pytest.fixture(scope="module")
def served(text: ChatText) -> Iterator[Served]:
    with serving(text) as made:
        made.replies["think"] = THOUGHT
        made.replies["party"] = "Hi \U0001f389!"
        made.replies["twice"] = "one two one two one two"
        yield made


def said(served: Served, content: str, **fields: Any) -> dict[str, Any]:
    """The reply to a message; a stream of the same request must say the same."""
    body = served.chat(content, **fields).json()
    chunks = events(served.chat(content, stream=True, **fields).text)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    message = body["choices"][0]["message"]
    for field in ("content", "reasoning_content"):
        assert "".join(delta.get(field) or "" for delta in deltas) == (message.get(field) or "")
    assert chunks[-1]["choices"][0]["finish_reason"] == body["choices"][0]["finish_reason"]
    assert chunks[-1]["hermitcrab"]["tokens_sha256"] == body["hermitcrab"]["tokens_sha256"]
    return dict(body)


def content(body: dict[str, Any]) -> str:
    return str(body["choices"][0]["message"]["content"])


def finish(body: dict[str, Any]) -> str:
    return str(body["choices"][0]["finish_reason"])


@pytest.mark.parametrize(
    ("given", "priority"),
    [
        (None, Priority.FOREGROUND),
        ("foreground", Priority.FOREGROUND),
        ("background", Priority.BACKGROUND),
        (0, Priority.FOREGROUND),
        (-3, Priority.FOREGROUND),
        (7, Priority.BACKGROUND),
    ],
)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_a_request_says_whether_it_waits_behind_others(
    served: Served, path: str, given: object, priority: Priority
) -> None:
    words = {"messages": [{"role": "user", "content": "hi"}], "prompt": "hi"}
    assert served.ask({**words, "max_tokens": 1, "priority": given}, path=path).status_code == 200
    assert served.lanes.submitted[-1].priority is priority


@pytest.mark.parametrize("given", ["urgent", "", True, 0.5, ["background"], {}])
def test_a_priority_that_is_none_is_refused_by_name(served: Served, given: object) -> None:
    refused = served.chat(priority=given)
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "priority"


def test_a_bias_takes_a_token_out_of_a_reply(served: Served) -> None:
    first = served.text.vocabulary.encode("Hello")[0]
    body = said(served, "hi", max_tokens=5, logit_bias={str(first): -100}, **PLAIN)
    assert not content(body).startswith("Hello")
    assert body["usage"]["completion_tokens"] == 5


@pytest.mark.parametrize(
    "fields",
    [
        {"presence_penalty": 2.0},
        {"frequency_penalty": 2.0},
        {"repetition_penalty": 1.5},
        {"logit_bias": {"5": 9}},
    ],
    ids=str,
)
def test_each_penalty_reaches_the_draw(served: Served, fields: dict[str, Any]) -> None:
    plain = said(served, RANDOM, max_tokens=200, ignore_eos=True, **PLAIN)
    changed = said(served, RANDOM, max_tokens=200, ignore_eos=True, **fields, **PLAIN)
    assert changed["hermitcrab"]["tokens_sha256"] != plain["hermitcrab"]["tokens_sha256"]


def test_a_reply_does_not_end_before_its_fewest_tokens(served: Served) -> None:
    assert said(served, "hi", **PLAIN)["usage"]["completion_tokens"] < 20
    body = said(served, "hi", min_tokens=40, max_tokens=60, **PLAIN)
    assert body["usage"]["completion_tokens"] >= 40
    assert content(body).startswith("Hello there!")


def test_a_stop_string_within_the_fewest_tokens_does_not_count(served: Served) -> None:
    early = len(served.text.vocabulary.encode("one two"))
    assert content(said(served, "twice", stop="two", **PLAIN)) == "one "
    body = said(served, "twice", stop="two", min_tokens=early, **PLAIN)
    assert content(body) == "one two one "
    assert finish(body) == "stop"


def test_a_stop_token_ends_a_reply_and_is_not_shown(served: Served) -> None:
    tokens = served.text.vocabulary.encode("Hello there!")
    for fields in ({}, {"ignore_eos": True}):
        body = said(served, "hi", stop_token_ids=[tokens[-1]], **fields, **PLAIN)
        assert finish(body) == "stop"
        assert body["usage"]["completion_tokens"] == len(tokens)
        assert content(body) == served.text.text_of(tokens[:-1])


@pytest.mark.parametrize("budget", [1, 6])
def test_thinking_ends_at_its_budget_and_an_answer_follows(served: Served, budget: int) -> None:
    body = said(served, "think", thinking_budget=budget, max_tokens=40, ignore_eos=True)
    thought = body["choices"][0]["message"].get("reasoning_content") or ""
    assert THOUGHT.strip("\n").startswith(thought)
    assert body["usage"]["completion_tokens_details"]["reasoning_tokens"] == budget
    assert content(body)
    assert not content(body).startswith("\n")


def test_thinking_that_needs_less_than_its_budget_is_as_without_one(served: Served) -> None:
    plain = said(served, "hi", max_tokens=12)
    assert (
        said(served, "hi", max_tokens=12, thinking_budget=2000)["hermitcrab"]["tokens_sha256"]
        == (plain["hermitcrab"]["tokens_sha256"])
    )


def test_a_budget_of_nothing_switches_thinking_off(served: Served) -> None:
    body = said(served, "hi", thinking_budget=0)
    assert content(body) == "Hello there!"
    assert body["usage"]["prompt_tokens"] == said(served, "hi", **PLAIN)["usage"]["prompt_tokens"]


def test_rules_hold_for_plain_completions_too(served: Served) -> None:
    fields = {"prompt": TURN.format("hi"), "min_tokens": 30, "max_tokens": 50, "presence_penalty": 0.5}
    body = served.ask(fields, path="/v1/completions").json()
    assert body["usage"]["completion_tokens"] >= 30
    chunks = events(served.ask({**fields, "stream": True}, path="/v1/completions").text)
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == body["choices"][0]["text"]


WRONG: list[tuple[str, Any]] = [
    ("logit_bias", {"x": 1}),
    ("logit_bias", {"05": 1}),
    ("logit_bias", {"5": "1"}),
    ("logit_bias", {"5": True}),
    ("logit_bias", {"5": 101}),
    ("logit_bias", {"410": 1}),
    ("logit_bias", [5]),
    ("presence_penalty", 2.1),
    ("frequency_penalty", "1"),
    ("repetition_penalty", 0),
    ("min_tokens", -1),
    ("min_tokens", 9),
    ("stop_token_ids", 5),
    ("stop_token_ids", [True]),
    ("stop_token_ids", list(range(65))),
    ("thinking_budget", -1),
    ("top_logprobs", 21),
    ("top_logprobs", 1),
    ("logprobs", 5),
]


@pytest.mark.parametrize(("field", "value"), WRONG, ids=str)
def test_wrong_values_are_refused_by_name(served: Served, field: str, value: Any) -> None:
    response = served.chat("hi", max_tokens=8, **{field: value})
    assert response.status_code == 400
    assert str(response.json()["error"]["param"]).startswith(field)


def chunks_logprobs(chunks: list[dict[str, Any]]) -> list[Any]:
    told = [chunk["choices"][0]["logprobs"] for chunk in chunks]
    return [item for part in told if part is not None for item in part["content"]]


def test_log_probabilities_name_each_token_with_its_bytes_streamed_or_not(served: Served) -> None:
    fields = {"logprobs": True, "top_logprobs": 3, **PLAIN}
    body = served.chat("spell", max_tokens=60, **fields).json()
    rows = body["choices"][0]["logprobs"]["content"]
    # the end-of-text token is counted, not delivered
    assert len(rows) == body["usage"]["completion_tokens"] - 1
    whole = b"".join(bytes(row["bytes"]) for row in rows).decode()
    assert whole == "<think>\nhm\n</think>\n\nHello 👋 there!"
    assert all(row["top_logprobs"][0]["bytes"] == row["bytes"] for row in rows)
    assert all(len(row["top_logprobs"]) == 3 for row in rows)
    assert all(row["logprob"] <= 0.0 for row in rows)
    assert chunks_logprobs(events(served.chat("spell", max_tokens=60, stream=True, **fields).text)) == rows


def test_log_probabilities_without_alternatives(served: Served) -> None:
    rows = served.chat("hi", logprobs=True, **PLAIN).json()["choices"][0]["logprobs"]["content"]
    assert all(row["top_logprobs"] == [] for row in rows)
    assert served.chat("hi", **PLAIN).json()["choices"][0]["logprobs"] is None


def test_each_choice_has_its_own_log_probabilities(served: Served) -> None:
    body = served.chat(RANDOM, n=2, temperature=1.0, seed=5, max_tokens=6, logprobs=True, ignore_eos=True)
    first, second = body.json()["choices"]
    assert [len(choice["logprobs"]["content"]) for choice in (first, second)] == [6, 6]
    assert first["logprobs"] != second["logprobs"]


def test_a_completions_log_probabilities_are_parallel_lists(served: Served) -> None:
    fields = {"prompt": TURN.format("party"), "logprobs": 2}
    choice = served.ask(fields, path="/v1/completions").json()["choices"][0]
    told = choice["logprobs"]
    assert {len(values) for values in told.values()} == {len(told["tokens"])}
    for name, offset in zip(told["tokens"], told["text_offset"], strict=True):
        # the bytes of a part of a character are no text
        assert name.startswith("bytes:\\x") or choice["text"].startswith(name, offset)
    assert any(name.startswith("bytes:\\x") for name in told["tokens"])
    assert all(
        name in tops and len(tops) == 2
        for name, tops in zip(told["tokens"], told["top_logprobs"], strict=True)
    )
    chunks = events(served.ask({**fields, "stream": True}, path="/v1/completions").text)
    parts = [chunk["choices"][0]["logprobs"] for chunk in chunks if chunk["choices"][0]["logprobs"]]
    assert {name: [item for part in parts for item in part[name]] for name in told} == told


def test_a_hidden_control_token_is_named_among_the_alternatives(served: Served) -> None:
    rows = served.chat("hi", logprobs=True, top_logprobs=20, **PLAIN).json()["choices"][0]["logprobs"][
        "content"
    ]
    names = {top["token"] for row in rows for top in row["top_logprobs"]}
    assert names & {"<|im_end|>", "<|im_start|>", "<|endoftext|>"}


def test_log_probabilities_of_an_echoed_prompt_are_refused(served: Served) -> None:
    response = served.ask({"prompt": "hi", "echo": True, "logprobs": 0}, path="/v1/completions")
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "logprobs"
