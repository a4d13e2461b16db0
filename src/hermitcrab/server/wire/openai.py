"""The OpenAI API's requests, as this server takes them.

A field that is not supported yet is declared, so that asking for it is refused by name and never passed over.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from hermitcrab.core.api import Priority
from hermitcrab.errors import RequestError
from hermitcrab.server.text.grammar import Form
from hermitcrab.server.tools.call_grammar import Calling
from hermitcrab.server.wire.body import AlsoTakes, RequestModel
from hermitcrab.server.wire.calling import ToolChoice, wanted_calling
from hermitcrab.server.wire.fields import NOT_YET, GeneratingRequest, check_count, check_names, within
from hermitcrab.server.wire.forms import ResponseFormat, StructuredOutputs

MAX_CHOICES = 128
MAX_STOPS = 16
MAX_ALTERNATIVES = 20
MAX_STOP_CHARACTERS = 1024


def _text_or_parts(value: Any) -> Any:
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, list) or not all(isinstance(part, dict) for part in value):
        raise ValueError("must be a string or a list of content parts")
    return "".join(_part_text(part) for part in value)


def _part_text(part: dict[str, Any]) -> str:
    kind = part.get("type", "text")
    text = part.get("refusal" if kind == "refusal" else "text")
    if kind not in ("text", "input_text", "output_text", "refusal"):
        raise ValueError(f"content parts of type {kind!r} are not supported; send text")
    if not isinstance(text, str):
        raise ValueError("a text part must have a string as its text")
    return text


def _stop_list(value: Any) -> Any:
    stops = [] if value is None else [value] if isinstance(value, str) else value
    if not isinstance(stops, list) or not all(isinstance(stop, str) for stop in stops):
        raise ValueError("must be a string or a list of strings")
    if len(stops) > MAX_STOPS:
        raise ValueError(f"may hold {MAX_STOPS} strings at most")
    if not all(0 < len(stop) <= MAX_STOP_CHARACTERS for stop in stops):
        raise ValueError(f"each string must have 1 to {MAX_STOP_CHARACTERS} characters")
    return tuple(stops)


def _prompt_list(value: Any) -> Any:
    if isinstance(value, str):
        return (value,)
    if isinstance(value, list) and value:
        if all(isinstance(item, str) for item in value):
            return tuple(value)
        if _are_tokens(value):
            return (tuple(value),)
        if all(isinstance(item, list) and _are_tokens(item) for item in value):
            return tuple(tuple(item) for item in value)
    raise ValueError("must be a string, a list of strings, or a list of token ids")


def _priority(value: Any) -> Any:
    """By name, or by number as other servers have it: the higher the later, 0 where nothing is said."""
    if value is None:
        return Priority.FOREGROUND
    if type(value) is int:
        return Priority.BACKGROUND if value > 0 else Priority.FOREGROUND
    if value not in list(Priority):
        raise ValueError(f"must be {' or '.join(Priority)}, or a whole number")
    return Priority(value)


def _are_tokens(items: list[Any]) -> bool:
    return all(type(item) is int for item in items)


_TEXT_PARTS = AlsoTakes(
    {
        "type": "array",
        "items": {
            "type": "object",
            "properties": {
                "type": {"enum": ["text", "input_text", "output_text"]},
                "text": {"type": "string"},
            },
            "required": ["type", "text"],
        },
    }
)
_STOP = {"type": "string", "minLength": 1, "maxLength": MAX_STOP_CHARACTERS}
_TOKENS = {"type": "array", "items": {"type": "integer"}, "minItems": 1}

Words = Annotated[str | None, BeforeValidator(_text_or_parts), _TEXT_PARTS]
RequiredWords = Annotated[str, BeforeValidator(_text_or_parts), _TEXT_PARTS]
Stops = Annotated[
    tuple[str, ...],
    BeforeValidator(_stop_list),
    WithJsonSchema(
        {"anyOf": [{"type": "null"}, _STOP, {"type": "array", "items": _STOP, "maxItems": MAX_STOPS}]}
    ),
]
Alternatives = Annotated[int | None, Field(ge=0, le=MAX_ALTERNATIVES)]
Place = Annotated[Priority, BeforeValidator(_priority), AlsoTakes({"type": ["integer", "null"]})]
Prompts = Annotated[
    tuple[str | tuple[int, ...], ...],
    BeforeValidator(_prompt_list),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 1},
                _TOKENS,
                {"type": "array", "items": _TOKENS, "minItems": 1, "maxItems": 1},
            ]
        }
    ),
]

_OWN_FIELDS = frozenset({"logprobs", "top_logprobs", "response_format", "structured_outputs"})


class StreamOptions(RequestModel):
    """What a stream carries besides the reply."""

    include_usage: bool | None = None


class CalledFunction(RequestModel):
    """The function of a call in an earlier turn; `arguments` is JSON as text, or what a client made of it."""

    name: str
    arguments: Any = None


class EarlierCall(RequestModel):
    """A tool call in an earlier turn."""

    function: CalledFunction
    id: str | None = None


class Message(RequestModel):
    """One message of a conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Words = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[EarlierCall] | None = None
    tool_call_id: str | None = None
    name: str | None = None


class OfferedFunction(RequestModel):
    """A function the model may call."""

    name: Annotated[str, Field(min_length=1, max_length=256)]
    description: str | None = None
    parameters: dict[str, Any] | None = None


class OfferedTool(RequestModel):
    """A tool the model may use; functions are the only kind."""

    type: Literal["function"]
    function: OfferedFunction


class OpenAiRequest(GeneratingRequest):
    """What chat and plain completions have in common."""

    not_yet: ClassVar[Mapping[str, tuple[object, ...]]] = {
        **{field: harmless for field, harmless in NOT_YET.items() if field not in _OWN_FIELDS},
        "best_of": (1,),
    }

    stream_options: StreamOptions | None = None
    max_tokens: Annotated[int | None, within(1)] = None
    stop: Stops = ()
    n: Annotated[int | None, within(1, MAX_CHOICES)] = None
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    priority: Place = Priority.FOREGROUND

    best_of: Any = None

    def check(self) -> None:
        """Raises RequestError for what this server does not do yet, and for counts that count nothing."""
        super().check()
        check_count("max_tokens", self.max_tokens)
        check_count("n", self.n, most=MAX_CHOICES)

    @property
    def urgency(self) -> Priority:
        """Where the request stands in the queue."""
        return self.priority

    @property
    def form(self) -> Form | None:
        """What the reply must be. Raises RequestError for what no reply can be, and for two forms at once."""
        forms = [
            asked.form
            for asked in (self.response_format, self.structured_outputs)
            if asked is not None and asked.form is not None
        ]
        if len(forms) > 1:
            raise RequestError(
                "response_format and structured_outputs both say what the reply must be; send one of them.",
                param="structured_outputs",
            )
        return forms[0] if forms else None

    @property
    def wants_usage(self) -> bool:
        """Whether a stream ends with a usage chunk."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    @property
    def choices(self) -> int:
        """How many replies are asked for."""
        return self.n or 1


class ChatRequest(OpenAiRequest):
    """POST /v1/chat/completions."""

    not_yet: ClassVar[Mapping[str, tuple[object, ...]]] = {
        **OpenAiRequest.not_yet,
        "functions": ([],),
        "function_call": ("none",),
        "modalities": (["text"],),
        "audio": (),
    }

    messages: Annotated[list[Message], Field(min_length=1)]
    max_completion_tokens: Annotated[int | None, within(1)] = None
    tools: list[OfferedTool] | None = None
    tool_choice: ToolChoice = None
    parallel_tool_calls: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    reasoning_effort: str | None = None
    enable_thinking: bool | None = None
    logprobs: bool | None = None
    top_logprobs: Alternatives = None

    functions: Any = None
    function_call: Any = None
    modalities: Any = None
    audio: Any = None

    def check(self) -> None:
        """Raises RequestError for what this server does not do yet, and for fields that contradict others."""
        super().check()
        most = self.max_completion_tokens
        check_count("max_completion_tokens", most)
        if most is not None and self.max_tokens not in (None, most):
            raise RequestError(
                f"max_tokens is {self.max_tokens} and max_completion_tokens is {most}; send one of them.",
                param="max_tokens",
            )
        if self.top_logprobs and not self.logprobs:
            raise RequestError("top_logprobs needs logprobs: true.", param="top_logprobs")
        check_names([tool.function.name for tool in self.tools or ()])

    @property
    def most_tokens(self) -> int | None:
        """The reply's length limit under either of its names."""
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens

    @property
    def alternatives(self) -> int | None:
        """How many tokens to show beside each reply token, with log probabilities; None for none at all."""
        return (self.top_logprobs or 0) if self.logprobs else None

    @property
    def usable_tools(self) -> list[OfferedTool]:
        """The tools the model may call in this reply."""
        is_barred = self.tool_choice is not None and self.tool_choice.mode == "none"
        return [] if is_barred else list(self.tools or ())

    @property
    def calling(self) -> Calling:
        """How the tools must or may be called. Raises RequestError for what those offered cannot do."""
        names = [tool.function.name for tool in self.tools or ()]
        return wanted_calling(self.tool_choice, names, is_parallel=self.parallel_tool_calls)


class CompletionRequest(OpenAiRequest):
    """POST /v1/completions."""

    not_yet: ClassVar[Mapping[str, tuple[object, ...]]] = {
        **OpenAiRequest.not_yet,
        "suffix": ("",),
        "top_logprobs": (0,),
        "thinking_budget": (),
    }

    prompt: Prompts
    echo: bool | None = None
    logprobs: Alternatives = None

    suffix: Any = None

    def check(self) -> None:
        """Raises RequestError for what this server does not do yet."""
        super().check()
        if self.echo and self.logprobs is not None:
            raise RequestError(
                "logprobs of an echoed prompt are not supported by this server yet; leave one of both out.",
                param="logprobs",
            )

    @property
    def alternatives(self) -> int | None:
        """How many tokens to show beside each reply token, with log probabilities; None for none at all."""
        return self.logprobs

    @property
    def only_prompt(self) -> str | tuple[int, ...]:
        """The one prompt. Raises RequestError for several, which this server does not take yet."""
        if len(self.prompt) != 1:
            raise RequestError(
                f"prompt has {len(self.prompt)} prompts; send one request for each.", param="prompt"
            )
        return self.prompt[0]
