"""A chat request's messages and tools as the template gets them: one form for all legal spellings."""

import contextlib
import itertools
from collections.abc import Sequence
from typing import Any

import pydantic_core

from hermitcrab.errors import RequestError
from hermitcrab.server.text.marks import SPELLINGS, THINK_CLOSE, THINK_OPEN
from hermitcrab.server.wire.openai import EarlierCall, Message, OfferedTool


def template_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The messages as plain values. Raises RequestError for one that must say something and does not.

    System messages that stand together at the head are one, a blank line between them: templates know one.
    """
    given = [_message(message, at) for at, message in enumerate(messages)]
    head = list(itertools.takewhile(lambda message: message["role"] == "system", given))
    if len(head) < 2:
        return given
    joined = {**head[0], "content": "\n\n".join(message["content"] for message in head)}
    return [joined, *given[len(head) :]]


def template_tools(tools: Sequence[OfferedTool]) -> list[dict[str, Any]]:
    """The tools as plain values, each key in the API's own order, those not given left out."""
    return [{"type": "function", "function": tool.function.model_dump(exclude_none=True)} for tool in tools]


def _message(message: Message, at: int) -> dict[str, Any]:
    if message.content is None and message.role not in ("assistant", "tool"):
        raise RequestError(
            f"messages.{at}.content is missing: a {message.role} message needs it.",
            param=f"messages.{at}.content",
        )
    # templates know the developer role by its older name
    given: dict[str, Any] = {
        "role": "system" if message.role == "developer" else message.role,
        "content": message.content or "",
    }
    if message.role == "assistant":
        given |= _assistant(message)
    if message.name is not None:
        given["name"] = message.name
    if message.tool_call_id is not None:
        given["tool_call_id"] = message.tool_call_id
    return given


def _assistant(message: Message) -> dict[str, Any]:
    given: dict[str, Any] = {}
    reasoning = message.reasoning_content if message.reasoning_content is not None else message.reasoning
    if reasoning is None:
        reasoning, given["content"] = _split_thinking(message.content or "")
    if reasoning is not None:
        given["reasoning_content"] = reasoning
    if message.tool_calls:
        given["tool_calls"] = [_earlier_call(call) for call in message.tool_calls]
    return given


def _split_thinking(content: str) -> tuple[str | None, str]:
    """Thinking that a client left in the content, as older clients do, and the answer after it."""
    opened, closed = SPELLINGS[THINK_OPEN], SPELLINGS[THINK_CLOSE]
    head, found, answer = content.partition(closed)
    if not found or not head.lstrip().startswith(opened):
        return None, content
    return head.lstrip().removeprefix(opened).strip("\n"), answer.lstrip("\n")


def _earlier_call(call: EarlierCall) -> dict[str, Any]:
    function = {"name": call.function.name, "arguments": _arguments(call.function.arguments)}
    given: dict[str, Any] = {"type": "function", "function": function}
    return given if call.id is None else {"id": call.id, **given}


def _arguments(given: object) -> dict[str, Any]:
    """The arguments as an object; what is none, in a history that went wrong, is kept under one name."""
    if given is None or given == "":
        return {}
    if isinstance(given, str):
        with contextlib.suppress(ValueError):
            given = pydantic_core.from_json(given, allow_inf_nan=False)
    return given if isinstance(given, dict) else {"arguments": given}
