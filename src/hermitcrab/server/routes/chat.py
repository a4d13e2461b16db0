"""POST /v1/chat/completions."""

import asyncio
from collections.abc import Iterable
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from hermitcrab.core.api import Finished
from hermitcrab.errors import RequestError
from hermitcrab.server.conversation import template_messages, template_tools
from hermitcrab.server.desk import Desk
from hermitcrab.server.presence import CLIENT_LEFT_STATUS, ClientLeft
from hermitcrab.server.reading import Piece, ReplyReader
from hermitcrab.server.text.chat import Prompt
from hermitcrab.server.tools.qwen_xml import ToolCall
from hermitcrab.server.wire.body import read_body
from hermitcrab.server.wire.openai import ChatRequest
from hermitcrab.server.wire.openai_replies import (
    Heading,
    chat_chunk,
    chat_completion,
    chat_deltas,
    chat_message,
    extension_body,
    finish_word,
    usage_body,
    usage_chunk,
)


def chat_routes(desk: Desk) -> APIRouter:
    """The route, serving from `desk`."""
    router = APIRouter()

    @router.post("/v1/chat/completions")
    async def chat_completions(request: Request) -> Response:
        """Reply to a conversation, whole or streamed."""
        asked = read_body(await request.body(), ChatRequest)
        asked.check()
        desk.check_model(asked.model)
        # a long conversation takes a while to render and encode: not on the loop that everyone shares
        prompt = await asyncio.to_thread(_prompt, desk, asked)
        heading = desk.heading("chatcmpl")
        reader = ReplyReader(
            desk.text,
            stops=asked.stop,
            is_thinking=prompt.is_thinking,
            parameters={tool.function.name: tool.function.parameters or {} for tool in asked.usable_tools},
        )
        reply = desk.submit(heading, asked, prompt, most_tokens=asked.most_tokens)
        seed = reply.request.sampling.seed
        if asked.wants_stream:
            return desk.stream(reply, ChatWriter(heading, reader, seed, wants_usage=asked.wants_usage))
        pieces: list[Piece] = []
        try:
            finished = await desk.gather(reply, lambda ids: pieces.extend(reader.push(ids)), request.receive)
        except ClientLeft:
            return Response(status_code=CLIENT_LEFT_STATUS)
        pieces += reader.finish()
        return JSONResponse(
            chat_completion(
                heading,
                chat_message(pieces),
                finish_word(finished.reason, has_called=reader.has_called),
                usage_body(finished.usage, reasoning_tokens=reader.reasoning_tokens),
                extension_body(finished.usage, seed=seed),
            )
        )

    return router


class ChatWriter:
    """The chunks of one chat stream."""

    def __init__(self, heading: Heading, reader: ReplyReader, seed: int, *, wants_usage: bool) -> None:
        self._heading = heading
        self._reader = reader
        self._seed = seed
        self._wants_usage = wants_usage
        self._calls = 0

    def open(self) -> Iterable[dict[str, Any]]:
        """The role, so that a client sees at once that its request is taken."""
        return (chat_chunk(self._heading, {"role": "assistant", "content": ""}),)

    def tokens(self, ids: tuple[int, ...]) -> Iterable[dict[str, Any]]:
        """Chunks for what the tokens make certain."""
        return self._chunks(self._reader.push(ids))

    def close(self, finished: Finished) -> Iterable[dict[str, Any]]:
        """What was held back, the finish reason with the extension block, and usage if it was asked for."""
        yield from self._chunks(self._reader.finish())
        word = finish_word(finished.reason, has_called=self._reader.has_called)
        yield {
            **chat_chunk(self._heading, {}, word),
            "hermitcrab": extension_body(finished.usage, seed=self._seed),
        }
        if self._wants_usage:
            usage = usage_body(finished.usage, reasoning_tokens=self._reader.reasoning_tokens)
            yield usage_chunk(self._heading, "chat.completion.chunk", usage)

    def _chunks(self, pieces: list[Piece]) -> list[dict[str, Any]]:
        deltas = chat_deltas(pieces, calls_before=self._calls)
        self._calls += sum(isinstance(piece, ToolCall) for piece in pieces)
        return [chat_chunk(self._heading, delta) for delta in deltas]


def _prompt(desk: Desk, asked: ChatRequest) -> Prompt:
    return desk.text.chat_prompt(
        template_messages(asked.messages), template_tools(asked.usable_tools), _switches(desk, asked)
    )


def _switches(desk: Desk, asked: ChatRequest) -> dict[str, Any]:
    """The template's switches; the request's own fields win over chat_template_kwargs, effort `none` is off.

    Raises RequestError for an effort that is no level, and a thinking switch that is neither on nor off.
    """
    switches = dict(asked.chat_template_kwargs or {})
    if not isinstance(switches.get("enable_thinking", True), bool):
        raise RequestError("enable_thinking must be true or false.", param="chat_template_kwargs")
    effort = (
        asked.reasoning_effort if asked.reasoning_effort is not None else switches.get("reasoning_effort")
    )
    switches.pop("reasoning_effort", None)
    if asked.enable_thinking is not None:
        switches["enable_thinking"] = asked.enable_thinking
    if effort == "none":
        switches.setdefault("enable_thinking", False)
    elif effort is not None:
        level = desk.text.effort(effort)
        if level is not None:
            switches["reasoning_effort"] = level
    return switches
