"""The device has no memory for one call: one 503 that says when to come back, and nobody else hears of it."""

from collections.abc import Iterator

import pytest
from served import RANDOM, Served, asking, events, is_idle, serving

from hermitcrab.core.fake import CallKind
from hermitcrab.server.text.chat import ChatText

CALLS_OF_ONE = [CallKind.PREFILL, CallKind.DRAW_FIRST, CallKind.KEEP]


@pytest.fixture(scope="module")
def served(text: ChatText) -> Iterator[Served]:
    with serving(text) as made:
        yield made


@pytest.mark.parametrize("kind", CALLS_OF_ONE)
def test_one_of_four_requests_is_a_503_and_the_others_get_their_replies(
    served: Served, kind: CallKind
) -> None:
    alone = served.chat(RANDOM, max_tokens=20).json()["choices"]
    served.backend.fail_next(kind, MemoryError("tried to allocate 8 GiB"))
    with asking(served, 4, RANDOM, max_tokens=20) as responses:
        pass
    refused = [response for response in responses if response.status_code != 200]
    assert [response.status_code for response in refused] == [503]
    assert [response.json()["choices"] for response in responses if response.status_code == 200] == [
        alone
    ] * 3
    served.wait_until(is_idle)


def test_the_503_names_the_cause_and_when_to_try_again(served: Served) -> None:
    served.backend.fail_next(CallKind.PREFILL, MemoryError("tried to allocate 8 GiB"))
    response = served.chat("hi")
    error = response.json()["error"]
    assert response.status_code == 503
    assert (error["type"], error["code"]) == ("server_error", "out_of_memory")
    assert error["message"] == "a prompt pass failed for want of memory: tried to allocate 8 GiB"
    assert int(response.headers["retry-after"]) > 0
    assert served.chat("hi").status_code == 200


def test_anthropics_clients_hear_that_the_server_is_overloaded(served: Served) -> None:
    served.backend.fail_next(CallKind.PREFILL, MemoryError("tried to allocate 8 GiB"))
    body = {"max_tokens": 8, "messages": [{"role": "user", "content": "hi"}]}
    response = served.ask(body, path="/v1/messages")
    assert response.status_code == 529
    assert response.json()["error"]["type"] == "overloaded_error"


def test_a_stream_that_has_begun_ends_with_an_error_event(served: Served) -> None:
    served.backend.fail_next(CallKind.VERIFY, MemoryError("tried to allocate 8 GiB"))
    *_, last = events(served.chat("hi", stream=True).text)
    assert last["error"]["code"] == "out_of_memory"
    assert served.chat("hi").status_code == 200
