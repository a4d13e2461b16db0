"""One table: our errors -> HTTP status and the OpenAI API's error body."""

from dataclasses import dataclass
from typing import Any

from starlette.responses import JSONResponse

from hermitcrab.errors import (
    BodyTooLarge,
    Busy,
    ContextLengthExceeded,
    HermitcrabError,
    QueueFull,
    RequestError,
    ShuttingDown,
    UnknownModel,
    WrongKey,
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an error shows: the HTTP status, and the body's type and code."""

    status: int
    type: str
    code: str | None


# the first class that an error is an instance of decides
_TABLE: tuple[tuple[type[HermitcrabError], Outcome], ...] = (
    (ContextLengthExceeded, Outcome(400, "invalid_request_error", "context_length_exceeded")),
    (UnknownModel, Outcome(404, "invalid_request_error", "model_not_found")),
    (WrongKey, Outcome(401, "invalid_request_error", "invalid_api_key")),
    (BodyTooLarge, Outcome(413, "invalid_request_error", "body_too_large")),
    (RequestError, Outcome(400, "invalid_request_error", None)),
    (QueueFull, Outcome(429, "rate_limit_error", "queue_full")),
    (ShuttingDown, Outcome(503, "server_error", "shutting_down")),
    (Busy, Outcome(503, "server_error", "busy")),
    (HermitcrabError, Outcome(500, "server_error", "engine_error")),
)

OUR_FAULT = "The server failed on this request; its log says why."


def outcome(error: HermitcrabError) -> Outcome:
    """The table's line for an error."""
    return next(line for kind, line in _TABLE if isinstance(error, kind))


def error_body(error: HermitcrabError) -> dict[str, Any]:
    """The error as the API's JSON."""
    line = outcome(error)
    param = error.param if isinstance(error, RequestError) else None
    return plain_error_body(str(error), kind=line.type, code=line.code, param=param)


def plain_error_body(
    message: str, *, kind: str, code: str | None = None, param: str | None = None
) -> dict[str, Any]:
    """An error body for what is no error of ours, such as an unknown route."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def error_response(error: HermitcrabError) -> JSONResponse:
    """The whole answer to a request that failed before its reply began."""
    headers = {}
    if isinstance(error, Busy):
        headers["Retry-After"] = str(error.retry_after_s)
    if isinstance(error, WrongKey):
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(error_body(error), outcome(error).status, headers)
