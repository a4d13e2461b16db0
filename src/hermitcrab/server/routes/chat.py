"""POST /v1/chat/completions."""

from collections.abc import Iterable

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from hermitcrab.core.api import Finished, Tokens
from hermitcrab.errors import HermitcrabError
from hermitcrab.server.desk import Desk
from hermitcrab.server.errors import error_body
from hermitcrab.server.reading import Piece, ReplyReader
from hermitcrab.server.schema import gives, takes
from hermitcrab.server.sse import COMPLETIONS, Chunk
from hermitcrab.server.text.vocabulary import Vocabulary
from hermitcrab.server.tools.qwen_xml import ToolCall
from hermitcrab.server.turn import Turn, WholeReply, open_turn, template_switches
from hermitcrab.server.wire.body import read_body
from hermitcrab.server.wire.openai import ChatRequest
from hermitcrab.server.wire.openai_logprobs import chat_logprobs
from hermitcrab.server.wire.openai_replies import (
    Heading,
    Tally,
    chat_choice,
    chat_chunk,
    chat_deltas,
    chat_message,
    extension_body,
    finish_word,
    usage_chunk,
    whole_reply,
)
from hermitcrab.server.wire.shapes import ChatCompletion


def chat_routes(desk: Desk) -> APIRouter:
    """The route, serving from `desk`."""
    router = APIRouter()

    @router.post(
        "/v1/chat/completions",
        openapi_extra=takes(ChatRequest),
        responses=gives(ChatCompletion, streams=True),
    )
    async def chat_completions(request: Request) -> Response:
        """Reply to a conversation, whole or streamed."""
        asked = read_body(await request.body(), ChatRequest)
        asked.check()
        desk.check_model(asked.model)
        heading = desk.heading("chatcmpl-")
        opened = await open_turn(desk, heading, chat_turn(desk, asked))
        tally = Tally(asked.choices, counts_reasoning=True)
        if asked.wants_stream:
            writers = [
                ChatWriter(
                    heading,
                    reader,
                    tally,
                    desk.text.vocabulary,
                    choice=choice,
                    seed=seed,
                    wants_usage=asked.wants_usage,
                )
                for choice, (reader, seed) in enumerate(zip(opened.readers, opened.seeds, strict=True))
            ]
            return desk.stream(opened.reply, writers, COMPLETIONS)
        replies = await opened.whole(desk, request.receive)
        for reply in replies:
            tally.add(reply.finished.usage, reasoning_tokens=reply.reader.reasoning_tokens)
        choices = [_choice(desk, asked, choice, reply) for choice, reply in enumerate(replies)]
        extensions = [extension_body(reply.finished.usage, seed=reply.seed) for reply in replies]
        return JSONResponse(whole_reply(heading, "chat.completion", choices, tally.body(), extensions))

    return router


def chat_turn(desk: Desk, asked: ChatRequest) -> Turn:
    """The turn that a chat request asks for. Raises RequestError for switches that are none."""
    # a budget of nothing is thinking switched off
    wants_none = False if asked.thinking_budget == 0 else None
    switches = template_switches(
        desk,
        asked.chat_template_kwargs or {},
        is_thinking=wants_none if asked.enable_thinking is None else asked.enable_thinking,
        effort=asked.reasoning_effort,
    )
    wishes = asked.wishes(stops=asked.stop, most_tokens=asked.most_tokens)
    return Turn(asked.messages, asked.usable_tools, switches, wishes, asked.calling, asked.choices)


class ChatWriter:
    """The chunks of one choice of a chat stream; the choice that ends last brings the usage of all."""

    def __init__(
        self,
        heading: Heading,
        reader: ReplyReader,
        tally: Tally,
        vocabulary: Vocabulary,
        *,
        choice: int,
        seed: int,
        wants_usage: bool,
    ) -> None:
        self._heading = heading
        self._reader = reader
        self._tally = tally
        self._vocabulary = vocabulary
        self._choice = choice
        self._seed = seed
        self._wants_usage = wants_usage
        self._calls = 0

    def open(self) -> Iterable[Chunk]:
        """The role, so that a client sees at once that its request is taken."""
        return (chat_chunk(self._heading, self._choice, {"role": "assistant", "content": ""}),)

    def tokens(self, told: Tokens) -> Iterable[Chunk]:
        """Chunks for what the tokens make certain; their log probabilities come at once, with the first."""
        pieces = self._reader.push(told.ids)
        if not told.logprobs:
            return self._chunks(pieces)
        logprobs = chat_logprobs(told.logprobs, self._vocabulary)
        first, *others = self._deltas(pieces) or [{}]
        return [
            chat_chunk(self._heading, self._choice, first, logprobs=logprobs),
            *(chat_chunk(self._heading, self._choice, delta) for delta in others),
        ]

    def close(self, finished: Finished) -> Iterable[Chunk]:
        """What was held back, the finish reason with the extension block, and usage if it was asked for."""
        yield from self._chunks(self._reader.finish())
        word = finish_word(finished.reason, has_called=self._reader.has_called)
        yield {
            **chat_chunk(self._heading, self._choice, {}, word),
            "hermitcrab": extension_body(finished.usage, seed=self._seed),
        }
        self._tally.add(finished.usage, reasoning_tokens=self._reader.reasoning_tokens)
        if self._wants_usage and self._tally.is_whole:
            yield usage_chunk(self._heading, "chat.completion.chunk", self._tally.body())

    def fail(self, error: HermitcrabError) -> Iterable[Chunk]:
        """The error, in the shape it has outside a stream."""
        return (error_body(error),)

    def _chunks(self, pieces: list[Piece]) -> list[Chunk]:
        return [chat_chunk(self._heading, self._choice, delta) for delta in self._deltas(pieces)]

    def _deltas(self, pieces: list[Piece]) -> list[Chunk]:
        deltas = chat_deltas(pieces, calls_before=self._calls)
        self._calls += sum(isinstance(piece, ToolCall) for piece in pieces)
        return deltas


def _choice(desk: Desk, asked: ChatRequest, choice: int, reply: WholeReply) -> Chunk:
    word = finish_word(reply.finished.reason, has_called=reply.reader.has_called)
    logprobs = chat_logprobs(reply.logprobs, desk.text.vocabulary) if asked.logprobs else None
    return chat_choice(choice, chat_message(reply.pieces), word, logprobs)
