"""The model's chat template: messages to the text of a prompt, in which no message can forge a control token.

Every string that comes from a request has its control token spellings broken (`Vocabulary.broken`) before the
template sees it, so that in the rendered text only the template's own spellings are whole.
"""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NoReturn

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from hermitcrab.clock import Clock
from hermitcrab.errors import CheckpointError, RequestError
from hermitcrab.server.text.vocabulary import Vocabulary

# names a request's chat_template_kwargs may not take: the server fills them
_OWN_NAMES = frozenset({"messages", "tools", "add_generation_prompt"})

# how hard to think, weakest first; "none" is not a level but thinking switched off
_EFFORT_LADDER = ("minimal", "low", "medium", "high", "xhigh", "max")


class ChatTemplate:
    """A compiled template. Safe to use from several threads."""

    def __init__(self, source: str, vocabulary: Vocabulary, special: Mapping[str, str], clock: Clock) -> None:
        """Raises CheckpointError when the template is not valid Jinja."""
        self._vocabulary = vocabulary
        self._special = dict(special)
        self._efforts = _named_efforts(source)
        try:
            self._template = _environment(clock).from_string(source)
        except jinja2.TemplateError as error:
            raise CheckpointError(f"the chat template cannot be compiled: {error}") from error

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        switches: Mapping[str, Any],
    ) -> str:
        """The prompt's text, with a `BREAK` in every control token that a request spells out.

        Raises RequestError with the template's own words when it refuses the messages.
        """
        taken = sorted(_OWN_NAMES.union(self._special) & switches.keys())
        if taken:
            raise RequestError(
                f"chat_template_kwargs may not set {taken[0]}: the server does.", param="chat_template_kwargs"
            )
        given: dict[str, Any] = {
            "messages": self._broken(list(messages)),
            "tools": self._broken(list(tools)) or None,
            "add_generation_prompt": True,
            **self._special,
            **self._broken(dict(switches)),
        }
        try:
            return self._template.render(given)
        except Exception as error:  # a template can fail in any way on values it was not written for
            raise RequestError(
                f"The model's chat template refuses these messages: {error}", param="messages"
            ) from error

    def effort(self, asked: str) -> str | None:
        """The level nearest to `asked` that the template knows, upwards in a tie; None if it knows none.

        Raises RequestError for a word that is no level at all.
        """
        if asked not in _EFFORT_LADDER:
            raise RequestError(
                f"reasoning_effort must be one of none, {', '.join(_EFFORT_LADDER)}, not {asked!r}.",
                param="reasoning_effort",
            )
        place = _EFFORT_LADDER.index(asked)
        return min(
            self._efforts,
            key=lambda level: (
                abs(_EFFORT_LADDER.index(level) - place),
                -_EFFORT_LADDER.index(level),
            ),
            default=None,
        )

    def _broken(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._vocabulary.broken(value)
        if isinstance(value, Mapping):
            return {self._broken(key): self._broken(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._broken(item) for item in value]
        return value


def _named_efforts(source: str) -> tuple[str, ...]:
    if "reasoning_effort" not in source:
        return ()
    return tuple(level for level in _EFFORT_LADDER if re.search(rf"""(['"]){level}\1""", source))


def _environment(clock: Clock) -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = lambda form: datetime.fromtimestamp(clock.unix_s(), UTC).strftime(
        form
    )
    return environment


def _to_json(
    value: object,
    ensure_ascii: bool = False,  # templates call it as transformers defines it
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON without the HTML escapes of Jinja's own filter, which no model was trained on."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _refuse(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)
