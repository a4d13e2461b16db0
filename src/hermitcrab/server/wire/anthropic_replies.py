"""Anthropic's Messages API: its replies, whole and as a stream of events.

A whole reply is what its own stream adds up to: both come out of one `BlockList`.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from hermitcrab.core.api import FinishReason, Usage
from hermitcrab.server.reading import Piece, ReplyReader
from hermitcrab.server.text.thinking import Reasoning
from hermitcrab.server.tools.qwen_xml import Content, ToolCall
from hermitcrab.server.wire.openai_replies import Heading

# clients send thinking back only with a signature; there is nothing here to sign
SIGNATURE = "unsigned"


class BlockList:
    """The content blocks of one reply as its pieces come."""

    def __init__(self) -> None:
        self.blocks: list[dict[str, Any]] = []
        self._is_open = False
        # the open block's text, joined once: adding to a long string again and again copies it each time
        self._texts: list[str] = []

    def push(self, pieces: Iterable[Piece]) -> list[dict[str, Any]]:
        """Take pieces, in order; returns the events that say so."""
        return [event for piece in pieces for event in self._piece(piece)]

    def close(self) -> list[dict[str, Any]]:
        """The reply has ended: the events that end its last block."""
        if not self._is_open:
            return []
        self._is_open = False
        at = len(self.blocks) - 1
        block, events = self.blocks[at], []
        if block["type"] != "tool_use":
            block[block["type"]] = "".join(self._texts)
        if block["type"] == "thinking":
            block["signature"] = SIGNATURE
            events.append(_delta(at, {"type": "signature_delta", "signature": SIGNATURE}))
        return [*events, {"type": "content_block_stop", "index": at}]

    def _piece(self, piece: Piece) -> list[dict[str, Any]]:
        match piece:
            case Content(text):
                events = self._open("text", {"text": ""})
                self._texts.append(text)
                return [*events, _delta(len(self.blocks) - 1, {"type": "text_delta", "text": text})]
            case Reasoning(text):
                events = self._open("thinking", {"thinking": "", "signature": ""})
                self._texts.append(text)
                return [*events, _delta(len(self.blocks) - 1, {"type": "thinking_delta", "thinking": text})]
            case ToolCall():
                events = [
                    *self.close(),
                    *self._open("tool_use", {"id": piece.id, "name": piece.name, "input": {}}),
                ]
                self.blocks[-1]["input"] = json.loads(piece.arguments)
                delta = {"type": "input_json_delta", "partial_json": piece.arguments}
                return [*events, _delta(len(self.blocks) - 1, delta), *self.close()]

    def _open(self, kind: str, empty: dict[str, Any]) -> list[dict[str, Any]]:
        """Open a block of this kind, unless the last one is; what is open else is closed."""
        if self._is_open and self.blocks[-1]["type"] == kind:
            return []
        events = self.close()
        self._is_open, self._texts = True, []
        self.blocks.append({"type": kind, **empty})
        # the event holds the block as it opens, whatever is added to it later
        shown = dict(self.blocks[-1])
        return [
            *events,
            {"type": "content_block_start", "index": len(self.blocks) - 1, "content_block": shown},
        ]


def message_body(
    heading: Heading,
    blocks: Sequence[dict[str, Any]],
    stop: dict[str, str | None],
    usage: dict[str, Any],
) -> dict[str, Any]:
    """A message, whole or as it begins."""
    return {
        "id": heading.id,
        "type": "message",
        "role": "assistant",
        "model": heading.model,
        "content": list(blocks),
        **stop,
        "usage": usage,
    }


def not_stopped() -> dict[str, str | None]:
    """The end of a message that goes on."""
    return {"stop_reason": None, "stop_sequence": None}


def stop_fields(reason: FinishReason, reader: ReplyReader) -> dict[str, str | None]:
    """Why a message ended, in the API's words; a cut one is `max_tokens` whatever it holds."""
    if reason is not FinishReason.STOP:
        return {"stop_reason": "max_tokens", "stop_sequence": None}
    if reader.stopped_by is not None:
        return {"stop_reason": "stop_sequence", "stop_sequence": reader.stopped_by}
    return {"stop_reason": "tool_use" if reader.has_called else "end_turn", "stop_sequence": None}


def message_usage(
    *, input_tokens: int, output_tokens: int, thinking_tokens: int, cached_tokens: int = 0
) -> dict[str, Any]:
    """Token counts: what comes from a cache counts beside the input; writing to ours costs nothing."""
    return {
        "input_tokens": input_tokens - cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached_tokens,
        "output_tokens": output_tokens,
        "output_tokens_details": {"thinking_tokens": thinking_tokens},
    }


def finished_usage(usage: Usage, *, thinking_tokens: int) -> dict[str, Any]:
    """The counts of a reply that has ended."""
    return message_usage(
        input_tokens=usage.prompt_tokens,
        output_tokens=usage.completion_tokens,
        thinking_tokens=thinking_tokens,
        cached_tokens=usage.cached_tokens,
    )


def _delta(at: int, delta: dict[str, Any]) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": at, "delta": delta}
