"""The OpenAI API's replies: whole ones, stream chunks, usage, and this server's extension block."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hermitcrab.core.api import FinishReason, Usage
from hermitcrab.server.reading import Piece
from hermitcrab.server.text.thinking import Reasoning
from hermitcrab.server.tools.qwen_xml import Content, ToolCall


@dataclass(frozen=True, slots=True)
class Heading:
    """What every part of one reply repeats."""

    id: str
    model: str
    created_unix_s: int


def usage_body(usage: Usage, *, reasoning_tokens: int | None = None) -> dict[str, Any]:
    """Token counts; `reasoning_tokens` None where the route knows no reasoning."""
    body: dict[str, Any] = {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
    if reasoning_tokens is not None:
        body["completion_tokens_details"] = {"reasoning_tokens": reasoning_tokens}
    return body


def extension_body(usage: Usage, *, seed: int) -> dict[str, Any]:
    """What only this server tells: the seed used, how the reply was made, and the digest of its tokens."""
    return {
        "seed": seed,
        "rounds": usage.rounds,
        "drafted": usage.drafted,
        "accepted": usage.accepted,
        "moves": usage.moves,
        "waited_s": round(usage.waited_s, 6),
        "first_token_s": round(usage.first_token_s, 6),
        "decode_s": round(usage.decode_s, 6),
        "tokens_sha256": usage.tokens_sha256,
    }


def finish_word(reason: FinishReason, *, has_called: bool = False) -> str:
    """The API's word for why a whole reply ended; a cut one is `length` whatever it holds."""
    return "tool_calls" if has_called and reason is FinishReason.STOP else reason.value


def chat_message(pieces: Sequence[Piece]) -> dict[str, Any]:
    """The message that a reply's pieces join to."""
    content = "".join(piece.text for piece in pieces if isinstance(piece, Content))
    reasoning = "".join(piece.text for piece in pieces if isinstance(piece, Reasoning))
    calls = [_call(piece) for piece in pieces if isinstance(piece, ToolCall)]
    message: dict[str, Any] = {"role": "assistant", "content": content or (None if calls else "")}
    if reasoning:
        message |= {"reasoning_content": reasoning, "reasoning": reasoning}
    if calls:
        message["tool_calls"] = calls
    return message


def chat_deltas(pieces: Sequence[Piece], *, calls_before: int) -> list[dict[str, Any]]:
    """Stream deltas for pieces, in order; `calls_before` tool calls have been sent already."""
    deltas: list[dict[str, Any]] = []
    for piece in pieces:
        match piece:
            case Content():
                deltas.append({"content": piece.text})
            case Reasoning():
                deltas.append({"reasoning_content": piece.text, "reasoning": piece.text})
            case ToolCall():
                named = _call(piece)
                named["function"] = {"name": piece.name, "arguments": ""}
                deltas.append({"tool_calls": [{"index": calls_before, **named}]})
                deltas.append(
                    {"tool_calls": [{"index": calls_before, "function": {"arguments": piece.arguments}}]}
                )
                calls_before += 1
    return deltas


def chat_completion(
    heading: Heading, message: dict[str, Any], finish: str, usage: dict[str, Any], extension: dict[str, Any]
) -> dict[str, Any]:
    """A whole chat reply."""
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
    return {**_head(heading, "chat.completion"), "choices": [choice], "usage": usage, "hermitcrab": extension}


def chat_chunk(heading: Heading, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    """One chunk of a chat stream."""
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return {**_head(heading, "chat.completion.chunk"), "choices": [choice]}


def text_completion(
    heading: Heading, text: str, finish: str, usage: dict[str, Any], extension: dict[str, Any]
) -> dict[str, Any]:
    """A whole plain reply."""
    return {**text_chunk(heading, text, finish), "usage": usage, "hermitcrab": extension}


def text_chunk(heading: Heading, text: str, finish: str | None = None) -> dict[str, Any]:
    """One chunk of a plain stream."""
    choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": finish}
    return {**_head(heading, "text_completion"), "choices": [choice]}


def usage_chunk(heading: Heading, kind: str, usage: dict[str, Any]) -> dict[str, Any]:
    """The last chunk of a stream that was asked for its usage."""
    return {**_head(heading, kind), "choices": [], "usage": usage}


def _head(heading: Heading, kind: str) -> dict[str, Any]:
    return {"id": heading.id, "object": kind, "created": heading.created_unix_s, "model": heading.model}


def _call(call: ToolCall) -> dict[str, Any]:
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments},
    }
