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


class Tally:
    """The token counts of a reply, summed over its choices; the prompt counts once."""

    def __init__(self, choices: int, *, counts_reasoning: bool) -> None:
        self._missing = choices
        self._counts_reasoning = counts_reasoning
        self._prompt_tokens = 0
        self._cached_tokens: int | None = None
        self._completion_tokens = 0
        self._reasoning_tokens = 0

    @property
    def is_whole(self) -> bool:
        """True once every choice has been added."""
        return self._missing == 0

    def add(self, usage: Usage, *, reasoning_tokens: int = 0) -> None:
        """Count a choice that has ended."""
        self._missing -= 1
        # the prompt counts once, and so does what was kept of it before the first choice ran it
        known = usage.cached_tokens if self._cached_tokens is None else self._cached_tokens
        self._cached_tokens = min(known, usage.cached_tokens)
        self._prompt_tokens = usage.prompt_tokens
        self._completion_tokens += usage.completion_tokens
        self._reasoning_tokens += reasoning_tokens

    def body(self) -> dict[str, Any]:
        """The API's usage object; reasoning is in it only where the route knows any."""
        body: dict[str, Any] = {
            "prompt_tokens": self._prompt_tokens,
            "completion_tokens": self._completion_tokens,
            "total_tokens": self._prompt_tokens + self._completion_tokens,
            "prompt_tokens_details": {"cached_tokens": self._cached_tokens or 0},
        }
        if self._counts_reasoning:
            body["completion_tokens_details"] = {"reasoning_tokens": self._reasoning_tokens}
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


def whole_reply(
    heading: Heading,
    kind: str,
    choices: Sequence[dict[str, Any]],
    usage: dict[str, Any],
    extensions: Sequence[dict[str, Any]],
) -> dict[str, Any]:
    """A whole reply; one of several choices has its extension block in each of them."""
    body = {**_head(heading, kind), "choices": list(choices), "usage": usage}
    if len(choices) == 1:
        return {**body, "hermitcrab": extensions[0]}
    told = [{**choice, "hermitcrab": block} for choice, block in zip(choices, extensions, strict=True)]
    return {**body, "choices": told}


def chat_choice(
    choice: int, message: dict[str, Any], finish: str, logprobs: dict[str, Any] | None = None
) -> dict[str, Any]:
    """One choice of a whole chat reply."""
    return {"index": choice, "message": message, "logprobs": logprobs, "finish_reason": finish}


def chat_chunk(
    heading: Heading,
    choice: int,
    delta: dict[str, Any],
    finish: str | None = None,
    *,
    logprobs: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """One chunk of a chat stream."""
    part = {"index": choice, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
    return {**_head(heading, "chat.completion.chunk"), "choices": [part]}


def text_choice(
    choice: int, text: str, finish: str | None, logprobs: dict[str, Any] | None = None
) -> dict[str, Any]:
    """One choice of a plain reply, or a part of one."""
    return {"index": choice, "text": text, "logprobs": logprobs, "finish_reason": finish}


def text_chunk(
    heading: Heading,
    choice: int,
    text: str,
    finish: str | None = None,
    *,
    logprobs: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """One chunk of a plain stream."""
    return {**_head(heading, "text_completion"), "choices": [text_choice(choice, text, finish, logprobs)]}


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
