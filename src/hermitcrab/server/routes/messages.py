"""POST /v1/messages and /v1/messages/count_tokens: Anthropic's dialect."""

from collections.abc import Iterable

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from hermitcrab.core.api import Finished, Tokens
from hermitcrab.errors import HermitcrabError
from hermitcrab.server.desk import Desk
from hermitcrab.server.errors import Dialect, error_body
from hermitcrab.server.schema import gives, takes
from hermitcrab.server.sse import MESSAGES, Chunk
from hermitcrab.server.turn import OpenTurn, Turn, open_turn, template_switches, turn_prompt
from hermitcrab.server.wire.anthropic import CountRequest, MessagesRequest
from hermitcrab.server.wire.anthropic_replies import (
    BlockList,
    finished_usage,
    message_body,
    message_usage,
    not_stopped,
    stop_fields,
)
from hermitcrab.server.wire.body import read_body
from hermitcrab.server.wire.openai_replies import extension_body
from hermitcrab.server.wire.shapes import AnthropicError, AnthropicMessage, TokenCount


def message_routes(desk: Desk) -> APIRouter:
    """The routes, serving from `desk`."""
    router = APIRouter()

    @router.post(
        "/v1/messages",
        openapi_extra=takes(MessagesRequest),
        responses=gives(AnthropicMessage, streams=True, error=AnthropicError),
    )
    async def messages(request: Request) -> Response:
        """Reply to a conversation, whole or streamed."""
        asked = read_body(await request.body(), MessagesRequest)
        asked.check()
        desk.check_model(asked.model)
        turn = _turn(desk, asked, stops=asked.stop_sequences, most_tokens=asked.max_tokens)
        heading = desk.heading("msg_")
        opened = await open_turn(desk, heading, turn)
        if asked.wants_stream:
            return desk.stream(opened.reply, [MessageWriter(opened)], MESSAGES)
        (reply,) = await opened.whole(desk, request.receive)
        blocks = BlockList()
        blocks.push(reply.pieces)
        blocks.close()
        body = message_body(
            heading,
            blocks.blocks,
            stop_fields(reply.finished.reason, reply.reader),
            finished_usage(reply.finished.usage, thinking_tokens=reply.reader.reasoning_tokens),
        )
        return JSONResponse({**body, "hermitcrab": extension_body(reply.finished.usage, seed=reply.seed)})

    @router.post(
        "/v1/messages/count_tokens",
        openapi_extra=takes(CountRequest),
        responses=gives(TokenCount, error=AnthropicError),
    )
    async def count_tokens(request: Request) -> Response:
        """The tokens of a conversation, as a request with it would be charged."""
        asked = read_body(await request.body(), CountRequest)
        asked.check()
        desk.check_model(asked.model)
        prompt = await turn_prompt(desk, _turn(desk, asked, stops=(), most_tokens=None))
        return JSONResponse({"input_tokens": len(prompt.ids)})

    return router


def _turn(desk: Desk, asked: CountRequest, *, stops: tuple[str, ...], most_tokens: int | None) -> Turn:
    switches = template_switches(desk, {}, is_thinking=asked.is_thinking, effort=asked.effort)
    wishes = asked.wishes(stops=stops, most_tokens=most_tokens)
    return Turn(asked.conversation(), asked.usable_tools(), switches, wishes, asked.calling)


class MessageWriter:
    """The events of one streamed message."""

    def __init__(self, opened: OpenTurn) -> None:
        self._heading = opened.heading
        self._prompt_tokens = len(opened.prompt.ids)
        (self._reader,) = opened.readers
        (self._seed,) = opened.seeds
        self._blocks = BlockList()

    def open(self) -> Iterable[Chunk]:
        """The message without its content, so that a client sees at once that its request is taken."""
        usage = message_usage(input_tokens=self._prompt_tokens, output_tokens=0, thinking_tokens=0)
        return ({"type": "message_start", "message": message_body(self._heading, (), not_stopped(), usage)},)

    def tokens(self, told: Tokens) -> Iterable[Chunk]:
        """Events for what the tokens make certain."""
        return self._blocks.push(self._reader.push(told.ids))

    def close(self, finished: Finished) -> Iterable[Chunk]:
        """What was held back, and why the message ends, with its usage and the extension block."""
        yield from self._blocks.push(self._reader.finish())
        yield from self._blocks.close()
        yield {
            "type": "message_delta",
            "delta": stop_fields(finished.reason, self._reader),
            "usage": finished_usage(finished.usage, thinking_tokens=self._reader.reasoning_tokens),
            "hermitcrab": extension_body(finished.usage, seed=self._seed),
        }
        yield {"type": "message_stop"}

    def fail(self, error: HermitcrabError) -> Iterable[Chunk]:
        """The error, in the shape it has outside a stream."""
        return (error_body(error, Dialect.ANTHROPIC),)
