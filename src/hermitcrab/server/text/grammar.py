"""Grammars for replies: JSON of a schema, a regular expression, a list of texts; llguidance walks them.

A reply under a grammar is a text of the grammar over the model's tokens, cut by end-of-text tokens where the
text is complete. Control tokens are never part of such a text.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

from hermitcrab.errors import LaneError, RequestError
from hermitcrab.sampling.edits import without
from hermitcrab.server.text.vocabulary import Vocabulary

# a space, or a line break with indentation: a model that likes white space must not go on for ever
JSON_OPTIONS: Mapping[str, Any] = {"whitespace_flexible": True, "whitespace_pattern": r"( |\n[ \t]{0,24})?"}


@dataclass(frozen=True, slots=True)
class Form:
    """What a reply must be: a grammar as llguidance reads it, and the request's field that it comes from."""

    grammar: str
    field: str


def json_form(schema: Mapping[str, Any], field: str) -> Form:
    """JSON that fits a schema. Raises RequestError for one that is no JSON object."""
    try:
        return Form(LLMatcher.grammar_from_json_schema(dict(schema), overrides=dict(JSON_OPTIONS)), field)  # type: ignore[arg-type]  # its options are a closed record
    except ValueError as error:
        raise RequestError(f"{field}: {error}", param=field) from error


def regex_form(pattern: str, field: str) -> Form:
    """A text that a regular expression matches as a whole."""
    return Form(LLMatcher.grammar_from_regex(pattern), field)


def choice_form(choices: Sequence[str], field: str) -> Form:
    """One of some texts."""
    return Form(LLMatcher.grammar_from_lark("start: " + " | ".join(map(json.dumps, choices))), field)


class Grammars:
    """The grammars over one model's tokens. Safe to use from several threads."""

    def __init__(self, vocabulary: Vocabulary, eos_ids: frozenset[int]) -> None:
        """`eos_ids`, at least one, are the tokens that may end a complete text."""
        self._eos_ids = eos_ids
        tokens = _Tokens(vocabulary, min(eos_ids))
        self._tokenizer = LLTokenizer(
            TokenizerWrapper(tokens), n_vocab=len(tokens.tokens), eos_token=sorted(eos_ids)
        )

    def open(self, form: Form, *, ignore_eos: bool) -> "Matcher":
        """The rules of one reply. Takes up to a second for a large schema.

        Raises RequestError, naming the field, for a form that is no grammar.
        """
        matcher = LLMatcher(self._tokenizer, form.grammar, log_level=0)
        if matcher.is_error():
            words = re.sub(r"\s+", " ", matcher.get_error())
            raise RequestError(f"{form.field} cannot be followed: {words}", param=form.field)
        return Matcher(matcher, self._eos_ids, ignore_eos=ignore_eos)


class Matcher:
    """One reply's way through its grammar; implements `core.grammar.GrammarRules`."""

    def __init__(self, matcher: LLMatcher, eos_ids: frozenset[int], *, ignore_eos: bool) -> None:
        self._matcher = matcher
        self._eos_ids = eos_ids
        self._ignore_eos = ignore_eos

    def allowed(self, ahead: Sequence[int]) -> bytes | None:
        """The tokens that may come after `ahead`; None where there are none."""
        if not self._eos_ids.isdisjoint(ahead):
            return None
        matcher = self._matcher
        if ahead:
            # a copy, for an error on the way stays with the matcher that met it
            matcher = matcher.deep_copy()
            if matcher.try_consume_tokens(list(ahead)) != len(ahead):
                return None
        mask = matcher.compute_bitmask()
        if matcher.is_error():
            raise LaneError(f"the reply's grammar is too much to follow: {matcher.get_error()}")
        mask = without(mask, self._eos_ids) if self._ignore_eos else mask
        return mask if any(mask) else None

    def advance(self, token: int) -> None:
        """Take in the reply's next token. Raises LaneError for one that the grammar does not have."""
        if not self._matcher.consume_token(token):
            raise LaneError(f"the reply has left its grammar: {self._matcher.get_error()}")

    def copy(self) -> "Matcher":
        """Another reply at the same place."""
        return Matcher(self._matcher.deep_copy(), self._eos_ids, ignore_eos=self._ignore_eos)


class _Tokens:
    """The vocabulary as llguidance asks for one."""

    bos_token_id = None

    def __init__(self, vocabulary: Vocabulary, eos_id: int) -> None:
        self._vocabulary = vocabulary
        self.eos_token_id = eos_id
        self.tokens = [vocabulary.spelling_of(token) for token in range(vocabulary.end_id)]
        self.special_token_ids = list(vocabulary.control_ids)

    def __call__(self, text: bytes) -> list[int]:
        return self._vocabulary.encode(self._vocabulary.broken(text.decode("utf-8", errors="replace")))
