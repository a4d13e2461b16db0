"""POST /tokenize and /detokenize: what a prompt is to the model, and back."""

import asyncio
from collections.abc import Sequence

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from hermitcrab.errors import RequestError
from hermitcrab.server.desk import Desk
from hermitcrab.server.routes.chat import chat_turn
from hermitcrab.server.schema import gives, takes
from hermitcrab.server.text.vocabulary import Vocabulary
from hermitcrab.server.turn import turn_prompt
from hermitcrab.server.wire.body import read_body
from hermitcrab.server.wire.openai import ChatRequest
from hermitcrab.server.wire.shapes import Text, Tokens
from hermitcrab.server.wire.tokens import DetokenizeRequest, TokenizeRequest


def token_routes(desk: Desk) -> APIRouter:
    """The routes, serving from `desk`."""
    router = APIRouter()
    vocabulary = desk.text.vocabulary

    @router.post("/tokenize", openapi_extra=takes(TokenizeRequest), responses=gives(Tokens))
    async def tokenize(request: Request) -> Response:
        """The tokens of a text, or of the prompt that a chat request with these fields would be."""
        body = await request.body()
        asked = read_body(body, TokenizeRequest)
        asked.check()
        desk.check_model(asked.model)
        text = asked.only_text
        if text is not None:
            ids = await asyncio.to_thread(_encode, vocabulary, text, has_controls=asked.has_controls)
        else:
            chat = read_body(body, ChatRequest)
            chat.check()
            ids = (await turn_prompt(desk, chat_turn(desk, chat))).ids
        return JSONResponse(
            {"tokens": list(ids), "count": len(ids), "max_model_len": desk.lanes.context_tokens}
        )

    @router.post("/detokenize", openapi_extra=takes(DetokenizeRequest), responses=gives(Text))
    async def detokenize(request: Request) -> Response:
        """The text of tokens, control tokens spelled out."""
        asked = read_body(await request.body(), DetokenizeRequest)
        desk.check_model(asked.model)
        text = await asyncio.to_thread(_decode, vocabulary, asked.tokens)
        # the two servers that people know this route from call it by different names
        return JSONResponse({"prompt": text, "content": text})

    return router


def _encode(vocabulary: Vocabulary, text: str, *, has_controls: bool) -> Sequence[int]:
    return vocabulary.encode(text if has_controls else vocabulary.broken(text))


def _decode(vocabulary: Vocabulary, ids: Sequence[int]) -> str:
    spellings = [vocabulary.spelling_of(token) for token in ids]
    for at, spelling in enumerate(spellings):
        if not spelling:
            raise RequestError(f"tokens.{at}: this model has no such token.", param=f"tokens.{at}")
    return b"".join(spellings).decode(errors="replace")
