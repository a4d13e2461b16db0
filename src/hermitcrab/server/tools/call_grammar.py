"""The family's tool calls as a grammar: a reply that must call, or may call once only, is drawn inside it.

A call has the form that the template writes and `qwen_xml` reads, with the parameters that the function's
schema declares, in its order, those it requires always.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hermitcrab.errors import RequestError
from hermitcrab.server.text.grammar import JSON_OPTIONS, Form
from hermitcrab.server.tools.qwen_xml import json_types, resolved

_SPELLABLE = re.compile(r"[^<>\n]+")
_VALUE_END = "\n</parameter>\n"
# a text goes on to the line that closes it; what is in it is the model's own affair
_TEXT_RULE = f"text[suffix={json.dumps(_VALUE_END)}]: /(?s:.*)/"
_MAX_REFERENCES = 8


@dataclass(frozen=True, slots=True)
class Calling:
    """What a request asks of its reply's tool calls: that there be one, of which function, and how many."""

    is_required: bool = False
    only: str | None = None
    is_parallel: bool = True

    @property
    def is_free(self) -> bool:
        """Whether the model may do as it likes."""
        return not self.is_required and self.is_parallel


def call_form(
    parameters: Mapping[str, Mapping[str, Any]], calling: Calling, *, open_id: int, close_id: int
) -> Form:
    """The form of a reply that calls as asked. `parameters` has the offered functions' schemas by name.

    `open_id` and `close_id` are the tokens around a call. Raises RequestError for a name no call can spell.
    """
    names = parameters if calling.only is None else (calling.only,)
    rules: list[str] = []
    for at, name in enumerate(names):
        rules += _function_rules(f"f{at}", name, parameters[name])
    functions = " | ".join(f"f{at}" for at in range(len(names)))
    body = f'call: <[{open_id}]> "\\n" ({functions}) "\\n" <[{close_id}]>'
    return Form("\n".join((_start(calling), body, _TEXT_RULE, *rules)), "tools")


def _start(calling: Calling) -> str:
    if calling.is_required:
        return 'start: call ("\\n" call)*' if calling.is_parallel else "start: call"
    return "start: TEXT call?\nTEXT: /(?s:.*)/"


def _function_rules(rule: str, name: str, schema: Mapping[str, Any]) -> Iterable[str]:
    """The rule of one function, and one for each of its parameters."""
    if not _SPELLABLE.fullmatch(name):
        raise RequestError(f"tools: no call can spell the name {name!r}.", param="tools")
    properties, required = schema.get("properties"), schema.get("required")
    properties = properties if isinstance(properties, Mapping) else {}
    required = required if isinstance(required, list) else []
    parts = []
    for at, (key, declared) in enumerate(properties.items()):
        if not _SPELLABLE.fullmatch(key):
            if key in required:
                raise RequestError(f"tools: no call can spell the parameter {key!r}.", param="tools")
            continue
        part = f"{rule}_{at}"
        parts.append(part if key in required else f"{part}?")
        yield f"{part}: {_literal('<parameter=' + key + '>', is_line=True)} {_value(declared, schema)}"
    yield " ".join(
        (f"{rule}: {_literal('<function=' + name + '>', is_line=True)}", *parts, _literal("</function>"))
    )


def _value(declared: object, root: Mapping[str, Any]) -> str:
    """A parameter's value and the line that closes it: one of the texts it may be, a text, or JSON."""
    for _ in range(_MAX_REFERENCES):
        if not isinstance(declared, Mapping) or not isinstance(declared.get("$ref"), str):
            break
        declared = resolved(declared["$ref"], root)
    if not isinstance(declared, Mapping):
        return "text"
    options = [declared["const"]] if "const" in declared else declared.get("enum")
    if isinstance(options, list) and options:
        return f"({' | '.join(_literal(_spelled(option) + _VALUE_END) for option in options)})"
    types = json_types(declared, root)
    if not types or "string" in types:
        return "text"
    named = {key: root[key] for key in ("$defs", "definitions") if key in root}
    schema = json.dumps({**named, **declared, "x-guidance": dict(JSON_OPTIONS)})
    return f"%json {schema} {_literal(_VALUE_END)}"


def _spelled(option: object) -> str:
    return option if isinstance(option, str) else json.dumps(option, ensure_ascii=False)


def _literal(text: str, *, is_line: bool = False) -> str:
    return json.dumps(text + "\n" if is_line else text)
