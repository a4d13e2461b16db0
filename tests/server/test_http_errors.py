"""Wrong requests: one clear sentence, the right status, the API's error body; the next request is served."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from served import ENDLESS, MODEL, Gate, Served, asking, events, is_idle, serving

from hermitcrab import errors
from hermitcrab.core.fake import CallKind
from hermitcrab.errors import DeviceFailed, HermitcrabError
from hermitcrab.server.errors import error_body, outcome
from hermitcrab.server.options import ServerOptions
from hermitcrab.server.text.chat import ChatText

ASK = {"messages": [{"role": "user", "content": "hi"}]}
DEEP = b'{"messages": [{"role": "user", "content": "hi"}], "x": ' + b"[" * 100 + b"]" * 100 + b"}"
VERY_DEEP = b'{"messages": ' + b"[" * 100_000


@pytest.fixture(scope="module")
def served(text: ChatText) -> Iterator[Served]:
    with serving(text) as made:
        yield made


def refusal(response: Any, status: int) -> dict[str, Any]:
    """The error of a response that must have this status and the API's shape."""
    assert response.status_code == status, response.text
    body = response.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert body["error"]["message"]
    return dict(body["error"])


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b'"text"',
        b"5",
        b"{",
        b'{"messages": [}',
        b"\xff\xfe{\x00}\x00",
        b"\xef\xbb\xbf{}",
        b'{"messages": [{"role": "user", "content": "\xff"}]}',
        b'{"messages": [{"role": "user", "content": "\\ud800"}]}',
        b'{"messages": [{"role": "user", "content": "\xed\xa0\x80"}]}',
        b'{"\\udfff": 1, "messages": [{"role": "user", "content": "hi"}]}',
        b'{"messages": [{"role": "user", "content": "hi"}], "temperature": NaN}',
        b'{"messages": [{"role": "user", "content": "hi"}], "temperature": Infinity}',
        b'{"messages": [{"role": "user", "content": "hi"}], "temperature": 1e999}',
        b'{"messages": [{"role": "user", "content": "hi"}], "seed": ' + b"9" * 5000 + b"}",
        DEEP,
        VERY_DEEP,
    ],
    ids=lambda body: repr(body[:40]),
)
def test_a_body_that_is_no_request_is_refused(served: Served, body: bytes) -> None:
    refusal(served.ask(body), 400)


WRONG_FIELDS: list[tuple[str, object]] = [
    ("messages", None),
    ("messages", []),
    ("messages", "hi"),
    ("messages", {}),
    ("messages", ["hi"]),
    ("messages.0.role", None),
    ("messages.0.role", "king"),
    ("messages.0.role", 5),
    ("messages.0.content", None),
    ("messages.0.content", 5),
    ("messages.0.content", True),
    ("messages.0.content", {}),
    ("messages.0.content", ["hi"]),
    ("messages.0.content", [{"type": "text"}]),
    ("messages.0.content", [{"type": "text", "text": None}]),
    ("messages.0.content", [{"type": "image_url", "image_url": {"url": "x"}}]),
    ("messages.0.content", [{"type": ["text"], "text": "hi"}]),
    ("messages.0.tool_calls", [5]),
    ("messages.0.tool_calls", [{"function": {"name": 5}}]),
    ("model", 5),
    ("stream", "yes"),
    ("stream", 1),
    ("stream_options", []),
    ("max_tokens", "5"),
    ("max_tokens", 1.5),
    ("max_tokens", True),
    ("max_tokens", 0),
    ("max_tokens", -1),
    ("max_completion_tokens", 0),
    ("stop", 5),
    ("stop", [5]),
    ("stop", [""]),
    ("stop", ["x"] * 17),
    ("stop", ["x" * 1025]),
    ("seed", "a"),
    ("seed", 1.5),
    ("seed", -1),
    ("seed", 2**63),
    ("seed", 10**100),
    ("temperature", "hot"),
    ("temperature", -0.1),
    ("temperature", 101),
    ("temperature", 10**400),
    ("top_p", 0),
    ("top_p", 1.1),
    ("top_k", -2),
    ("top_k", 1.5),
    ("min_p", 2),
    ("tools", {}),
    ("tools", [{}]),
    ("tools", [{"type": "retrieval"}]),
    ("tools", [{"type": "function", "function": {}}]),
    ("tools", [{"type": "function", "function": {"name": ""}}]),
    ("tools", [{"type": "function", "function": {"name": "f", "parameters": []}}]),
    ("tools", [{"type": "function", "function": {"name": "f"}}] * 2),
    ("chat_template_kwargs", []),
    ("chat_template_kwargs", {"messages": []}),
    ("chat_template_kwargs", {"enable_thinking": "no"}),
    ("reasoning_effort", "lots"),
    ("reasoning_effort", 5),
    ("enable_thinking", "yes"),
    ("ignore_eos", "yes"),
    ("n", 0),
    ("n", 129),
    ("n", True),
    ("n", "1"),
]


@pytest.mark.parametrize(("field", "value"), WRONG_FIELDS, ids=str)
def test_a_wrong_value_is_refused_and_its_field_is_named(served: Served, field: str, value: object) -> None:
    body = json.loads(json.dumps(ASK))
    *path, last = field.split(".")
    place = body
    for step in path:
        place = place[int(step)] if step.isdigit() else place[step]
    place[last] = value
    error = refusal(served.ask(body), 400)
    assert field in (error["param"] or "") or (error["param"] or "?") in field


NOT_YET: list[tuple[str, object]] = [
    ("prompt_logprobs", 1),
    ("guided_json", {}),
    ("functions", [{"name": "f"}]),
    ("function_call", "auto"),
    ("modalities", ["audio"]),
    ("audio", {}),
]


@pytest.mark.parametrize(("field", "value"), NOT_YET, ids=str)
def test_what_is_not_supported_yet_is_refused_by_name(served: Served, field: str, value: object) -> None:
    error = refusal(served.ask({**ASK, field: value}), 400)
    assert error["param"] == field
    assert error["message"] == f"{field} is not supported by this server yet; leave it out."


@pytest.mark.parametrize(
    "fields",
    [
        {"n": 1, "logprobs": False, "top_logprobs": 0, "presence_penalty": 0, "frequency_penalty": 0.0},
        {"logit_bias": {}, "response_format": {"type": "text"}, "tool_choice": "auto", "tools": []},
        {"parallel_tool_calls": True, "tool_choice": "none", "functions": [], "modalities": ["text"]},
        {"repetition_penalty": 1.0, "min_tokens": 0, "stop_token_ids": [], "stop": [], "top_k": -1},
    ],
)
def test_asking_for_what_is_the_case_anyway_is_fine(served: Served, fields: dict[str, Any]) -> None:
    assert served.chat("hi", **fields).status_code == 200


def test_two_limits_that_differ_are_refused(served: Served) -> None:
    error = refusal(served.chat("hi", max_tokens=1, max_completion_tokens=2), 400)
    assert "max_completion_tokens is 2; send one of them" in error["message"]


@pytest.mark.parametrize("name", ["gpt-9", "", "Crab-1", MODEL + " "])
def test_an_unknown_model_is_not_found(served: Served, name: str) -> None:
    error = refusal(served.chat("hi", model=name), 404)
    assert (error["code"], error["param"]) == ("model_not_found", "model")
    assert MODEL in error["message"]


@pytest.mark.parametrize("name", [MODEL, "crab"])
def test_the_models_id_and_its_aliases_are_known(served: Served, name: str) -> None:
    assert served.chat("hi", model=name).json()["model"] == MODEL


@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_that_can_never_fit_is_refused_with_both_counts(served: Served, stream: bool) -> None:
    error = refusal(served.chat("word " * 2000, stream=stream), 400)
    assert error["code"] == "context_length_exceeded"
    assert f"maximum context length is {served.host.context_tokens} tokens" in error["message"]
    assert "the prompt has " in error["message"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/chat/completions", 405),
        ("POST", "/v1/nothing", 404),
        ("GET", "/nothing", 404),
        ("GET", "/v1/models/nothing", 404),
        ("DELETE", "/v1/models", 405),
    ],
)
def test_a_wrong_route_is_answered_in_the_same_shape(
    served: Served, method: str, path: str, status: int
) -> None:
    refusal(served.send(method, path), status)


def test_after_all_that_the_next_request_is_served(served: Served) -> None:
    for field, value in WRONG_FIELDS:
        served.ask({**ASK, field: value})
    assert served.chat("hi").status_code == 200
    served.wait_until(is_idle)


@pytest.mark.parametrize("kind", [CallKind.PREFILL, CallKind.DRAW_FIRST, CallKind.VERIFY, CallKind.DRAFT])
def test_a_device_that_fails_is_a_500_and_the_next_request_is_served(served: Served, kind: CallKind) -> None:
    served.backend.fail_next(kind, DeviceFailed("the device said no."))
    error = refusal(served.chat("hi"), 500)
    assert error["type"] == "server_error"
    assert "the device said no" in error["message"]
    assert served.chat("hi").status_code == 200


def test_a_device_that_fails_in_a_stream_is_an_error_event_and_done(served: Served) -> None:
    served.backend.fail_next(CallKind.VERIFY, DeviceFailed("the device said no."))
    *chunks, last = events(served.chat("hi", stream=True).text)
    assert last["error"]["message"] == "the device said no."
    assert all(chunk["choices"][0]["finish_reason"] is None for chunk in chunks)


def test_a_full_queue_is_a_429_that_says_when_to_come_back(text: ChatText) -> None:
    gate = Gate(CallKind.PREFILL)
    with serving(text, session_rows=(256,), queue_limit=1, on_call=gate) as served, asking(served, 2):
        assert gate.is_reached.wait(5)
        response = served.chat("hi")
        error = refusal(response, 429)
        assert error["code"] == "queue_full"
        assert int(response.headers["retry-after"]) > 0
        gate.open()
        served.wait_until(is_idle)
        assert served.chat("hi").status_code == 200


def test_a_server_that_is_ending_is_a_503_that_says_when_to_come_back(text: ChatText) -> None:
    with serving(text) as served:
        served.host.close(drain_s=0.0)
        response = served.chat("hi")
        error = refusal(response, 503)
        assert error["code"] == "shutting_down"
        assert int(response.headers["retry-after"]) > 0


def test_every_error_a_request_can_meet_has_its_own_line() -> None:
    made = {
        errors.ContextLengthExceeded(prompt_tokens=2, context_tokens=1): 400,
        errors.UnknownModel("a", ("b",)): 404,
        errors.UnknownResponse("a"): 404,
        errors.WrongKey(): 401,
        errors.BodyTooLarge(limit_bytes=1): 413,
        errors.RequestError("no."): 400,
        errors.QueueFull("no.", retry_after_s=1): 429,
        errors.ShuttingDown("no.", retry_after_s=1): 503,
        errors.Busy("no.", retry_after_s=1): 503,
        errors.DeviceFailed("no."): 500,
        errors.DeviceMemory("no."): 503,
    }
    assert {error: outcome(error).status for error in made} == made


@pytest.mark.parametrize(
    "kind",
    [item for item in vars(errors).values() if isinstance(item, type) and issubclass(item, HermitcrabError)],
)
def test_no_error_of_ours_is_without_an_outcome(kind: type[HermitcrabError]) -> None:
    error = kind.__new__(kind)
    Exception.__init__(error, "words")
    if isinstance(error, errors.RequestError):
        error.param = None
    assert error_body(error)["error"]["message"] == "words"


def test_a_bug_of_ours_is_a_500_without_its_insides(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    @served.app.get("/bug")
    async def bug() -> None:
        raise ZeroDivisionError("secret")

    error = refusal(served.send("GET", "/bug"), 500)
    assert "secret" not in error["message"]


KEYED = ServerOptions(MODEL, api_key="säcret")


@pytest.mark.parametrize(
    "headers",
    [{}, {"authorization": "säcret"}, {"authorization": "Bearer wrong"}, {"authorization": "Bearer"}],
)
def test_a_request_without_the_key_is_refused(text: ChatText, headers: dict[str, str]) -> None:
    with serving(text, options=KEYED) as served:
        given = [(name.encode(), value.encode()) for name, value in headers.items()]
        response = served.ask(ASK, headers=given)
        error = refusal(response, 401)
        assert error["code"] == "invalid_api_key"
        assert response.headers["www-authenticate"] == "Bearer"
        assert "crab" not in error["message"].replace("hermitcrab", "")


def test_a_request_with_the_key_is_served(text: ChatText) -> None:
    with serving(text, options=KEYED) as served:
        assert served.ask(ASK, headers=[(b"authorization", "bearer säcret".encode())]).status_code == 200


def test_health_needs_no_key(text: ChatText) -> None:
    with serving(text, options=KEYED) as served:
        assert served.send("GET", "/health").status_code == 200
        assert served.send("GET", "/v1/status").status_code == 401


def padded(length: int) -> bytes:
    """A good request of exactly this many bytes."""
    head = json.dumps(ASK)[:-1].encode() + b', "pad": "'
    return head + b"x" * (length - len(head) - 2) + b'"}'


LIMIT = ServerOptions(MODEL, max_body_bytes=4096)


@pytest.mark.parametrize(("length", "status"), [(4095, 200), (4096, 200), (4097, 413), (100_000, 413)])
def test_a_body_over_the_limit_is_refused(text: ChatText, length: int, status: int) -> None:
    with serving(text, options=LIMIT) as served:
        response = served.ask(padded(length))
        assert response.status_code == status
        if status == 413:
            assert "4096 bytes at most" in refusal(response, 413)["message"]


@pytest.mark.parametrize(("length", "status"), [(4096, 200), (4097, 413)])
def test_a_body_that_does_not_declare_its_length_meets_the_same_limit(
    text: ChatText, length: int, status: int
) -> None:
    async def pieces() -> Any:
        body = padded(length)
        for start in range(0, len(body), 100):
            yield body[start : start + 100]

    with serving(text, options=LIMIT) as served:
        assert served.send("POST", "/v1/chat/completions", content=pieces()).status_code == status


def test_an_endless_reply_is_cut_off_when_the_server_ends(text: ChatText) -> None:
    gate = Gate(CallKind.VERIFY)
    with serving(text, session_rows=(100_000,), on_call=gate) as served:
        with asking(served, 1, content=ENDLESS) as answers:
            assert gate.is_reached.wait(5)
            gate.open()
            served.host.close(drain_s=0.0)
        assert [answer.status_code for answer in answers] == [503]
