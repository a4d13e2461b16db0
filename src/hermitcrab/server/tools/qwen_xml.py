"""The family's tool calls: `<tool_call>`, `<function=NAME>`, `<parameter=KEY>value</parameter>` and the ends.

A call that is malformed, or of a function the request did not offer, stays what it is: text of the answer.
Arguments are shown only once the whole call has been read, so a client never sees a half-parsed one.
"""

import json
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pydantic_core

from hermitcrab.server.text.marks import TOOL_CLOSE, TOOL_OPEN, spelled

_HEAD = re.compile(r"<function=(?P<name>[^<>\n]+)>")
_END = "</function>"
# a value ends at the closing tag that another parameter or the function's end follows: one inside it does not
_PARAMETER = re.compile(
    r"<parameter=(?P<key>[^<>\n]+)>\n?(?P<value>.*?)\n?</parameter>\s*(?=<parameter=|\Z)", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Content:
    """Text of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One whole call; `arguments` is a JSON object as text."""

    id: str
    name: str
    arguments: str


class ToolCallSplit:
    """Sorts an answer's text into content and calls of the offered functions, in order.

    `parameters` has each offered function's JSON schema by name. White space between content and a call, and
    after one, belongs to neither.
    """

    def __init__(self, parameters: Mapping[str, Mapping[str, Any]]) -> None:
        self._parameters = parameters
        self._call: str | None = None
        self._space = ""
        self._has_called = False

    def push(self, text: str) -> list[Content | ToolCall]:
        """Take the next answer text, marks included."""
        pieces: list[Content | ToolCall] = []
        for part in re.split(f"([{TOOL_OPEN}{TOOL_CLOSE}])", text):
            pieces += self._part(part)
        return pieces

    def finish(self) -> list[Content | ToolCall]:
        """The answer has ended: a call that lacks only its end mark counts, any other open one is content."""
        pieces = [] if self._call is None else self._close("")
        if self._space:
            pieces.append(Content(self._space))
        self._space = ""
        return pieces

    def _part(self, part: str) -> list[Content | ToolCall]:
        if part == TOOL_OPEN and self._parameters:
            unclosed = [] if self._call is None else self._close("")
            self._call = ""
            return unclosed
        if self._call is None:
            return self._content(spelled(part))
        if part == TOOL_CLOSE:
            return self._close(TOOL_CLOSE)
        self._call += part
        return []

    def _close(self, end: str) -> list[Content | ToolCall]:
        assert self._call is not None
        written, self._call = self._call, None
        call = read_call(written, self._parameters)
        if call is None:
            return self._content(spelled(TOOL_OPEN + written + end))
        self._space, self._has_called = "", True
        return [call]

    def _content(self, text: str) -> list[Content | ToolCall]:
        text = self._space + text
        if self._has_called:
            text = text.lstrip()
        shown = text.rstrip() if self._parameters else text
        self._space = text[len(shown) :]
        if not shown:
            return []
        self._has_called = False
        return [Content(shown)]


def read_call(text: str, parameters: Mapping[str, Mapping[str, Any]]) -> ToolCall | None:
    """The call written between the marks, under a fresh id; None if malformed or of an unknown function."""
    text = text.strip()
    head = _HEAD.match(text)
    if head is None or head["name"] not in parameters or not text.endswith(_END):
        return None
    arguments = _read_arguments(text[head.end() : -len(_END)].strip(), parameters[head["name"]])
    if arguments is None:
        return None
    return ToolCall(
        id=f"call_{secrets.token_hex(12)}",
        name=head["name"],
        arguments=json.dumps(arguments, ensure_ascii=False),
    )


def _read_arguments(text: str, schema: Mapping[str, Any]) -> dict[str, Any] | None:
    properties = schema.get("properties")
    arguments: dict[str, Any] = {}
    start = 0
    while start < len(text):
        match = _PARAMETER.match(text, start)
        if match is None or match["key"] in arguments:
            return None
        declared = properties.get(match["key"]) if isinstance(properties, Mapping) else None
        arguments[match["key"]] = _typed(match["value"], json_types(declared, schema))
        start = match.end()
    return arguments


def json_types(declared: object, root: Mapping[str, Any], depth: int = 0) -> Sequence[str]:
    """JSON types a parameter may have, as far as its schema says; none where it does not."""
    if not isinstance(declared, Mapping) or depth > 8:
        return ()
    named = declared.get("type")
    if isinstance(named, str):
        return (named,)
    if isinstance(named, list):
        return tuple(item for item in named if isinstance(item, str))
    choices = declared.get("anyOf") or declared.get("oneOf") or []
    found = [name for choice in choices for name in json_types(choice, root, depth + 1)]
    reference = declared.get("$ref")
    if isinstance(reference, str):
        found += json_types(resolved(reference, root), root, depth + 1)
    found += [_type_of(value) for value in declared.get("enum") or []]
    return tuple(dict.fromkeys(found))


def resolved(reference: str, root: Mapping[str, Any]) -> object:
    """What a reference inside `root` points at; None where that is nothing."""
    place: object = root
    for step in reference.removeprefix("#/").split("/"):
        place = place.get(step) if isinstance(place, Mapping) else None
    return place


def _typed(text: str, types: Sequence[str]) -> Any:
    """The value `text` stands for; the text itself where that is none of the types: the client may judge."""
    if "string" in types and text.lower() != "null":
        return text
    try:
        value = pydantic_core.from_json(text, allow_inf_nan=False)
        # a number too large for a float is infinity by now, which JSON cannot say
        json.dumps(value, allow_nan=False)
    except ValueError:
        # models also write Python's words
        value = {"true": True, "false": False, "none": None}.get(text.strip().lower(), text)
    if isinstance(value, float) and value.is_integer() and "integer" in types:
        value = int(value)
    name = _type_of(value)
    return value if name in types or (name == "integer" and "number" in types) else text


def _type_of(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"
