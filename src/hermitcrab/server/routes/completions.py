"""POST /v1/completions: the prompt as it stands, without a template."""

import asyncio
from collections.abc import Iterable

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from hermitcrab.core.api import Finished, Tokens
from hermitcrab.errors import HermitcrabError
from hermitcrab.sampling.logprobs import TokenLogprobs
from hermitcrab.server.desk import Desk
from hermitcrab.server.errors import error_body
from hermitcrab.server.schema import gives, takes
from hermitcrab.server.sse import COMPLETIONS, Chunk
from hermitcrab.server.text.chat import Prompt
from hermitcrab.server.text.marks import spelled
from hermitcrab.server.text.stream import TextStream
from hermitcrab.server.text.vocabulary import Vocabulary
from hermitcrab.server.wire.body import read_body
from hermitcrab.server.wire.openai import CompletionRequest
from hermitcrab.server.wire.openai_logprobs import TextLogprobs
from hermitcrab.server.wire.openai_replies import (
    Heading,
    Tally,
    extension_body,
    finish_word,
    text_choice,
    text_chunk,
    usage_chunk,
    whole_reply,
)
from hermitcrab.server.wire.shapes import TextCompletion


def completion_routes(desk: Desk) -> APIRouter:
    """The route, serving from `desk`."""
    router = APIRouter()

    @router.post(
        "/v1/completions",
        openapi_extra=takes(CompletionRequest),
        responses=gives(TextCompletion, streams=True),
    )
    async def completions(request: Request) -> Response:
        """Go on from a prompt, whole or streamed."""
        asked = read_body(await request.body(), CompletionRequest)
        asked.check()
        desk.check_model(asked.model)
        prompt = await asyncio.to_thread(_prompt, desk, asked.only_prompt)
        heading = desk.heading("cmpl-")
        echo = _echo(desk, asked, prompt)
        wishes = asked.wishes(stops=asked.stop, most_tokens=asked.max_tokens)
        texts = [desk.text.reply_text(asked.stop, min_tokens=wishes.min_tokens) for _ in range(asked.choices)]
        grammars = await desk.grammars(wishes.form, ignore_eos=wishes.ignore_eos, choices=asked.choices)
        reply = desk.submit(heading, wishes, prompt, choices=asked.choices, grammars=grammars)
        seeds = [request.sampling.seed for request in reply.requests]
        tally = Tally(asked.choices, counts_reasoning=False)
        if asked.wants_stream:
            writers = [
                TextWriter(
                    heading,
                    text,
                    tally,
                    desk.text.vocabulary,
                    choice=choice,
                    seed=seed,
                    echo=echo,
                    wants_usage=asked.wants_usage,
                )
                for choice, (text, seed) in enumerate(zip(texts, seeds, strict=True))
            ]
            return desk.stream(reply, writers, COMPLETIONS)
        written = [[echo] for _ in texts]
        logprobs: list[list[TokenLogprobs]] = [[] for _ in texts]

        def take(choice: int, told: Tokens) -> None:
            written[choice].append(texts[choice].push(told.ids))
            logprobs[choice] += told.logprobs

        ends = await desk.gather(reply, take, request.receive)
        for finished in ends:
            tally.add(finished.usage)
        choices = [
            text_choice(
                choice,
                spelled("".join(written[choice]) + texts[choice].finish()),
                finish_word(finished.reason),
                None if asked.logprobs is None else TextLogprobs(desk.text.vocabulary).body(logprobs[choice]),
            )
            for choice, finished in enumerate(ends)
        ]
        extensions = [
            extension_body(finished.usage, seed=seed) for finished, seed in zip(ends, seeds, strict=True)
        ]
        return JSONResponse(whole_reply(heading, "text_completion", choices, tally.body(), extensions))

    return router


class TextWriter:
    """The chunks of one choice of a plain stream; the choice that ends last brings the usage of all."""

    def __init__(
        self,
        heading: Heading,
        text: TextStream,
        tally: Tally,
        vocabulary: Vocabulary,
        *,
        choice: int,
        seed: int,
        echo: str,
        wants_usage: bool,
    ) -> None:
        self._heading = heading
        self._text = text
        self._tally = tally
        self._logprobs = TextLogprobs(vocabulary)
        self._choice = choice
        self._seed = seed
        self._echo = echo
        self._wants_usage = wants_usage

    def open(self) -> Iterable[Chunk]:
        """The prompt, where it is to be repeated."""
        return self._chunks(self._echo)

    def tokens(self, told: Tokens) -> Iterable[Chunk]:
        """A chunk for what the tokens make certain, with their log probabilities, which come at once."""
        text = self._text.push(told.ids)
        if not told.logprobs:
            return self._chunks(text)
        logprobs = self._logprobs.body(told.logprobs)
        return [text_chunk(self._heading, self._choice, spelled(text), logprobs=logprobs)]

    def close(self, finished: Finished) -> Iterable[Chunk]:
        """What was held back with the finish reason and the extension block; usage if it was asked for."""
        last = spelled(self._text.finish())
        yield {
            **text_chunk(self._heading, self._choice, last, finish_word(finished.reason)),
            "hermitcrab": extension_body(finished.usage, seed=self._seed),
        }
        self._tally.add(finished.usage)
        if self._wants_usage and self._tally.is_whole:
            yield usage_chunk(self._heading, "text_completion", self._tally.body())

    def fail(self, error: HermitcrabError) -> Iterable[Chunk]:
        """The error, in the shape it has outside a stream."""
        return (error_body(error),)

    def _chunks(self, text: str) -> list[Chunk]:
        return [text_chunk(self._heading, self._choice, spelled(text))] if text else []


def _prompt(desk: Desk, given: str | tuple[int, ...]) -> Prompt:
    return desk.text.raw_prompt(given) if isinstance(given, str) else desk.text.token_prompt(given)


def _echo(desk: Desk, asked: CompletionRequest, prompt: Prompt) -> str:
    if not asked.echo:
        return ""
    given = asked.only_prompt
    return given if isinstance(given, str) else desk.text.text_of(prompt.ids)
