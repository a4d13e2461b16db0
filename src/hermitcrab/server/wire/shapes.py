"""The shapes of whole replies, for the schema at /openapi.json; replies are tested against it."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict


class Shape(BaseModel):
    """All that a reply may hold."""

    model_config = ConfigDict(extra="forbid")


class Extension(Shape):
    """What only this server tells: the seed used, how the reply was made, and the digest of its tokens."""

    seed: int
    rounds: int
    drafted: int
    accepted: int
    moves: int
    waited_s: float
    first_token_s: float
    decode_s: float
    tokens_sha256: str


class CachedTokens(Shape):
    """Prompt tokens that were not computed anew."""

    cached_tokens: int


class ReasoningTokens(Shape):
    """Reply tokens spent on thinking."""

    reasoning_tokens: int


class Usage(Shape):
    """Token counts; those of thinking in chat only."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: CachedTokens
    completion_tokens_details: ReasoningTokens | None = None


class NamedCall(Shape):
    """A function's name, and its arguments as JSON text."""

    name: str
    arguments: str


class ReplyCall(Shape):
    """A tool call of a reply."""

    id: str
    type: Literal["function"]
    function: NamedCall


class ReplyMessage(Shape):
    """What the model said."""

    role: Literal["assistant"]
    content: str | None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[ReplyCall] | None = None


class NamedLogprob(Shape):
    """A token, the natural logarithm of its probability, and its bytes."""

    token: str
    logprob: float
    bytes: list[int]


class ChosenLogprob(NamedLogprob):
    """A reply token, with the likeliest in its place."""

    top_logprobs: list[NamedLogprob]


class ChatLogprobs(Shape):
    """An item for each reply token."""

    content: list[ChosenLogprob]
    refusal: None


class ChatChoice(Shape):
    """One reply of a chat; its extension is in it where there are several."""

    index: int
    message: ReplyMessage
    logprobs: ChatLogprobs | None
    finish_reason: Literal["stop", "length", "tool_calls"]
    hermitcrab: Extension | None = None


class ChatCompletion(Shape):
    """A whole chat reply."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    hermitcrab: Extension | None = None


class ListedLogprobs(Shape):
    """A completion's log probabilities: lists side by side, an item for each reply token."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


class TextChoice(Shape):
    """One text that goes on from a prompt."""

    index: int
    text: str
    logprobs: ListedLogprobs | None
    finish_reason: Literal["stop", "length"]
    hermitcrab: Extension | None = None


class TextCompletion(Shape):
    """A whole plain completion."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[TextChoice]
    usage: Usage
    hermitcrab: Extension | None = None


class MessageUsage(Shape):
    """A message's token counts."""

    input_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int
    output_tokens_details: dict[Literal["thinking_tokens"], int]


class AnthropicMessage(Shape):
    """A whole message; each block of its content has the fields of its type."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[dict[str, Any]]
    stop_reason: Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"]
    stop_sequence: str | None
    usage: MessageUsage
    hermitcrab: Extension


class TokenCount(Shape):
    """The tokens of a conversation."""

    input_tokens: int


class ResponseUsage(Shape):
    """A response's token counts."""

    input_tokens: int
    input_tokens_details: dict[Literal["cached_tokens", "cache_write_tokens"], int]
    output_tokens: int
    output_tokens_details: ReasoningTokens
    total_tokens: int


class OpenAiResponse(Shape):
    """A whole response; it repeats the request. Output items have the fields of their type."""

    id: str
    object: Literal["response"]
    created_at: int
    completed_at: int | None
    status: Literal["completed", "incomplete", "failed"]
    error: dict[str, str] | None
    incomplete_details: dict[str, str] | None
    model: str
    output: list[dict[str, Any]]
    usage: ResponseUsage | None
    background: Literal[False]
    instructions: str | None
    max_output_tokens: int | None
    max_tool_calls: None
    metadata: dict[str, str]
    parallel_tool_calls: bool
    previous_response_id: str | None
    reasoning: dict[str, str | None]
    service_tier: str
    store: bool
    temperature: float
    text: dict[str, Any]
    tool_choice: str | dict[str, str]
    tools: list[dict[str, Any]]
    top_logprobs: int
    top_p: float
    presence_penalty: float
    frequency_penalty: float
    truncation: Literal["disabled"]
    user: str | None
    hermitcrab: Extension


class DeletedResponse(Shape):
    """A stored response that is gone now."""

    id: str
    object: Literal["response"]
    deleted: Literal[True]


class Tokens(Shape):
    """A text's or a prompt's tokens."""

    tokens: list[int]
    count: int
    max_model_len: int


class Text(Shape):
    """The text of tokens, under the two names it is known by."""

    prompt: str
    content: str


class ModelCard(Shape):
    """The one model."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    aliases: list[str]
    context_length: int
    max_model_len: int


class ModelList(Shape):
    """The models there are: one."""

    object: Literal["list"]
    data: list[ModelCard]


class Health(Shape):
    """Whether the engine goes round."""

    status: Literal["ok", "draining", "stuck"]
    tick_age_s: float
    stuck_after_s: float
    streams: int


class Readiness(Shape):
    """Whether new requests are taken."""

    status: Literal["ready", "draining", "stuck"]


class ErrorDetail(Shape):
    """What is wrong; `param` names the field at fault."""

    message: str
    type: str
    param: str | None
    code: str | None


class Error(Shape):
    """An error as OpenAI's API has it."""

    error: ErrorDetail


class AnthropicErrorDetail(Shape):
    """What is wrong."""

    type: str
    message: str


class AnthropicError(Shape):
    """An error as Anthropic's API has it."""

    type: Literal["error"]
    error: AnthropicErrorDetail
    request_id: None = None
