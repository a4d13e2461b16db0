"""OpenAI's Responses API: its requests, and their items in the form that all dialects share."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, TypeAdapter

from hermitcrab.errors import RequestError
from hermitcrab.server.text.grammar import Form
from hermitcrab.server.tools.call_grammar import Calling
from hermitcrab.server.wire.body import AlsoTakes, RequestModel
from hermitcrab.server.wire.calling import ToolChoice, wanted_calling
from hermitcrab.server.wire.fields import NOT_YET, GeneratingRequest, check_count, check_names, within
from hermitcrab.server.wire.forms import AnswerFormat
from hermitcrab.server.wire.openai import (
    CalledFunction,
    EarlierCall,
    Message,
    OfferedFunction,
    OfferedTool,
    RequiredWords,
)

# what a request may ask to have included: the thinking is in its item in plain, and can come back so
_INCLUDED = frozenset({"reasoning.encrypted_content"})


class SaidItem(RequestModel):
    """A message."""

    type: Literal["message"] | None = None
    role: Literal["system", "developer", "user", "assistant"]
    content: RequiredWords


class ThoughtPart(RequestModel):
    """A piece of thinking."""

    text: str


class ThoughtItem(RequestModel):
    """Thinking before a reply; without content it is another server's secret, and nothing to read."""

    type: Literal["reasoning"]
    content: list[ThoughtPart] | None = None


class CallItem(RequestModel):
    """A call of a function by the model; `arguments` is JSON as text."""

    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: str


class ResultItem(RequestModel):
    """What a called function gave back."""

    type: Literal["function_call_output"]
    call_id: str
    output: RequiredWords


def _kind(value: Any) -> str:
    kind = value.get("type") if isinstance(value, dict) else None
    # a message may leave its type out
    return kind if isinstance(kind, str) else "message"


Item = Annotated[
    Annotated[SaidItem, Tag("message")]
    | Annotated[ThoughtItem, Tag("reasoning")]
    | Annotated[CallItem, Tag("function_call")]
    | Annotated[ResultItem, Tag("function_call_output")],
    Discriminator(_kind),
]
ITEM_KINDS = frozenset({"message", "reasoning", "function_call", "function_call_output"})
_ITEMS: TypeAdapter[tuple[Item, ...]] = TypeAdapter(tuple[Item, ...])


def _listed(value: Any) -> Any:
    if isinstance(value, str):
        return ({"role": "user", "content": value},)
    if not isinstance(value, list) or not value:
        raise ValueError("must be a string or a list of items")
    for item in value:
        if _kind(item) not in ITEM_KINDS:
            raise ValueError(f"items of type {_kind(item)!r} are not supported by this server")
    return tuple(value)


class FunctionTool(RequestModel):
    """A function the model may call; the kinds that a server would run are refused by their type."""

    type: str
    name: Annotated[str, Field(max_length=256)] = ""
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class ReasoningConfig(RequestModel):
    """How hard to think. Thinking is shown as it is, so a wish for a summary has nothing to change."""

    effort: str | None = None


class TextConfig(RequestModel):
    """The answer's format."""

    format: AnswerFormat | None = None


class ResponsesRequest(GeneratingRequest):
    """POST /v1/responses."""

    not_yet: ClassVar[Mapping[str, tuple[object, ...]]] = {
        **NOT_YET,
        "truncation": ("disabled",),
        "background": (False,),
        "max_tool_calls": (),
        "conversation": (),
        "prompt": (),
        "moderation": (),
        "context_management": ([],),
    }

    input: Annotated[tuple[Item, ...], BeforeValidator(_listed), AlsoTakes({"type": "string"})]
    instructions: str | None = None
    max_output_tokens: Annotated[int | None, within(1)] = None
    previous_response_id: str | None = None
    store: bool | None = None
    tools: list[FunctionTool] | None = None
    reasoning: ReasoningConfig | None = None
    text: TextConfig | None = None
    include: list[Annotated[str, Field(json_schema_extra={"enum": sorted(_INCLUDED)})]] | None = None
    metadata: dict[str, str] | None = None
    user: str | None = None

    tool_choice: ToolChoice = None
    parallel_tool_calls: bool | None = None
    truncation: Any = None
    background: Any = None
    max_tool_calls: Any = None
    conversation: Any = None
    prompt: Any = None
    moderation: Any = None
    context_management: Any = None

    def check(self) -> None:
        """Raises RequestError for what this server does not do yet, and for fields that contradict others."""
        super().check()
        check_count("max_output_tokens", self.max_output_tokens)
        for wish in self.include or ():
            if wish not in _INCLUDED:
                raise RequestError(f"include {wish!r} is not supported by this server yet.", param="include")
        for at, tool in enumerate(self.tools or ()):
            if tool.type != "function":
                raise RequestError(
                    f"tools.{at}.type {tool.type!r} is not supported by this server; send functions.",
                    param=f"tools.{at}.type",
                )
            if not tool.name:
                raise RequestError(f"tools.{at}.name is missing.", param=f"tools.{at}.name")
        check_names([tool.name for tool in self.tools or ()])

    @property
    def is_kept(self) -> bool:
        """Whether the response can be gone on from: so it is unless the request says otherwise."""
        return self.store is not False

    @property
    def effort(self) -> str | None:
        """How hard to think, where that is said."""
        return None if self.reasoning is None else self.reasoning.effort

    def usable_tools(self) -> list[OfferedTool]:
        """The tools the model may call in this response."""
        if self.tool_choice is not None and self.tool_choice.mode == "none":
            return []
        return [
            OfferedTool(
                type="function",
                function=OfferedFunction(
                    name=tool.name, description=tool.description, parameters=tool.parameters
                ),
            )
            for tool in self.tools or ()
        ]

    @property
    def calling(self) -> Calling:
        """How the tools must or may be called. Raises RequestError for what those offered cannot do."""
        names = [tool.name for tool in self.tools or ()]
        return wanted_calling(self.tool_choice, names, is_parallel=self.parallel_tool_calls)

    @property
    def form(self) -> Form | None:
        """What the answer must be. Raises RequestError for what no answer can be."""
        asked = None if self.text is None else self.text.format
        return None if asked is None else asked.form("text.format")

    def conversation_after(self, earlier: Sequence[Item]) -> list[Message]:
        """The messages in the form that all dialects share, after the items of the response gone on from."""
        head = [] if self.instructions is None else [Message(role="system", content=self.instructions)]
        return [*head, *_messages([*earlier, *self.input])]


def read_output(output: Sequence[Mapping[str, Any]]) -> tuple[Item, ...]:
    """A response's output items, as they are when a client sends them back."""
    return _ITEMS.validate_python(tuple(output))


@dataclass(slots=True)
class _Reply:
    """Items of the assistant that make one message: thinking, then text, then calls."""

    thinking: list[str] = field(default_factory=list)
    content: str | None = None
    calls: list[EarlierCall] = field(default_factory=list)

    @property
    def has_spoken(self) -> bool:
        return bool(self.calls) or self.content is not None

    def messages(self) -> list[Message]:
        """The one message; none while there is nothing to say in it."""
        if not self.has_spoken and not self.thinking:
            return []
        return [
            Message(
                role="assistant",
                content=self.content,
                reasoning_content="\n\n".join(self.thinking) if self.thinking else None,
                tool_calls=self.calls or None,
            )
        ]


def _messages(items: Iterable[Item]) -> list[Message]:
    messages: list[Message] = []
    reply = _Reply()
    for item in items:
        is_replys = isinstance(item, ThoughtItem | CallItem) or (
            isinstance(item, SaidItem) and item.role == "assistant"
        )
        # thinking and text come before calls: after those a new reply has begun
        if not is_replys or (reply.has_spoken and not isinstance(item, CallItem)):
            messages += reply.messages()
            reply = _Reply()
        match item:
            case ThoughtItem():
                reply.thinking += [part.text for part in item.content or ()]
            case CallItem():
                function = CalledFunction(name=item.name, arguments=item.arguments)
                reply.calls.append(EarlierCall(function=function, id=item.call_id))
            case SaidItem() if item.role == "assistant":
                reply.content = item.content
            case SaidItem():
                messages.append(Message(role=item.role, content=item.content))
            case ResultItem():
                messages.append(Message(role="tool", content=item.output, tool_call_id=item.call_id))
    return messages + reply.messages()
