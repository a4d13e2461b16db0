"""What a client is told of the prompt cache: cached tokens in every dialect, the status, the metrics."""

from collections.abc import Iterator
from typing import Any

import pytest
from served import MODEL, Served, serving

from hermitcrab.server.text.chat import ChatText

# long enough for a state at its start and one near its end
SYSTEM = "You are a crab. " * 40
GRID_ROWS = 4


@pytest.fixture
def kept(text: ChatText) -> Iterator[Served]:
    with serving(text, cache_bytes=1 << 24) as served:
        yield served


def chat(served: Served, words: str = "hi", **fields: Any) -> dict[str, Any]:
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": words}]
    body = {"model": MODEL, "messages": messages, "seed": 1, **fields}
    response = served.ask(body)
    assert response.status_code == 200, response.text
    return dict(response.json())


def cached_of(body: dict[str, Any]) -> int:
    return int(body["usage"]["prompt_tokens_details"]["cached_tokens"])


def test_a_repeated_chat_says_how_much_was_cached_and_replies_the_same(kept: Served) -> None:
    cold, warm = chat(kept), chat(kept)
    assert cached_of(cold) == 0
    assert cold["usage"]["prompt_tokens"] - GRID_ROWS <= cached_of(warm) < cold["usage"]["prompt_tokens"]
    assert warm["hermitcrab"]["tokens_sha256"] == cold["hermitcrab"]["tokens_sha256"]
    assert warm["usage"]["prompt_tokens"] == cold["usage"]["prompt_tokens"]


def test_another_question_has_the_system_message_cached(kept: Served) -> None:
    chat(kept)
    system_tokens = len(kept.text.vocabulary.encode(SYSTEM))
    assert cached_of(chat(kept, "spell")) >= system_tokens


def test_several_choices_count_what_the_first_had(kept: Served) -> None:
    assert cached_of(chat(kept, n=3)) == 0
    assert cached_of(chat(kept, n=3)) > 0


def test_a_stream_says_the_same(kept: Served) -> None:
    warm = [cached_of(chat(kept)) for _ in range(2)][-1]
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "hi"}]
    body = {"messages": messages, "stream": True, "stream_options": {"include_usage": True}}
    response = kept.ask(body, path="/v1/chat/completions")
    assert f'"cached_tokens":{warm}' in response.text.replace(" ", "")


def test_completions_say_it(kept: Served) -> None:
    body = {"prompt": SYSTEM, "max_tokens": 2}
    cold, warm = (kept.ask(body, path="/v1/completions").json() for _ in range(2))
    assert cached_of(cold) == 0 < cached_of(warm)


def test_responses_say_it(kept: Served) -> None:
    body = {"instructions": SYSTEM, "input": "hi"}
    cold, warm = (kept.ask(body, path="/v1/responses").json()["usage"] for _ in range(2))
    assert cold["input_tokens_details"]["cached_tokens"] == 0
    assert 0 < warm["input_tokens_details"]["cached_tokens"] < warm["input_tokens"] == cold["input_tokens"]


def test_messages_count_cached_tokens_beside_the_input(kept: Served) -> None:
    body = {"max_tokens": 9, "system": SYSTEM, "messages": [{"role": "user", "content": "hi"}]}
    cold, warm = (kept.ask(body, path="/v1/messages").json()["usage"] for _ in range(2))
    assert cold["cache_read_input_tokens"] == 0 < warm["cache_read_input_tokens"]
    assert warm["input_tokens"] + warm["cache_read_input_tokens"] == cold["input_tokens"]


def test_status_and_metrics_tell_the_cache(kept: Served) -> None:
    chat(kept)
    warm = cached_of(chat(kept))
    cache = kept.send("GET", "/v1/status").json()["cache"]
    assert (cache["hits"], cache["misses"], cache["reused_tokens"]) == (1, 1, warm)
    assert 0 < cache["bytes"] <= cache["budget_bytes"] == 1 << 24
    told = kept.send("GET", "/metrics").text
    assert f"hermitcrab_cached_tokens_total {float(warm)}" in told
    assert 'hermitcrab_cache_requests_total{result="hit"} 1.0' in told


def test_a_server_without_a_cache_says_so(text: ChatText) -> None:
    with serving(text) as served:
        assert [cached_of(chat(served)) for _ in range(2)] == [0, 0]
        assert served.send("GET", "/v1/status").json()["cache"]["budget_bytes"] == 0
