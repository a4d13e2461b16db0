"""What every generating route does: check the model, choose the draw, submit, gather."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass

from starlette.types import Receive

from hermitcrab.clock import Clock
from hermitcrab.core.api import Failed, Finished, FinishReason, Lanes, Request, Tokens
from hermitcrab.errors import UnknownModel
from hermitcrab.sampling.params import Sampling
from hermitcrab.server.feed import OpenReply
from hermitcrab.server.options import ServerOptions
from hermitcrab.server.presence import while_connected
from hermitcrab.server.sse import ChunkWriter, EventStream, cut_off
from hermitcrab.server.text.chat import ChatText, Habits, Prompt
from hermitcrab.server.wire.openai import ReplyRequest
from hermitcrab.server.wire.openai_replies import Heading

SEED_BITS = 63


@dataclass(frozen=True, slots=True)
class Desk:
    """The engine, the model's text, the operator's choices and the time, as the routes use them."""

    lanes: Lanes
    text: ChatText
    options: ServerOptions
    clock: Clock

    def check_model(self, name: str | None) -> None:
        """Raises UnknownModel unless `name` is the model's id, one of its aliases, or not given."""
        known = (self.options.model_id, *self.options.aliases)
        if name is not None and name not in known:
            raise UnknownModel(name, known)

    def heading(self, prefix: str) -> Heading:
        """A fresh id, and what else every part of a reply repeats."""
        return Heading(f"{prefix}-{secrets.token_hex(12)}", self.options.model_id, self.clock.unix_s())

    def submit(
        self, heading: Heading, asked: ReplyRequest, prompt: Prompt, *, most_tokens: int | None
    ) -> OpenReply:
        """Hand the request to the engine.

        Raises RequestError for a sampling value out of range, and what `Lanes.submit` raises.
        """
        request = Request(
            id=heading.id,
            prompt=prompt.ids,
            sampling=_sampling(asked, self.text.habits(is_thinking=prompt.is_thinking)),
            max_new_tokens=most_tokens,
            eos_ids=frozenset() if asked.ignore_eos else self.text.eos_ids,
            stop_watch=self.text.stop_watch(asked.stop),
        )
        return OpenReply(self.lanes, request)

    def stream(self, reply: OpenReply, writer: ChunkWriter) -> EventStream:
        """The response that streams a reply."""
        return EventStream(reply, writer, self.options, self.clock)

    async def gather(
        self, reply: OpenReply, take: Callable[[tuple[int, ...]], None], receive: Receive
    ) -> Finished:
        """Pass all of a reply's tokens to `take`, and return how it ended.

        Raises ClientLeft when the client leaves first, ShuttingDown when the server cuts the reply off, and
        the engine's error when the reply fails. Whatever happens, the request does not outlive this call.
        """
        try:
            return await while_connected(receive, _gather(reply, take))
        finally:
            reply.close()


async def _gather(reply: OpenReply, take: Callable[[tuple[int, ...]], None]) -> Finished:
    while True:
        match await reply.next():
            case Tokens(ids):
                take(ids)
            case Finished(reason=FinishReason.CANCELLED):
                raise cut_off()
            case Finished() as finished:
                return finished
            case Failed(error=error):
                raise error


def _sampling(asked: ReplyRequest, habits: Habits) -> Sampling:
    return Sampling(
        temperature=habits.temperature if asked.temperature is None else asked.temperature,
        # -1 is another common way to say off
        top_k=habits.top_k if asked.top_k is None else 0 if asked.top_k == -1 else asked.top_k,
        top_p=habits.top_p if asked.top_p is None else asked.top_p,
        min_p=habits.min_p if asked.min_p is None else asked.min_p,
        seed=secrets.randbits(SEED_BITS) if asked.seed is None else asked.seed,
    )
