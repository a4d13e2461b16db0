"""Nasty bodies for chat and completions: never a server error, and never a difference to a neighbour."""

from collections.abc import Iterator
from typing import Any

import pytest
from nasty import answers
from served import MODEL, RANDOM, Served, SlowRounds, asking, is_idle, serving

from hermitcrab.core.api import StreamState
from hermitcrab.server.text.chat import ChatText

CHAT: dict[str, Any] = {
    "model": MODEL,
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        {
            "role": "assistant",
            "content": "So.",
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "c", "content": "2"},
    ],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
    "tool_choice": "auto",
    "chat_template_kwargs": {"enable_thinking": True},
    "stream_options": {"include_usage": True},
    "reasoning_effort": "low",
    "max_tokens": 3,
    "stop": ["x"],
    "n": 1,
    "seed": 1,
    "temperature": 0.5,
    "top_p": 0.9,
    "stream": False,
}
PLAIN: dict[str, Any] = {"model": MODEL, "prompt": "hi", "max_tokens": 3, "stop": "x", "echo": True, "n": 1}


@pytest.fixture(scope="module")
def served(text: ChatText) -> Iterator[Served]:
    with serving(text, on_call=SlowRounds()) as made:
        yield made


@pytest.mark.parametrize(("path", "good"), [("/v1/chat/completions", CHAT), ("/v1/completions", PLAIN)])
def test_no_body_makes_the_server_stumble(served: Served, path: str, good: dict[str, Any]) -> None:
    for body, response in answers(served.app, path, good):
        if response.status_code != 200:
            assert response.status_code in (400, 404), (body[:300], response.text)
            assert response.json()["error"]["message"]
    served.wait_until(is_idle)
    assert served.ask(good, path=path).status_code == 200


def test_a_neighbours_reply_is_the_same_among_nasty_bodies(served: Served) -> None:
    drawn = {"seed": 3, "temperature": 1.0, "max_tokens": 400}
    alone = served.chat(RANDOM, **drawn).json()
    with asking(served, 1, RANDOM, **drawn) as mine:
        served.wait_until(lambda status: any(item.state is StreamState.LIVE for item in status.streams))
        nasty = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
        assert len(answers(served.app, "/v1/chat/completions", nasty)) > 50
    (among,) = [answer.json() for answer in mine]
    assert among["choices"] == alone["choices"]
    assert among["hermitcrab"]["tokens_sha256"] == alone["hermitcrab"]["tokens_sha256"]
