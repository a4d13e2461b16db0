"""POST /v1/completions: the prompt as it stands, without a template."""

import asyncio
from collections.abc import Iterable
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from hermitcrab.core.api import Finished
from hermitcrab.server.desk import Desk
from hermitcrab.server.presence import CLIENT_LEFT_STATUS, ClientLeft
from hermitcrab.server.text.chat import Prompt
from hermitcrab.server.text.marks import spelled
from hermitcrab.server.text.stream import TextStream
from hermitcrab.server.wire.body import read_body
from hermitcrab.server.wire.openai import CompletionRequest
from hermitcrab.server.wire.openai_replies import (
    Heading,
    extension_body,
    finish_word,
    text_chunk,
    text_completion,
    usage_body,
    usage_chunk,
)


def completion_routes(desk: Desk) -> APIRouter:
    """The route, serving from `desk`."""
    router = APIRouter()

    @router.post("/v1/completions")
    async def completions(request: Request) -> Response:
        """Go on from a prompt, whole or streamed."""
        asked = read_body(await request.body(), CompletionRequest)
        asked.check()
        desk.check_model(asked.model)
        prompt = await asyncio.to_thread(_prompt, desk, asked.only_prompt)
        heading = desk.heading("cmpl")
        echo = _echo(desk, asked, prompt)
        text = desk.text.reply_text(asked.stop)
        reply = desk.submit(heading, asked, prompt, most_tokens=asked.max_tokens)
        seed = reply.request.sampling.seed
        if asked.wants_stream:
            writer = TextWriter(heading, text, seed, echo=echo, wants_usage=asked.wants_usage)
            return desk.stream(reply, writer)
        pieces = [echo]
        try:
            finished = await desk.gather(reply, lambda ids: pieces.append(text.push(ids)), request.receive)
        except ClientLeft:
            return Response(status_code=CLIENT_LEFT_STATUS)
        pieces.append(text.finish())
        return JSONResponse(
            text_completion(
                heading,
                spelled("".join(pieces)),
                finish_word(finished.reason),
                usage_body(finished.usage),
                extension_body(finished.usage, seed=seed),
            )
        )

    return router


class TextWriter:
    """The chunks of one plain stream."""

    def __init__(
        self, heading: Heading, text: TextStream, seed: int, *, echo: str, wants_usage: bool
    ) -> None:
        self._heading = heading
        self._text = text
        self._seed = seed
        self._echo = echo
        self._wants_usage = wants_usage

    def open(self) -> Iterable[dict[str, Any]]:
        """The prompt, where it is to be repeated."""
        return self._chunks(self._echo)

    def tokens(self, ids: tuple[int, ...]) -> Iterable[dict[str, Any]]:
        """A chunk for what the tokens make certain."""
        return self._chunks(self._text.push(ids))

    def close(self, finished: Finished) -> Iterable[dict[str, Any]]:
        """What was held back with the finish reason and the extension block; usage if it was asked for."""
        yield {
            **text_chunk(self._heading, spelled(self._text.finish()), finish_word(finished.reason)),
            "hermitcrab": extension_body(finished.usage, seed=self._seed),
        }
        if self._wants_usage:
            yield usage_chunk(self._heading, "text_completion", usage_body(finished.usage))

    def _chunks(self, text: str) -> list[dict[str, Any]]:
        return [text_chunk(self._heading, spelled(text))] if text else []


def _prompt(desk: Desk, given: str | tuple[int, ...]) -> Prompt:
    return desk.text.raw_prompt(given) if isinstance(given, str) else desk.text.token_prompt(given)


def _echo(desk: Desk, asked: CompletionRequest, prompt: Prompt) -> str:
    if not asked.echo:
        return ""
    given = asked.only_prompt
    return given if isinstance(given, str) else desk.text.text_of(prompt.ids)
