"""Whether and how often a reply must or may call tools, in OpenAI's words, and as the reply obeys it."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from hermitcrab.errors import RequestError
from hermitcrab.server.tools.call_grammar import Calling
from hermitcrab.server.wire.body import RequestModel

_MODES = ("none", "auto", "required")
_NAME = {"type": "string", "minLength": 1}


class Choice(RequestModel):
    """How a request wants tools called; `name` is the one function that must be."""

    mode: Literal["none", "auto", "required"]
    name: Annotated[str | None, Field(min_length=1)] = None

    @property
    def shown(self) -> str | dict[str, str]:
        """The choice as the Responses API repeats it."""
        return self.mode if self.name is None else {"type": "function", "name": self.name}


def _choice(value: Any) -> Any:
    if value is None or isinstance(value, Choice):
        return value
    if isinstance(value, str) and value in _MODES:
        return {"mode": value}
    if isinstance(value, dict) and value.get("type") == "function":
        # chat has the name inside the function, Responses beside the type
        function = value.get("function", value)
        name = function.get("name") if isinstance(function, dict) else None
        if isinstance(name, str):
            return {"mode": "required", "name": name}
    raise ValueError("must be 'none', 'auto', 'required' or a function by its name")


ToolChoice = Annotated[
    Choice | None,
    BeforeValidator(_choice),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "null"},
                {"enum": list(_MODES)},
                {
                    "type": "object",
                    "properties": {
                        "type": {"const": "function"},
                        "function": {"type": "object", "properties": {"name": _NAME}, "required": ["name"]},
                    },
                    "required": ["type", "function"],
                },
                {
                    "type": "object",
                    "properties": {"type": {"const": "function"}, "name": _NAME, "function": False},
                    "required": ["type", "name"],
                },
            ]
        }
    ),
]


def wanted_calling(choice: Choice | None, offered: Sequence[str], *, is_parallel: bool | None) -> Calling:
    """What the reply must obey. Raises RequestError for a call that is required of tools not offered."""
    if choice is None or choice.mode != "required":
        return Calling(is_parallel=is_parallel is not False)
    if not offered:
        raise RequestError("tool_choice requires a call, and there are no tools.", param="tool_choice")
    if choice.name is not None and choice.name not in offered:
        raise RequestError(f"tool_choice names {choice.name!r}, which is not in tools.", param="tool_choice")
    return Calling(is_required=True, only=choice.name, is_parallel=is_parallel is not False)
