"""Any request that the published schema can make, and many it cannot: no stumble, and replies true to it."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from served import MODEL, Served, is_idle, serving

from hermitcrab.server.options import ServerOptions
from hermitcrab.server.text.chat import ChatText

# replies end soon, whatever they are asked to be
SESSION_ROWS = (160,) * 4
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
OPERATIONS = [
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/completions"),
    ("POST", "/v1/responses"),
    ("GET", "/v1/responses/{name}"),
    ("DELETE", "/v1/responses/{name}"),
    ("POST", "/v1/messages"),
    ("POST", "/v1/messages/count_tokens"),
    ("POST", "/tokenize"),
    ("POST", "/detokenize"),
    ("GET", "/v1/models"),
    ("GET", "/v1/models/{name}"),
    ("GET", "/v1/status"),
    ("GET", "/health"),
    ("GET", "/ready"),
    ("GET", "/metrics"),
    ("GET", "/"),
]


@pytest.fixture(scope="module")
def served(text: ChatText) -> Iterator[Served]:
    with serving(text, session_rows=SESSION_ROWS, options=ServerOptions(MODEL)) as made:
        yield made


@pytest.fixture(scope="module")
def schema(served: Served) -> Any:
    return schemathesis.openapi.from_asgi("/openapi.json", served.app)


def tried(operation: Any, mode: GenerationMode) -> list[int]:
    """The status of each answer to requests of the schema, or made to break it; each answer is checked."""
    statuses: list[int] = []

    @settings(
        max_examples=20,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def ask(case: Any) -> None:
        if mode is GenerationMode.POSITIVE and isinstance(case.body, dict):
            # the schema cannot know what the model is called
            case.body["model"] = MODEL
        statuses.append(case.call_and_validate(checks=CHECKS).status_code)

    ask()
    return statuses


@pytest.mark.parametrize(("method", "path"), OPERATIONS, ids=lambda part: part)
def test_what_the_schema_allows_is_answered_by_the_schema(
    served: Served, schema: Any, method: str, path: str
) -> None:
    statuses = tried(schema[path][method], GenerationMode.POSITIVE)
    # there is no model and no stored response of a made-up name
    assert (200 in statuses) is ("{name}" not in path)
    served.wait_until(is_idle)


@pytest.mark.parametrize("path", [path for method, path in OPERATIONS if method == "POST"])
def test_what_the_schema_does_not_allow_makes_nothing_stumble(served: Served, schema: Any, path: str) -> None:
    statuses = tried(schema[path]["POST"], GenerationMode.NEGATIVE)
    assert 400 in statuses
    served.wait_until(is_idle)


def test_every_route_of_the_schema_is_tried(schema: Any) -> None:
    described = json.loads(json.dumps(schema.raw_schema["paths"]))
    listed = {(method.lower(), path) for method, path in OPERATIONS}
    assert {(method, path) for path, methods in described.items() for method in methods} == listed
