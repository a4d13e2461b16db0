"""POST /v1/responses: OpenAI's newer dialect, with its typed events and responses to go on from."""

import json
from collections.abc import Callable, Iterable
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from hermitcrab.core.api import Finished, Tokens
from hermitcrab.errors import HermitcrabError
from hermitcrab.server.desk import Desk
from hermitcrab.server.kept import KeptResponses
from hermitcrab.server.schema import gives, takes
from hermitcrab.server.sse import RESPONSES, Chunk
from hermitcrab.server.turn import OpenTurn, Turn, WholeReply, open_turn, template_switches
from hermitcrab.server.wire.body import read_body
from hermitcrab.server.wire.openai_replies import extension_body
from hermitcrab.server.wire.responses import ResponsesRequest, read_output
from hermitcrab.server.wire.responses_replies import (
    OutputList,
    begun_response,
    ended_response,
    failed_response,
    is_whole,
    response_head,
    response_usage,
)
from hermitcrab.server.wire.shapes import DeletedResponse, OpenAiResponse


def response_routes(desk: Desk) -> APIRouter:
    """The routes, serving from `desk`, and the responses they keep."""
    router = APIRouter()
    kept = KeptResponses()

    @router.post(
        "/v1/responses", openapi_extra=takes(ResponsesRequest), responses=gives(OpenAiResponse, streams=True)
    )
    async def responses(request: Request) -> Response:
        """Reply to a conversation, whole or streamed."""
        body = await request.body()
        asked = read_body(body, ResponsesRequest)
        asked.check()
        desk.check_model(asked.model)
        before = kept.get(asked.previous_response_id)
        heading = desk.heading("resp_")
        switches = template_switches(desk, {}, is_thinking=None, effort=asked.effort)
        wishes = asked.wishes(stops=(), most_tokens=asked.max_output_tokens)
        said = asked.conversation_after(before.items)
        turn = Turn(said, asked.usable_tools(), switches, wishes, asked.calling)
        opened = await open_turn(desk, heading, turn)

        def keep(response: dict[str, Any]) -> None:
            if asked.is_kept:
                items = (*asked.input, *read_output(response["output"]))
                size_bytes = len(body) + len(json.dumps(response))
                kept.keep(heading.id, before, items, response, size_bytes=size_bytes)

        writer = ResponseWriter(desk, opened, asked, keep)
        if asked.wants_stream:
            return desk.stream(opened.reply, [writer], RESPONSES)
        (reply,) = await opened.whole(desk, request.receive)
        return JSONResponse(writer.whole(reply))

    @router.get("/v1/responses/{name}", responses=gives(OpenAiResponse))
    async def kept_response(name: str) -> Response:
        """A stored response, as it ended."""
        return JSONResponse(dict(kept.get(name).response))

    @router.delete("/v1/responses/{name}", responses=gives(DeletedResponse))
    async def delete_response(name: str) -> Response:
        """Forget a stored response."""
        kept.delete(name)
        return JSONResponse({"id": name, "object": "response", "deleted": True})

    return router


class ResponseWriter:
    """One response, whole or as its events; `keep` gets it once it has ended."""

    def __init__(
        self,
        desk: Desk,
        opened: OpenTurn,
        asked: ResponsesRequest,
        keep: Callable[[dict[str, Any]], None],
    ) -> None:
        self._desk = desk
        self._head = response_head(opened.heading, asked, opened.reply.requests[0].sampling)
        (self._reader,) = opened.readers
        (self._seed,) = opened.seeds
        self._keep = keep
        self._output = OutputList()
        self._events_sent = 0

    def open(self) -> Iterable[Chunk]:
        """The response without its output, so that a client sees at once that its request is taken."""
        begun = begun_response(self._head)
        kinds = ("response.created", "response.in_progress")
        return self._numbered([{"type": kind, "response": begun} for kind in kinds])

    def tokens(self, told: Tokens) -> Iterable[Chunk]:
        """Events for what the tokens make certain."""
        return self._numbered(self._output.push(self._reader.push(told.ids)))

    def close(self, finished: Finished) -> Iterable[Chunk]:
        """What was held back, and the whole response."""
        yield from self._numbered(self._output.push(self._reader.finish()))
        yield from self._numbered(self._output.close(is_whole=is_whole(finished.reason)))
        response = self._ended(finished)
        yield from self._numbered([{"type": f"response.{response['status']}", "response": response}])

    def fail(self, error: HermitcrabError) -> Iterable[Chunk]:
        """The response as far as it came, with the error in it."""
        self._output.close(is_whole=False)
        response = failed_response(self._head, self._output.items, error)
        return self._numbered([{"type": "response.failed", "response": response}])

    def whole(self, reply: WholeReply) -> dict[str, Any]:
        """The response to a client that did not ask for a stream."""
        self._output.push(reply.pieces)
        self._output.close(is_whole=is_whole(reply.finished.reason))
        return self._ended(reply.finished)

    def _ended(self, finished: Finished) -> dict[str, Any]:
        response = ended_response(
            self._head,
            self._output.items,
            is_whole=is_whole(finished.reason),
            usage=response_usage(finished.usage, reasoning_tokens=self._reader.reasoning_tokens),
            completed_unix_s=self._desk.clock.unix_s(),
        )
        response["hermitcrab"] = extension_body(finished.usage, seed=self._seed)
        self._keep(response)
        return response

    def _numbered(self, events: list[Chunk]) -> list[Chunk]:
        first = self._events_sent
        self._events_sent += len(events)
        return [{**event, "sequence_number": first + at} for at, event in enumerate(events)]
