"""Models, health and status: true to the lanes, and never behind the engine thread."""

from collections.abc import Iterator

import pytest
from served import MODEL, RANDOM, Gate, Served, asking, is_idle, serving

import hermitcrab
from hermitcrab.clock import ScriptedClock
from hermitcrab.core.fake import CallKind
from hermitcrab.server.options import ServerOptions
from hermitcrab.server.text.chat import ChatText


@pytest.fixture(scope="module")
def served(text: ChatText) -> Iterator[Served]:
    with serving(text, session_rows=(512, 64, 256, 64), grow_tokens=16) as made:
        yield made


def test_the_models_list_has_the_one_model_with_its_context(served: Served) -> None:
    body = served.send("GET", "/v1/models").json()
    assert body["object"] == "list"
    (model,) = body["data"]
    assert (model["id"], model["object"], model["aliases"]) == (MODEL, "model", ["crab"])
    assert model["context_length"] == model["max_model_len"] == served.host.context_tokens


@pytest.mark.parametrize("name", [MODEL, "crab"])
def test_a_model_is_found_under_its_id_and_its_aliases(served: Served, name: str) -> None:
    assert served.send("GET", f"/v1/models/{name}").json()["id"] == MODEL


def test_a_model_id_may_have_slashes(text: ChatText) -> None:
    with serving(text, options=ServerOptions("hub/crab")) as served:
        assert served.send("GET", "/v1/models/hub/crab").json()["id"] == "hub/crab"


def test_status_lists_the_sessions_from_the_smallest_up(served: Served) -> None:
    body = served.send("GET", "/v1/status").json()
    assert [session["capacity_rows"] for session in body["sessions"]] == [64, 64, 256, 512]
    assert [session["slot"] for session in body["sessions"]] == [1, 3, 2, 0]
    assert body["version"] == hermitcrab.__version__
    assert body["model"] == MODEL


def test_status_shows_a_stream_in_its_session(text: ChatText) -> None:
    gate = Gate(CallKind.VERIFY)
    with serving(text, session_rows=(512, 64), grow_tokens=16, on_call=gate) as served:
        with asking(served, 1):
            assert gate.is_reached.wait(5)
            body = served.send("GET", "/v1/status").json()
            gate.open()
        (stream,) = body["streams"]
        assert (stream["state"], stream["slot"]) == ("live", 1)
        assert body["sessions"][0]["request_id"] == stream["request_id"]


def test_status_counts_what_was_served(text: ChatText) -> None:
    with serving(text) as served:
        usage = served.chat("hi").json()["usage"]
        served.chat("hi")
        body = served.send("GET", "/v1/status").json()
        assert body["requests_finished"] == 2
        assert body["prompt_tokens"] == 2 * usage["prompt_tokens"]
        assert body["reply_tokens"] == 2 * usage["completion_tokens"]
        assert body["streams"] == []


def test_an_idle_server_is_healthy(served: Served) -> None:
    response = served.send("GET", "/health")
    assert (response.status_code, response.json()["status"]) == (200, "ok")


def test_an_engine_stuck_with_work_is_unhealthy_and_the_answer_does_not_wait_for_it(text: ChatText) -> None:
    clock, gate = ScriptedClock(), Gate(CallKind.PREFILL)
    with serving(text, clock=clock, on_call=gate) as served:
        with asking(served, 1):
            assert gate.is_reached.wait(5)
            assert served.send("GET", "/health").status_code == 200
            clock.advance(61.0)
            response = served.send("GET", "/health")
            assert (response.status_code, response.json()["status"]) == (503, "stuck")
            gate.open()
        served.wait_until(is_idle)
        assert served.send("GET", "/health").status_code == 200


def test_an_idle_engine_is_never_stuck(text: ChatText) -> None:
    clock = ScriptedClock()
    with serving(text, clock=clock) as served:
        clock.advance(1e6)
        assert served.send("GET", "/health").status_code == 200


def test_a_draining_server_says_so(text: ChatText) -> None:
    with serving(text) as served:
        served.host.close(drain_s=0.0)
        assert served.send("GET", "/health").json()["status"] == "draining"


def test_a_server_is_ready_until_it_ends(text: ChatText) -> None:
    with serving(text) as served:
        response = served.send("GET", "/ready")
        assert (response.status_code, response.json()["status"]) == (200, "ready")
        served.host.close(drain_s=0.0)
        response = served.send("GET", "/ready")
        assert (response.status_code, response.json()["status"]) == (503, "draining")
        # alive all the same: a probe must not kill a server that lets its replies end
        assert served.send("GET", "/health").status_code == 200


def test_a_stuck_engine_is_not_ready(text: ChatText) -> None:
    clock, gate = ScriptedClock(), Gate(CallKind.PREFILL)
    with serving(text, clock=clock, on_call=gate) as served, asking(served, 1):
        assert gate.is_reached.wait(5)
        clock.advance(61.0)
        response = served.send("GET", "/ready")
        assert (response.status_code, response.json()["status"]) == (503, "stuck")
        gate.open()


@pytest.mark.parametrize("path", ["/", "/health", "/ready"])
def test_probes_and_the_page_need_no_key(text: ChatText, path: str) -> None:
    with serving(text, options=ServerOptions(MODEL, api_key="k")) as served:
        assert served.send("GET", path).status_code == 200
        assert served.send("GET", f"{path.rstrip('/')}/x").status_code == 401


def test_status_tells_moves_by_number(text: ChatText) -> None:
    with serving(text, session_rows=(512, 64), grow_tokens=16) as served:
        asked = served.chat(RANDOM, max_tokens=200, ignore_eos=True).json()
        (move,) = served.send("GET", "/v1/status").json()["recent_moves"]
        assert (move["number"], move["request_id"]) == (1, asked["id"])
        assert (move["source_slot"], move["target_slot"]) == (1, 0)


def test_the_schema_names_every_route(served: Served) -> None:
    paths = served.send("GET", "/openapi.json").json()["paths"]
    assert set(paths) == {
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/responses",
        "/v1/responses/{name}",
        "/v1/messages",
        "/v1/messages/count_tokens",
        "/tokenize",
        "/detokenize",
        "/v1/models",
        "/v1/models/{name}",
        "/",
        "/health",
        "/ready",
        "/metrics",
        "/v1/status",
    }
