"""One table: our errors -> HTTP status and the error body of the dialect that the request spoke."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from starlette.responses import JSONResponse

from hermitcrab.errors import (
    BodyTooLarge,
    Busy,
    ContextLengthExceeded,
    DeviceMemory,
    HermitcrabError,
    QueueFull,
    RequestError,
    ShuttingDown,
    UnknownModel,
    UnknownResponse,
    WrongKey,
)


class Dialect(StrEnum):
    """Whose shape an error takes."""

    OPENAI = "openai"
    ANTHROPIC = "anthropic"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an error shows in OpenAI's API: the HTTP status, and the body's type and code."""

    status: int
    type: str
    code: str | None


# the first class that an error is an instance of decides
_TABLE: tuple[tuple[type[HermitcrabError], Outcome], ...] = (
    (ContextLengthExceeded, Outcome(400, "invalid_request_error", "context_length_exceeded")),
    (UnknownModel, Outcome(404, "invalid_request_error", "model_not_found")),
    (UnknownResponse, Outcome(404, "invalid_request_error", "previous_response_not_found")),
    (WrongKey, Outcome(401, "invalid_request_error", "invalid_api_key")),
    (BodyTooLarge, Outcome(413, "invalid_request_error", "body_too_large")),
    (RequestError, Outcome(400, "invalid_request_error", None)),
    (QueueFull, Outcome(429, "rate_limit_error", "queue_full")),
    (ShuttingDown, Outcome(503, "server_error", "shutting_down")),
    (Busy, Outcome(503, "server_error", "busy")),
    (DeviceMemory, Outcome(503, "server_error", "out_of_memory")),
    (HermitcrabError, Outcome(500, "server_error", "engine_error")),
)

# Anthropic's API knows an error by its type alone, and has a type for each status
_ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
    405: "invalid_request_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    529: "overloaded_error",
}
# what others call 503 is 529 there
_ANTHROPIC_STATUSES = {503: 529}

# what took the memory is likely to be over by then
_MEMORY_RETRY_S = 1

OUR_FAULT = "The server failed on this request; its log says why."


def dialect_of(path: str) -> Dialect:
    """The dialect that a request to this path speaks."""
    return Dialect.ANTHROPIC if path == "/v1/messages" or path.startswith("/v1/messages/") else Dialect.OPENAI


def outcome(error: HermitcrabError) -> Outcome:
    """The table's line for an error."""
    return next(line for kind, line in _TABLE if isinstance(error, kind))


def status_of(error: HermitcrabError, dialect: Dialect) -> int:
    """The HTTP status."""
    return _status_in(dialect, outcome(error).status)


def error_body(error: HermitcrabError, dialect: Dialect = Dialect.OPENAI) -> dict[str, Any]:
    """The error as the API's JSON."""
    line = outcome(error)
    if dialect is Dialect.ANTHROPIC:
        return plain_error_body(_words_for_anthropic(error), status=line.status, dialect=dialect)
    param = error.param if isinstance(error, RequestError) else None
    return _openai_body(str(error), kind=line.type, code=line.code, param=param)


def plain_error_body(message: str, *, status: int, dialect: Dialect) -> dict[str, Any]:
    """An error body for what is no error of ours, such as an unknown route."""
    if dialect is Dialect.OPENAI:
        kind = "server_error" if status >= 500 else "invalid_request_error"
        return _openai_body(message, kind=kind, code=None, param=None)
    kind = _ANTHROPIC_TYPES.get(_status_in(dialect, status), "api_error")
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": None}


def error_response(error: HermitcrabError, path: str) -> JSONResponse:
    """The whole answer to a request to `path` that failed before its reply began."""
    headers = {}
    if isinstance(error, Busy):
        headers["Retry-After"] = str(error.retry_after_s)
    if isinstance(error, DeviceMemory):
        headers["Retry-After"] = str(_MEMORY_RETRY_S)
    if isinstance(error, WrongKey):
        headers["WWW-Authenticate"] = "Bearer"
    dialect = dialect_of(path)
    return JSONResponse(error_body(error, dialect), status_of(error, dialect), headers)


def _status_in(dialect: Dialect, status: int) -> int:
    return _ANTHROPIC_STATUSES.get(status, status) if dialect is Dialect.ANTHROPIC else status


def _openai_body(message: str, *, kind: str, code: str | None, param: str | None) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def _words_for_anthropic(error: HermitcrabError) -> str:
    """The error's words; a prompt that is too long in the words by which coding agents know to compact it."""
    if isinstance(error, ContextLengthExceeded):
        return f"prompt is too long: {error.prompt_tokens} tokens > {error.context_tokens} maximum"
    return str(error)
