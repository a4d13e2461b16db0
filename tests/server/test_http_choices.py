"""`n`: several replies to one request, each the reply of its own seed, in one answer or one stream."""

from collections.abc import Iterator
from typing import Any

import pytest
from served import ENDLESS, RANDOM, Gate, Served, SlowRounds, events, is_idle, serving

from hermitcrab.core.fake import CallKind
from hermitcrab.errors import DeviceFailed
from hermitcrab.server.text.chat import ChatText

DRAWN = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "max_tokens": 24, "seed": 7}
PLAIN = {"prompt": f"<|im_start|>user\n{RANDOM}<|im_end|>\n<|im_start|>assistant\n", **DRAWN}


@pytest.fixture(scope="module")
def served(text: ChatText) -> Iterator[Served]:
    with serving(text, on_call=SlowRounds()) as made:
        yield made


def said(choice: dict[str, Any]) -> tuple[str, str]:
    message = choice["message"]
    return message.get("reasoning_content", ""), message["content"]


def test_each_choice_is_the_reply_that_its_seed_gives_alone(served: Served) -> None:
    choices = served.chat(RANDOM, n=3, **DRAWN).json()["choices"]
    assert [choice["index"] for choice in choices] == [0, 1, 2]
    alone = [served.chat(RANDOM, **{**DRAWN, "seed": seed}).json() for seed in (7, 8, 9)]
    assert [said(choice) for choice in choices] == [said(body["choices"][0]) for body in alone]
    blocks = [choice["hermitcrab"] for choice in choices]
    assert [block["seed"] for block in blocks] == [7, 8, 9]
    hashes = [block["tokens_sha256"] for block in blocks]
    assert hashes == [body["hermitcrab"]["tokens_sha256"] for body in alone]
    assert len(set(hashes)) == 3


def test_usage_counts_the_prompt_once_and_every_reply(served: Served) -> None:
    alone = served.chat(RANDOM, **DRAWN).json()["usage"]
    usage = served.chat(RANDOM, n=3, **DRAWN).json()["usage"]
    assert usage["prompt_tokens"] == alone["prompt_tokens"]
    assert usage["completion_tokens"] == 3 * 24
    assert usage["total_tokens"] == usage["prompt_tokens"] + 3 * 24


def test_a_stream_says_of_each_choice_what_the_whole_reply_says(served: Served) -> None:
    whole = served.chat(RANDOM, n=3, **DRAWN).json()
    answer = served.chat(RANDOM, n=3, stream=True, stream_options={"include_usage": True}, **DRAWN)
    *chunks, last = events(answer.text)
    deltas = [chunk["choices"][0] for chunk in chunks]
    for choice in whole["choices"]:
        mine = [delta for delta in deltas if delta["index"] == choice["index"]]
        joined = {
            field: "".join(delta["delta"].get(field) or "" for delta in mine)
            for field in ("reasoning_content", "content")
        }
        assert (joined["reasoning_content"], joined["content"]) == said(choice)
        assert [delta["finish_reason"] for delta in mine if delta["finish_reason"]] == ["length"]
    assert last["choices"] == []
    assert last["usage"] == whole["usage"]
    assert sum("usage" in chunk for chunk in chunks) == 0


@pytest.mark.parametrize("stream", [False, True])
def test_plain_completions_have_choices_too(served: Served, stream: bool) -> None:
    alone = [
        served.ask({**PLAIN, "seed": seed}, path="/v1/completions").json()["choices"][0]["text"]
        for seed in (7, 8)
    ]
    answer = served.ask({**PLAIN, "n": 2, "stream": stream}, path="/v1/completions")
    parts = [chunk["choices"][0] for chunk in events(answer.text)] if stream else answer.json()["choices"]
    texts = ["".join(part["text"] for part in parts if part["index"] == index) for index in (0, 1)]
    assert texts == alone


def test_the_last_seed_is_followed_by_the_first(served: Served) -> None:
    choices = served.chat(RANDOM, n=2, **{**DRAWN, "seed": 2**63 - 1}).json()["choices"]
    assert [choice["hermitcrab"]["seed"] for choice in choices] == [2**63 - 1, 0]


def test_a_choice_that_fails_ends_the_stream_and_the_other_choices(served: Served) -> None:
    served.backend.fail_next(CallKind.PREFILL, DeviceFailed("the device said no."))
    answer = served.chat(ENDLESS, n=2, stream=True, ignore_eos=True)
    *_, last = events(answer.text)
    assert last["error"]["message"] == "the device said no."
    served.wait_until(is_idle)


def test_choices_that_do_not_all_fit_the_queue_are_refused_together(text: ChatText) -> None:
    gate = Gate(CallKind.PREFILL)
    with serving(text, session_rows=(4096,), queue_limit=2, on_call=gate) as served:
        assert served.chat("hi", n=9).status_code == 429
        gate.open()
        served.wait_until(is_idle)
        assert served.chat("hi", n=1).status_code == 200
