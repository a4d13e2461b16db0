"""Anthropic's Messages API: its requests, and their conversation in the form that all dialects share."""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from hermitcrab.errors import RequestError
from hermitcrab.server.text.grammar import Form
from hermitcrab.server.tools.call_grammar import Calling
from hermitcrab.server.wire.body import AlsoTakes, RequestModel
from hermitcrab.server.wire.calling import Choice, wanted_calling
from hermitcrab.server.wire.fields import NOT_YET, GeneratingRequest, Wishes, check_count, check_names, within
from hermitcrab.server.wire.forms import AnswerFormat
from hermitcrab.server.wire.openai import (
    CalledFunction,
    EarlierCall,
    Message,
    OfferedFunction,
    OfferedTool,
    Stops,
)

_BLOCK_KINDS = ("text", "thinking", "redacted_thinking", "tool_use", "tool_result")


class Block(RequestModel):
    """One block of content, of any kind; each kind fills the fields it has."""

    type: Annotated[str, Field(json_schema_extra={"enum": list(_BLOCK_KINDS)})]
    text: str | None = None
    thinking: str | None = None
    id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None
    tool_use_id: str | None = None
    content: "Blocks | None" = None


def _blocks(value: Any) -> Any:
    if isinstance(value, str):
        return ({"type": "text", "text": value},)
    if not isinstance(value, list):
        raise ValueError("must be a string or a list of content blocks")
    return tuple(value)


Blocks = Annotated[tuple[Block, ...], BeforeValidator(_blocks), AlsoTakes({"type": "string"})]


class Spoken(RequestModel):
    """One message of a conversation."""

    role: Literal["user", "assistant", "system"]
    content: Blocks


class ClientTool(RequestModel):
    """A tool that the client runs; those that a server would run are refused by their type."""

    name: Annotated[str, Field(min_length=1, max_length=256)]
    type: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] | None = None


class ToolChoice(RequestModel):
    """Whether and how often the model may or must call tools; `name` is the one it must."""

    type: Literal["auto", "none", "any", "tool"]
    name: Annotated[str | None, Field(min_length=1)] = None
    disable_parallel_tool_use: bool | None = None


class Thinking(RequestModel):
    """Whether the model thinks first, and for how many tokens at most."""

    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: Annotated[int | None, Field(ge=0)] = None


class OutputConfig(RequestModel):
    """How hard to think, and the answer's format."""

    effort: str | None = None
    format: AnswerFormat | None = None


class CountRequest(GeneratingRequest):
    """POST /v1/messages/count_tokens: a conversation."""

    not_yet: ClassVar[Mapping[str, tuple[object, ...]]] = {
        **NOT_YET,
        "mcp_servers": ([],),
        "container": (),
        "output_format": (),
    }

    messages: Annotated[list[Spoken], Field(min_length=1)]
    system: Blocks | None = None
    tools: list[ClientTool] | None = None
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None

    mcp_servers: Any = None
    container: Any = None
    output_format: Any = None

    def check(self) -> None:
        """Raises RequestError for what this server does not do yet, and for fields that contradict others."""
        super().check()
        for at, tool in enumerate(self.tools or ()):
            if tool.type not in (None, "custom"):
                raise RequestError(
                    f"tools.{at}.type {tool.type!r} is run by a server, and not by this one; "
                    "send tools with an input_schema.",
                    param=f"tools.{at}.type",
                )
        check_names([tool.name for tool in self.tools or ()])

    @property
    def form(self) -> Form | None:
        """What the answer must be. Raises RequestError for what no answer can be."""
        asked = None if self.output_config is None else self.output_config.format
        return None if asked is None else asked.form("output_config.format")

    @property
    def is_thinking(self) -> bool:
        """Whether the model is to think first: in this API only where it is asked to."""
        thinking = self.thinking
        return thinking is not None and thinking.type != "disabled" and thinking.budget_tokens != 0

    def wishes(self, *, stops: tuple[str, ...], most_tokens: int | None) -> Wishes:
        """The request's wishes; the budget of its thinking has a name of its own in this dialect.

        Raises RequestError for what contradicts or is out of range.
        """
        wishes = super().wishes(stops=stops, most_tokens=most_tokens)
        if self.thinking is None or self.thinking.budget_tokens is None:
            return wishes
        return dataclasses.replace(wishes, thinking_budget=self.thinking.budget_tokens)

    @property
    def effort(self) -> str | None:
        """How hard to think, where that is said."""
        return None if self.output_config is None else self.output_config.effort

    def usable_tools(self) -> list[OfferedTool]:
        """The tools the model may call in this reply."""
        if self.tool_choice is not None and self.tool_choice.type == "none":
            return []
        return [
            OfferedTool(
                type="function",
                function=OfferedFunction(
                    name=tool.name, description=tool.description, parameters=tool.input_schema
                ),
            )
            for tool in self.tools or ()
        ]

    @property
    def calling(self) -> Calling:
        """How the tools must or may be called. Raises RequestError for what those offered cannot do."""
        asked = self.tool_choice
        if asked is None:
            return Calling()
        if asked.type == "tool" and asked.name is None:
            raise RequestError("tool_choice.name is missing: type 'tool' needs it.", param="tool_choice.name")
        choice = Choice(
            mode="required" if asked.type in ("any", "tool") else "auto",
            name=asked.name if asked.type == "tool" else None,
        )
        names = [tool.name for tool in self.tools or ()]
        return wanted_calling(choice, names, is_parallel=not asked.disable_parallel_tool_use)

    def conversation(self) -> list[Message]:
        """The messages in the form that all dialects share, each tool's result a message of its own.

        Raises RequestError for a block that cannot be taken where it stands.
        """
        messages = [Message(role="system", content=_joined(self.system, "system"))] if self.system else []
        for at, spoken in enumerate(self.messages):
            place = f"messages.{at}.content"
            match spoken.role:
                case "assistant":
                    messages.append(_assistant(spoken.content, place))
                case "system":
                    messages.append(Message(role="system", content=_joined(spoken.content, place)))
                case "user":
                    messages += _user(spoken.content, place)
        return messages


class MessagesRequest(CountRequest):
    """POST /v1/messages."""

    max_tokens: Annotated[int, within(1)]
    stop_sequences: Stops = ()

    def check(self) -> None:
        """Raises RequestError for what this server does not do yet, and for fields that contradict others."""
        super().check()
        check_count("max_tokens", self.max_tokens)
        if self.messages[-1].role == "assistant":
            raise RequestError(
                "messages: the last is the assistant's; going on from the middle of a reply (prefill) is not "
                "supported by this server yet.",
                param="messages",
            )


def _assistant(blocks: tuple[Block, ...], place: str) -> Message:
    thinking = [
        _said(block.thinking, f"{place}.{at}.thinking")
        for at, block in enumerate(blocks)
        if block.type == "thinking"
    ]
    calls = [_call(block, f"{place}.{at}") for at, block in enumerate(blocks) if block.type == "tool_use"]
    # redacted thinking is another server's secret: there is nothing in it to read
    apart = ("thinking", "redacted_thinking", "tool_use")
    return Message(
        role="assistant",
        content=_joined(blocks, place, but=apart),
        reasoning_content="\n\n".join(thinking) if thinking else None,
        tool_calls=calls or None,
    )


def _user(blocks: tuple[Block, ...], place: str) -> list[Message]:
    """Text and tool results in their order; text that stands together is one message."""
    messages: list[Message] = []
    text: list[str] = []
    for at, block in enumerate(blocks):
        if block.type != "tool_result":
            text.append(_text(block, f"{place}.{at}"))
            continue
        if text:
            messages.append(Message(role="user", content="".join(text)))
            text = []
        content = _joined(block.content or (), f"{place}.{at}.content")
        messages.append(Message(role="tool", content=content, tool_call_id=block.tool_use_id))
    if text or not messages:
        messages.append(Message(role="user", content="".join(text)))
    return messages


def _joined(blocks: tuple[Block, ...], place: str, *, but: tuple[str, ...] = ()) -> str:
    return "".join(_text(block, f"{place}.{at}") for at, block in enumerate(blocks) if block.type not in but)


def _text(block: Block, place: str) -> str:
    if block.type != "text":
        raise RequestError(
            f"{place}: content blocks of type {block.type!r} are not supported here; send text.", param=place
        )
    return _said(block.text, f"{place}.text")


def _said(text: str | None, place: str) -> str:
    if text is None:
        raise RequestError(f"{place} is missing.", param=place)
    return text


def _call(block: Block, place: str) -> EarlierCall:
    function = CalledFunction(name=_said(block.name, f"{place}.name"), arguments=block.input or {})
    return EarlierCall(function=function, id=block.id)
