"""One turn of a conversation, in whatever dialect it is asked for: messages in, pieces of a reply out.

The routes of all dialects come through here, so the same conversation is the same prompt, and the same
reply, in each of them.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.types import Receive

from hermitcrab.core.api import Finished, Tokens
from hermitcrab.errors import RequestError
from hermitcrab.sampling.logprobs import TokenLogprobs
from hermitcrab.server.conversation import template_messages, template_tools
from hermitcrab.server.desk import Desk
from hermitcrab.server.feed import OpenReply
from hermitcrab.server.reading import Piece, ReplyReader
from hermitcrab.server.text.chat import Prompt
from hermitcrab.server.text.grammar import Form
from hermitcrab.server.tools.call_grammar import Calling
from hermitcrab.server.wire.fields import Wishes
from hermitcrab.server.wire.openai import Message, OfferedTool
from hermitcrab.server.wire.openai_replies import Heading


@dataclass(frozen=True, slots=True)
class Turn:
    """What is asked: the next reply to `messages`, with these tools and template switches, so drawn.

    `calling` says whether and how often the reply must or may call one of the tools.
    """

    messages: Sequence[Message]
    tools: Sequence[OfferedTool]
    switches: Mapping[str, Any]
    wishes: Wishes
    calling: Calling
    choices: int = 1


@dataclass(frozen=True, slots=True)
class WholeReply:
    """One choice, whole: its pieces in order, what their reader found, and how it ended.

    `logprobs` has an item for each token where they were asked for.
    """

    pieces: Sequence[Piece]
    reader: ReplyReader
    finished: Finished
    seed: int
    logprobs: tuple[TokenLogprobs, ...]


@dataclass(frozen=True, slots=True)
class OpenTurn:
    """A turn that the engine has; each choice has a reader of its own."""

    heading: Heading
    prompt: Prompt
    reply: OpenReply
    readers: Sequence[ReplyReader]

    @property
    def seeds(self) -> list[int]:
        """The seed of each choice."""
        return [request.sampling.seed for request in self.reply.requests]

    async def whole(self, desk: Desk, receive: Receive) -> list[WholeReply]:
        """Wait for all choices. Raises what `Desk.gather` raises."""
        pieces: list[list[Piece]] = [[] for _ in self.readers]
        logprobs: list[list[TokenLogprobs]] = [[] for _ in self.readers]

        def take(choice: int, told: Tokens) -> None:
            pieces[choice] += self.readers[choice].push(told.ids)
            logprobs[choice] += told.logprobs

        ends = await desk.gather(self.reply, take, receive)
        return [
            WholeReply([*read, *reader.finish()], reader, finished, seed, tuple(rows))
            for read, reader, finished, seed, rows in zip(
                pieces, self.readers, ends, self.seeds, logprobs, strict=True
            )
        ]


async def turn_prompt(desk: Desk, turn: Turn) -> Prompt:
    """The turn's prompt. Raises RequestError where the template refuses it."""
    # a long conversation takes a while to render and encode: not on the loop that everyone shares
    return await asyncio.to_thread(_prompt, desk, turn)


async def open_turn(desk: Desk, heading: Heading, turn: Turn) -> OpenTurn:
    """Hand a turn to the engine. Raises what `turn_prompt` and `Desk.submit` raise."""
    prompt = await turn_prompt(desk, turn)
    parameters = {tool.function.name: tool.function.parameters or {} for tool in turn.tools}
    readers = [
        ReplyReader(
            desk.text,
            stops=turn.wishes.stops,
            is_thinking=prompt.is_thinking,
            min_tokens=turn.wishes.min_tokens,
            parameters=parameters,
        )
        for _ in range(turn.choices)
    ]
    grammars = await desk.grammars(
        _form(desk, turn, parameters), ignore_eos=turn.wishes.ignore_eos, choices=turn.choices
    )
    thinking = desk.text.thinking_rules(
        is_open=prompt.is_thinking,
        budget_tokens=turn.wishes.thinking_budget,
        # the line breaks behind thinking are no part of any form
        closes_whole=bool(grammars),
    )
    reply = desk.submit(
        heading, turn.wishes, prompt, choices=turn.choices, thinking=thinking, grammars=grammars
    )
    return OpenTurn(heading, prompt, reply, readers)


def template_switches(
    desk: Desk, given: Mapping[str, Any], *, is_thinking: bool | None, effort: str | None
) -> dict[str, Any]:
    """The template's switches; a dialect's own fields win over the `given` ones, effort `none` is off.

    Raises RequestError for an effort that is no level, and a thinking switch that is neither on nor off.
    """
    switches = dict(given)
    if not isinstance(switches.get("enable_thinking", True), bool):
        raise RequestError("enable_thinking must be true or false.", param="chat_template_kwargs")
    effort = effort if effort is not None else switches.get("reasoning_effort")
    switches.pop("reasoning_effort", None)
    if is_thinking is not None:
        switches["enable_thinking"] = is_thinking
    if effort == "none":
        switches.setdefault("enable_thinking", False)
    elif effort is not None:
        level = desk.text.effort(effort)
        if level is not None:
            switches["reasoning_effort"] = level
    return switches


def _form(desk: Desk, turn: Turn, parameters: Mapping[str, Mapping[str, Any]]) -> Form | None:
    """What the reply must be. One that must call has no answer for another form."""
    if turn.calling.is_required or (turn.wishes.form is None and not turn.calling.is_free and parameters):
        return desk.text.call_form(parameters, turn.calling)
    return turn.wishes.form


def _prompt(desk: Desk, turn: Turn) -> Prompt:
    return desk.text.chat_prompt(template_messages(turn.messages), template_tools(turn.tools), turn.switches)
