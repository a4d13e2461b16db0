"""OpenAI's Responses API: its replies, whole and as a stream of typed events.

A whole response is what its own stream adds up to: both come out of one `OutputList`.
"""

import copy
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hermitcrab.core.api import FinishReason, Usage
from hermitcrab.errors import HermitcrabError
from hermitcrab.sampling.params import Sampling
from hermitcrab.server.reading import Piece
from hermitcrab.server.text.thinking import Reasoning
from hermitcrab.server.tools.qwen_xml import Content, ToolCall
from hermitcrab.server.wire.openai_replies import Heading
from hermitcrab.server.wire.responses import ResponsesRequest

_ID_PREFIXES = {"message": "msg", "reasoning": "rs", "function_call": "fc"}


class OutputList:
    """The output items of one response as its pieces come."""

    def __init__(self) -> None:
        self.items: list[dict[str, Any]] = []
        self._is_open = False
        # the open item's text, joined once: adding to a long string again and again copies it each time
        self._texts: list[str] = []

    def push(self, pieces: Iterable[Piece]) -> list[dict[str, Any]]:
        """Take pieces, in order; returns the events that say so."""
        return [event for piece in pieces for event in self._piece(piece)]

    def close(self, *, is_whole: bool = True) -> list[dict[str, Any]]:
        """The last item has ended, or was cut off: the events that say so."""
        if not self._is_open:
            return []
        self._is_open = False
        item = self.items[-1]
        item["status"] = "completed" if is_whole else "incomplete"
        events = []
        if item["type"] != "function_call":
            (part,) = item["content"]
            part["text"] = "".join(self._texts)
            # output_text.done or reasoning_text.done, and the part that it ends
            end = {"text": part["text"], **_logprobs(part)}
            events.append(self._event(f"response.{part['type']}.done", content_index=0, **end))
            events.append(self._event("response.content_part.done", content_index=0, part=dict(part)))
        return [*events, self._item_event("done")]

    def _piece(self, piece: Piece) -> list[dict[str, Any]]:
        match piece:
            case Content(text):
                return self._text("message", "output_text", text)
            case Reasoning(text):
                return self._text("reasoning", "reasoning_text", text)
            case ToolCall():
                return self._call(piece)

    def _text(self, kind: str, part_kind: str, text: str) -> list[dict[str, Any]]:
        events = []
        if not self._is_open or self.items[-1]["type"] != kind:
            events = [*self.close(), *self._open_text(kind, part_kind)]
        (part,) = self.items[-1]["content"]
        self._texts.append(text)
        delta = self._event(f"response.{part_kind}.delta", content_index=0, delta=text, **_logprobs(part))
        return [*events, delta]

    def _open_text(self, kind: str, part_kind: str) -> list[dict[str, Any]]:
        own: dict[str, Any] = (
            {"role": "assistant"} if kind == "message" else {"summary": [], "encrypted_content": None}
        )
        added = self._open(kind, {**own, "content": []})
        part: dict[str, Any] = {"type": part_kind, "text": ""}
        if part_kind == "output_text":
            part |= {"annotations": [], "logprobs": []}
        self.items[-1]["content"].append(part)
        return [added, self._event("response.content_part.added", content_index=0, part=dict(part))]

    def _call(self, call: ToolCall) -> list[dict[str, Any]]:
        events = self.close()
        events.append(self._open("function_call", {"call_id": call.id, "name": call.name, "arguments": ""}))
        self.items[-1]["arguments"] = call.arguments
        kind = "response.function_call_arguments"
        return [
            *events,
            self._event(f"{kind}.delta", delta=call.arguments),
            self._event(f"{kind}.done", name=call.name, arguments=call.arguments),
            *self.close(),
        ]

    def _open(self, kind: str, own: Mapping[str, Any]) -> dict[str, Any]:
        self._is_open, self._texts = True, []
        name = f"{_ID_PREFIXES[kind]}_{secrets.token_hex(12)}"
        self.items.append({"id": name, "type": kind, "status": "in_progress", **own})
        return self._item_event("added")

    def _item_event(self, what: str) -> dict[str, Any]:
        # the event holds the item as it is now, whatever is added to it later
        item = copy.deepcopy(self.items[-1])
        return {"type": f"response.output_item.{what}", "output_index": len(self.items) - 1, "item": item}

    def _event(self, kind: str, **fields: Any) -> dict[str, Any]:
        place = {"item_id": self.items[-1]["id"], "output_index": len(self.items) - 1}
        return {"type": kind, **place, **fields}


def response_head(heading: Heading, asked: ResponsesRequest, sampling: Sampling) -> dict[str, Any]:
    """What a response repeats of its request, with what was chosen where the request left it open."""
    return {
        "id": heading.id,
        "object": "response",
        "created_at": heading.created_unix_s,
        "model": heading.model,
        "background": False,
        "instructions": asked.instructions,
        "max_output_tokens": asked.max_output_tokens,
        "max_tool_calls": None,
        "metadata": asked.metadata or {},
        "parallel_tool_calls": asked.parallel_tool_calls is not False,
        "previous_response_id": asked.previous_response_id,
        "reasoning": {"effort": asked.effort, "summary": None},
        "service_tier": "default",
        "store": asked.is_kept,
        "temperature": sampling.temperature,
        "text": {"format": _format(asked)},
        "tool_choice": "auto" if asked.tool_choice is None else asked.tool_choice.shown,
        "tools": [tool.model_dump() for tool in asked.tools or ()],
        "top_logprobs": 0,
        "top_p": sampling.top_p,
        "presence_penalty": asked.presence_penalty or 0.0,
        "frequency_penalty": asked.frequency_penalty or 0.0,
        "truncation": "disabled",
        "user": asked.user,
    }


def begun_response(head: Mapping[str, Any]) -> dict[str, Any]:
    """A response of which nothing has been said yet."""
    return _response(head, "in_progress", ())


def ended_response(
    head: Mapping[str, Any],
    output: Sequence[dict[str, Any]],
    *,
    is_whole: bool,
    usage: dict[str, Any],
    completed_unix_s: int,
) -> dict[str, Any]:
    """A response that has come to its end, or to the limit of its length."""
    if is_whole:
        return _response(head, "completed", output, usage=usage, completed_at=completed_unix_s)
    cut = {"reason": "max_output_tokens"}
    return _response(head, "incomplete", output, usage=usage, incomplete_details=cut)


def failed_response(
    head: Mapping[str, Any], output: Sequence[dict[str, Any]], error: HermitcrabError
) -> dict[str, Any]:
    """A response that could not go on."""
    return _response(head, "failed", output, error={"code": "server_error", "message": str(error)})


def response_usage(usage: Usage, *, reasoning_tokens: int) -> dict[str, Any]:
    """Token counts; those of a kept prompt state are among the input's, and keeping one costs nothing."""
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": reasoning_tokens},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }


def is_whole(reason: FinishReason) -> bool:
    """Whether a reply ended by itself and not at its limit."""
    return reason is FinishReason.STOP


def _response(
    head: Mapping[str, Any], status: str, output: Sequence[dict[str, Any]], **more: Any
) -> dict[str, Any]:
    rest = {"completed_at": None, "error": None, "incomplete_details": None, "usage": None}
    return {**head, "status": status, "output": list(output), **rest, **more}


def _format(asked: ResponsesRequest) -> dict[str, Any]:
    given = None if asked.text is None else asked.text.format
    return {"type": "text"} if given is None else given.model_dump(by_alias=True, exclude_none=True)


def _logprobs(part: Mapping[str, Any]) -> dict[str, Any]:
    return {"logprobs": []} if part["type"] == "output_text" else {}
