"""Everything the server knows about the model's text: prompts in, replies out, ends and sampling habits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hermitcrab.core.thinking import Thinking
from hermitcrab.errors import RequestError
from hermitcrab.server.text.grammar import Form, Grammars, Matcher
from hermitcrab.server.text.marks import (
    MARKS,
    SPELLINGS,
    THINK_CLOSE,
    THINK_OPEN,
    TOOL_CLOSE,
    TOOL_OPEN,
    spelled,
)
from hermitcrab.server.text.stream import TextStopWatch, TextStream
from hermitcrab.server.text.template import ChatTemplate
from hermitcrab.server.text.vocabulary import Vocabulary
from hermitcrab.server.tools.call_grammar import Calling, call_form

# what the family's templates put between a thinking block and the answer
_AFTER_THINKING = "\n\n"


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt's tokens; `is_thinking` when it leaves a thinking block open for the reply to go on in."""

    ids: tuple[int, ...]
    is_thinking: bool


@dataclass(frozen=True, slots=True)
class Habits:
    """How the model likes to be sampled where a request does not say."""

    temperature: float
    top_p: float
    top_k: int
    min_p: float = 0.0


@dataclass(frozen=True, slots=True)
class ChatText:
    """One model's text side. `template` is None for a model that has no chat template.

    `grammars` is None for a model whose texts have no end. `eos_ids` end a reply, `start_ids` begin messages.
    `thinking` and `plain` are the sampling habits with and without a thinking block.
    """

    vocabulary: Vocabulary
    template: ChatTemplate | None
    eos_ids: frozenset[int]
    thinking: Habits
    plain: Habits
    grammars: Grammars | None = None
    start_ids: frozenset[int] = frozenset()

    def chat_prompt(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        switches: Mapping[str, Any],
    ) -> Prompt:
        """The tokens of a conversation, up to where the reply begins.

        Only the template's own control tokens become control tokens; those spelled out in a message are plain
        text. Raises RequestError when there is no template or it refuses the messages.
        """
        if self.template is None:
            raise RequestError("This model has no chat template; use /v1/completions.", param="messages")
        return self._prompt(self.vocabulary.encode(self.template.render(messages, tools, switches)))

    def raw_prompt(self, text: str) -> Prompt:
        """The tokens of a text as it stands; control tokens spelled out in it are control tokens."""
        return self._prompt(self.vocabulary.encode(text))

    def token_prompt(self, ids: Sequence[int]) -> Prompt:
        """A prompt given as tokens; the engine refuses those it does not have."""
        return self._prompt(ids)

    def text_of(self, ids: Sequence[int]) -> str:
        """The text of tokens, marks written out."""
        stream = TextStream(self.vocabulary)
        return spelled(stream.push(ids) + stream.finish())

    def reply_text(self, stops: Sequence[str], *, min_tokens: int = 0) -> TextStream:
        """A fresh stream for one reply's text."""
        return TextStream(self.vocabulary, _with_marks(stops), min_tokens=min_tokens)

    def stop_watch(self, stops: Sequence[str], *, min_tokens: int = 0) -> TextStopWatch | None:
        """What tells the engine that a stop string is complete; None where there is nothing to watch for."""
        return TextStopWatch(self.vocabulary, _with_marks(stops), min_tokens=min_tokens) if stops else None

    def grammar(self, form: Form, *, ignore_eos: bool) -> Matcher:
        """The rules of one reply that must have this form. Raises RequestError where that cannot be."""
        if self.grammars is None:
            raise RequestError(f"{form.field} needs a model whose texts have an end.", param=form.field)
        return self.grammars.open(form, ignore_eos=ignore_eos)

    def call_form(self, parameters: Mapping[str, Mapping[str, Any]], calling: Calling) -> Form:
        """The form of a reply that calls the offered functions as asked; `parameters` has their schemas.

        Raises RequestError for a model that does not mark its calls, and for a name that no call can spell.
        """
        open_id = self.vocabulary.id_of(SPELLINGS[TOOL_OPEN])
        close_id = self.vocabulary.id_of(SPELLINGS[TOOL_CLOSE])
        if open_id is None or close_id is None:
            raise RequestError("This model does not mark its tool calls.", param="tool_choice")
        return call_form(parameters, calling, open_id=open_id, close_id=close_id)

    def thinking_rules(
        self, *, is_open: bool, budget_tokens: int | None, closes_whole: bool = False
    ) -> Thinking | None:
        """How a reply's thinking is marked and bounded; None for a model without marks.

        Raises RequestError for a budget of a model without marks.
        """
        close_id = self.vocabulary.id_of(SPELLINGS[THINK_CLOSE])
        if close_id is None:
            if budget_tokens is not None:
                raise RequestError("This model does not mark its thinking.", param="thinking_budget")
            return None
        return Thinking(
            is_open,
            open_id=self.vocabulary.id_of(SPELLINGS[THINK_OPEN]),
            close_ids=(close_id, *self.vocabulary.encode(_AFTER_THINKING)),
            budget_tokens=budget_tokens,
            closes_whole=closes_whole,
        )

    def effort(self, asked: str) -> str | None:
        """The level of thinking the template knows nearest to `asked`; None if it knows none.

        Raises RequestError for a word that is no level at all.
        """
        return None if self.template is None else self.template.effort(asked)

    def habits(self, *, is_thinking: bool) -> Habits:
        """The sampling habits of a reply with or without thinking."""
        return self.thinking if is_thinking else self.plain

    def _prompt(self, ids: Sequence[int]) -> Prompt:
        is_thinking = False
        for token in ids:
            mark = self.vocabulary.mark_of(token)
            if mark in (THINK_OPEN, THINK_CLOSE):
                is_thinking = mark == THINK_OPEN
        return Prompt(tuple(ids), is_thinking)


def _with_marks(stops: Sequence[str]) -> tuple[str, ...]:
    """The stop strings, and again with structural tokens as marks where they spell one."""
    marked = []
    for stop in stops:
        text = stop
        for spelling, mark in MARKS.items():
            text = text.replace(spelling, mark)
        marked.append(text)
    return tuple(dict.fromkeys((*stops, *marked)))
