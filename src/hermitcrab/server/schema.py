"""The schema at /openapi.json: each route's request body, from the model that reads it, and its replies."""

from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import models_json_schema

from hermitcrab.core.api import Status
from hermitcrab.server.wire import shapes
from hermitcrab.server.wire.anthropic import CountRequest, MessagesRequest
from hermitcrab.server.wire.body import RequestModel
from hermitcrab.server.wire.openai import ChatRequest, CompletionRequest
from hermitcrab.server.wire.responses import ResponsesRequest
from hermitcrab.server.wire.tokens import DetokenizeRequest, TokenizeRequest

_REQUESTS: Sequence[type[RequestModel]] = (
    ChatRequest,
    CompletionRequest,
    CountRequest,
    DetokenizeRequest,
    MessagesRequest,
    ResponsesRequest,
    TokenizeRequest,
)
_REPLIES: Sequence[type[shapes.Shape]] = (
    shapes.AnthropicError,
    shapes.AnthropicMessage,
    shapes.ChatCompletion,
    shapes.DeletedResponse,
    shapes.Error,
    shapes.Health,
    shapes.ModelCard,
    shapes.ModelList,
    shapes.OpenAiResponse,
    shapes.Readiness,
    shapes.Text,
    shapes.TextCompletion,
    shapes.TokenCount,
    shapes.Tokens,
)
_PLACE = "#/components/schemas/{model}"

Part = dict[str, Any]


def takes(request: type[RequestModel]) -> Part:
    """A route's request body, for FastAPI's `openapi_extra`."""
    return {"requestBody": {"required": True, "content": _json(_reference(request))}}


def gives(
    reply: type[shapes.Shape] | None = None,
    *,
    streams: bool = False,
    media_type: str | None = None,
    error: type[shapes.Shape] = shapes.Error,
    busy: type[shapes.Shape] | None = None,
) -> dict[int | str, Part]:
    """A route's answers, for FastAPI's `responses`: a JSON `reply`, or a text of `media_type`, or an error.

    `streams` adds the same as events. `busy` is what a 503 holds where that is no error.
    """
    content: Part = {} if reply is None else _json(_reference(reply))
    if media_type is not None:
        content[media_type] = {"schema": {"type": "string"}}
    if streams:
        content["text/event-stream"] = {"schema": {"type": "string"}}
    failure = {"description": "What is wrong.", "content": _json(_reference(error))}
    answers: dict[int | str, Part] = {200: {"description": "The reply.", "content": content}}
    if busy is not None:
        answers[503] = {"description": "Not now.", "content": _json(_reference(busy))}
    return answers | {"4XX": failure, "5XX": failure}


def status_reply() -> dict[int | str, Part]:
    """The answers of /v1/status, whose fields are those of the engine's own snapshot, timings apart."""
    schema = TypeAdapter(Status).json_schema(ref_template=_PLACE)
    schema.pop("$defs")
    named = {
        "version": {"type": "string"},
        "model": {"type": "string"},
        "context_tokens": {"type": "integer"},
    }
    fields = {**named, **schema["properties"]}
    del fields["timings"]
    told = {**schema, "properties": fields, "required": list(fields), "additionalProperties": False}
    return gives() | {200: {"description": "The snapshot.", "content": _json(told)}}


class DescribedApp(FastAPI):
    """An application whose schema has the models of its requests and replies."""

    def openapi(self) -> Part:
        """The schema, made at the first call."""
        if self.openapi_schema is None:
            schema = super().openapi()
            schema.setdefault("components", {}).setdefault("schemas", {}).update(_components())
        assert self.openapi_schema is not None
        return self.openapi_schema


def _components() -> Part:
    """Every model by its name."""
    models: Sequence[type[BaseModel]] = (*_REQUESTS, *_REPLIES)
    _, named = models_json_schema([(model, "validation") for model in models], ref_template=_PLACE)
    schemas: Part = named["$defs"]
    for request in _REQUESTS:
        fields = schemas[request.__name__]["properties"]
        for field, harmless in getattr(request, "not_yet", {}).items():
            fields[field] = {"enum": [None, *harmless], "description": "Refused where it asks for more."}
    status: Part = TypeAdapter(Status).json_schema(ref_template=_PLACE)["$defs"]
    return {**status, **schemas}


def _reference(model: type[BaseModel]) -> Part:
    return {"$ref": _PLACE.format(model=model.__name__)}


def _json(schema: Part) -> Part:
    return {"application/json": {"schema": schema}}
