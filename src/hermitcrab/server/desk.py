"""What every generating route does: check the model, choose the draw, submit, gather."""

import asyncio
import dataclasses
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from starlette.types import Receive

from hermitcrab.clock import Clock
from hermitcrab.core.api import Failed, Finished, FinishReason, Lanes, Request, Tokens
from hermitcrab.core.grammar import GrammarRules
from hermitcrab.core.thinking import Thinking
from hermitcrab.errors import UnknownModel
from hermitcrab.sampling.params import SEED_LIMIT, Sampling
from hermitcrab.server.feed import OpenReply
from hermitcrab.server.options import ServerOptions
from hermitcrab.server.presence import while_connected
from hermitcrab.server.sse import ChunkWriter, EventStream, Framing, cut_off
from hermitcrab.server.text.chat import ChatText, Habits, Prompt
from hermitcrab.server.text.grammar import Form, Matcher
from hermitcrab.server.wire.fields import Wishes
from hermitcrab.server.wire.openai_replies import Heading


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
        return Heading(f"{prefix}{secrets.token_hex(12)}", self.options.model_id, self.clock.unix_s())

    def submit(
        self,
        heading: Heading,
        wishes: Wishes,
        prompt: Prompt,
        *,
        choices: int = 1,
        thinking: Thinking | None = None,
        grammars: Sequence[GrammarRules] = (),
    ) -> OpenReply:
        """Hand the request to the engine, once for each choice; each has the seed after the one before.

        Raises RequestError for a sampling value out of range, and what `Lanes.submit` raises.
        """
        ends = frozenset() if wishes.ignore_eos else self.text.eos_ids
        sampling = _sampling(wishes, self.text.habits(is_thinking=prompt.is_thinking))
        return OpenReply(
            self.lanes,
            [
                Request(
                    id=f"{heading.id}-{choice}" if choice else heading.id,
                    prompt=prompt.ids,
                    sampling=dataclasses.replace(sampling, seed=(sampling.seed + choice) % SEED_LIMIT),
                    max_new_tokens=wishes.most_tokens,
                    eos_ids=ends | wishes.stop_token_ids,
                    stop_watch=self.text.stop_watch(wishes.stops, min_tokens=wishes.min_tokens),
                    min_tokens=wishes.min_tokens,
                    penalties=wishes.penalties,
                    thinking=thinking,
                    grammar=grammars[choice] if grammars else None,
                    top_logprobs=wishes.top_logprobs,
                    priority=wishes.priority,
                )
                for choice in range(choices)
            ],
        )

    async def grammars(self, form: Form | None, *, ignore_eos: bool, choices: int) -> list[Matcher]:
        """A grammar for each choice of a reply that must have a form. Raises RequestError where it cannot."""
        if form is None:
            return []
        # a large schema takes a while: not on the loop that everyone shares
        first = await asyncio.to_thread(self.text.grammar, form, ignore_eos=ignore_eos)
        return [first, *(first.copy() for _ in range(choices - 1))]

    def stream(self, reply: OpenReply, writers: Sequence[ChunkWriter], framing: Framing) -> EventStream:
        """The response that streams a reply, whose choices have a writer each."""
        return EventStream(reply, writers, framing, self.options, self.clock)

    async def gather(
        self, reply: OpenReply, take: Callable[[int, Tokens], None], receive: Receive
    ) -> list[Finished]:
        """Pass all of a reply's tokens to `take`, with their choice, and return how each choice ended.

        Raises ClientLeft when the client leaves first, ShuttingDown when the server cuts the reply off, and
        the engine's error when the reply fails. Whatever happens, the request does not outlive this call.
        """
        try:
            return await while_connected(receive, _gather(reply, take))
        finally:
            reply.close()


async def _gather(reply: OpenReply, take: Callable[[int, Tokens], None]) -> list[Finished]:
    ends: dict[int, Finished] = {}
    while not reply.has_ended:
        heard = await reply.next()
        if heard is None:
            continue
        match heard.event:
            case Tokens() as told:
                take(heard.choice, told)
            case Finished(reason=FinishReason.CANCELLED):
                raise cut_off()
            case Finished() as finished:
                ends[heard.choice] = finished
            case Failed(error=error):
                raise error
    return [ends[choice] for choice in range(len(reply.requests))]


def _sampling(wishes: Wishes, habits: Habits) -> Sampling:
    return Sampling(
        temperature=habits.temperature if wishes.temperature is None else wishes.temperature,
        # -1 is another common way to say off
        top_k=habits.top_k if wishes.top_k is None else 0 if wishes.top_k == -1 else wishes.top_k,
        top_p=habits.top_p if wishes.top_p is None else wishes.top_p,
        min_p=habits.min_p if wishes.min_p is None else wishes.min_p,
        seed=secrets.randbelow(SEED_LIMIT) if wishes.seed is None else wishes.seed,
    )
