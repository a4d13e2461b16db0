"""The whole HTTP side as one ASGI application."""

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response

import hermitcrab
from hermitcrab.clock import Clock, WallClock
from hermitcrab.core.api import Lanes
from hermitcrab.errors import HermitcrabError
from hermitcrab.server.auth import KeyCheck
from hermitcrab.server.desk import Desk
from hermitcrab.server.errors import OUR_FAULT, dialect_of, error_response, plain_error_body
from hermitcrab.server.limits import BodyLimit
from hermitcrab.server.metrics import CountResponses, ResponseCounts, make_registry
from hermitcrab.server.options import ServerOptions
from hermitcrab.server.presence import CLIENT_LEFT_STATUS, ClientLeft
from hermitcrab.server.routes.chat import chat_routes
from hermitcrab.server.routes.completions import completion_routes
from hermitcrab.server.routes.messages import message_routes
from hermitcrab.server.routes.metrics import metric_routes
from hermitcrab.server.routes.models import model_routes
from hermitcrab.server.routes.page import page_routes
from hermitcrab.server.routes.responses import response_routes
from hermitcrab.server.routes.status import status_routes
from hermitcrab.server.routes.tokens import token_routes
from hermitcrab.server.schema import DescribedApp
from hermitcrab.server.text.chat import ChatText


def create_app(lanes: Lanes, text: ChatText, options: ServerOptions, clock: Clock | None = None) -> FastAPI:
    """The application over an engine that the caller starts and stops; building it starts nothing."""
    desk = Desk(lanes, text, options, clock or WallClock())
    # the pages FastAPI would serve load their scripts from elsewhere; /openapi.json needs nothing
    app = DescribedApp(title="Hermitcrab", version=hermitcrab.__version__, docs_url=None, redoc_url=None)
    for routes in (
        chat_routes,
        completion_routes,
        message_routes,
        model_routes,
        response_routes,
        status_routes,
        token_routes,
    ):
        app.include_router(routes(desk))
    responses = ResponseCounts()
    app.include_router(metric_routes(make_registry(lanes, options, responses)))
    app.include_router(page_routes())
    app.add_exception_handler(HermitcrabError, _our_error)
    app.add_exception_handler(ClientDisconnect, _nobody_left)
    app.add_exception_handler(ClientLeft, _nobody_left)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _unforeseen)
    app.add_middleware(BodyLimit, limit_bytes=options.max_body_bytes)
    if options.api_key is not None:
        app.add_middleware(KeyCheck, key=options.api_key)
    # the last is the outermost: it sees refusals too
    app.add_middleware(CountResponses, counts=responses)
    return app


async def _our_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HermitcrabError)
    return error_response(error, request.url.path)


async def _nobody_left(_: Request, error: Exception) -> Response:
    # the client left before its request or its reply was whole; nobody will read this
    return Response(status_code=CLIENT_LEFT_STATUS)


async def _http_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    path = request.url.path
    message = f"{request.method} {path}: {error.detail}."
    body = plain_error_body(message, status=error.status_code, dialect=dialect_of(path))
    return JSONResponse(body, error.status_code, error.headers)


async def _unforeseen(request: Request, error: Exception) -> JSONResponse:
    return JSONResponse(plain_error_body(OUR_FAULT, status=500, dialect=dialect_of(request.url.path)), 500)
