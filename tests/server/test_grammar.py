"""Grammars over the model's tokens: what may follow, drafts walked without a trace, the end."""

import json
import re
import threading
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermitcrab.errors import LaneError, RequestError
from hermitcrab.sampling.edits import is_in
from hermitcrab.server.text.chat import ChatText
from hermitcrab.server.text.grammar import Form, Matcher, choice_form, json_form, regex_form

WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
FORMS = {
    "json": json_form(WEATHER, "f"),
    "regex": regex_form(r"[a-c]{2,5}(-[0-9]+)?", "f"),
    "choice": choice_form(["yes", "no", 'per"haps\n', "naïve 日本"], "f"),
}


def opened(text: ChatText, form: Form, *, ignore_eos: bool = False) -> Matcher:
    return text.grammar(form, ignore_eos=ignore_eos)


def members(text: ChatText, mask: bytes | None) -> set[int]:
    return set() if mask is None else {token for token in range(text.vocabulary.end_id) if is_in(mask, token)}


def written(text: ChatText, matcher: Matcher, picks: Sequence[int], most_tokens: int = 200) -> list[int]:
    """A text of the grammar: each pick chooses among what may follow; ends where the text may end."""
    tokens: list[int] = []
    for pick in picks[:most_tokens]:
        allowed = members(text, matcher.allowed(()))
        if not allowed or allowed & text.eos_ids:
            break
        token = sorted(allowed)[pick % len(allowed)]
        matcher.advance(token)
        tokens.append(token)
    return tokens


def is_complete(text: ChatText, matcher: Matcher) -> bool:
    return bool(members(text, matcher.allowed(())) & text.eos_ids)


@settings(deadline=None)
@given(picks=st.lists(st.integers(0, 500), min_size=30, max_size=30))
def test_what_a_regex_allows_it_matches(text: ChatText, picks: list[int]) -> None:
    matcher = opened(text, FORMS["regex"])
    said = text.text_of(written(text, matcher, picks))
    assert is_complete(text, matcher)
    assert re.fullmatch(r"[a-c]{2,5}(-[0-9]+)?", said)


@settings(deadline=None)
@given(picks=st.lists(st.integers(0, 500), min_size=20, max_size=20))
def test_a_choice_is_one_of_the_texts(text: ChatText, picks: list[int]) -> None:
    matcher = opened(text, FORMS["choice"])
    said = text.text_of(written(text, matcher, picks))
    assert said in ("yes", "no", 'per"haps\n', "naïve 日本")
    # no text goes on from here, so nothing but the end may come
    assert members(text, matcher.allowed(())) == text.eos_ids


@pytest.mark.parametrize("value", [{"city": "Paris", "days": 3}, {"city": 'Zü"rich\n', "days": -10}])
def test_json_that_fits_the_schema_is_allowed_token_for_token(text: ChatText, value: object) -> None:
    matcher = opened(text, FORMS["json"])
    for token in text.vocabulary.encode(json.dumps(value, ensure_ascii=False)):
        assert is_in(matcher.allowed(()) or b"", token)
        matcher.advance(token)
    assert is_complete(text, matcher)


@pytest.mark.parametrize("said", ['{"city": 1', '{"days"', "[", "Sure! {", '{"city": "x", "days": 1.5'])
def test_json_that_does_not_fit_is_refused_on_its_way(text: ChatText, said: str) -> None:
    assert opened(text, FORMS["json"]).allowed(text.vocabulary.encode(said)) is None


@settings(deadline=None)
@given(
    form=st.sampled_from(sorted(FORMS)),
    picks=st.lists(st.integers(0, 500), max_size=12),
    ahead=st.lists(st.integers(0, 500), max_size=5),
)
def test_a_walk_ahead_equals_the_way_and_leaves_no_trace(
    text: ChatText, form: str, picks: list[int], ahead: list[int]
) -> None:
    here, twin = opened(text, FORMS[form]), opened(text, FORMS[form])
    written(text, here, picks)
    written(text, twin, picks)
    before = here.allowed(())
    way = written(text, twin, ahead)
    assert here.allowed(way) == twin.allowed(())
    here.allowed([*way, 0, 1, 2])
    assert here.allowed(()) == before


def test_control_tokens_are_no_text(text: ChatText) -> None:
    matcher = opened(text, regex_form("(?s:.*)", "f"))
    assert members(text, matcher.allowed(())) & set(text.vocabulary.control_ids) == text.eos_ids
    assert matcher.allowed([min(text.eos_ids)]) is None


def test_with_the_end_ignored_a_complete_text_lets_nothing_follow(text: ChatText) -> None:
    matcher = opened(text, FORMS["choice"], ignore_eos=True)
    for token in text.vocabulary.encode("yes"):
        matcher.advance(token)
    assert matcher.allowed(()) is None


def test_a_token_that_is_not_in_the_grammar_is_an_error(text: ChatText) -> None:
    with pytest.raises(LaneError, match="left its grammar"):
        opened(text, FORMS["choice"]).advance(text.vocabulary.encode("x")[0])


@pytest.mark.parametrize(
    "form", [regex_form("((", "there"), json_form({"type": "crab"}, "there")], ids=["regex", "schema"]
)
def test_what_is_no_grammar_is_refused_by_its_field(text: ChatText, form: Form) -> None:
    with pytest.raises(RequestError, match="there cannot be followed") as refused:
        opened(text, form)
    assert refused.value.param == "there"


def test_a_copy_goes_its_own_way(text: ChatText) -> None:
    matcher = opened(text, FORMS["choice"])
    copy = matcher.copy()
    written(text, matcher, [0] * 20)
    assert copy.allowed(()) == opened(text, FORMS["choice"]).allowed(())


def test_a_grammar_may_be_made_on_one_thread_and_walked_on_another(text: ChatText) -> None:
    matcher = opened(text, FORMS["json"])
    said: list[list[int]] = []
    walker = threading.Thread(target=lambda: said.append(written(text, matcher, [3] * 40)))
    walker.start()
    walker.join(30)
    assert said == [written(text, opened(text, FORMS["json"]), [3] * 40)]


@pytest.mark.parametrize("indent", [None, 1, 4, "\t"])
def test_json_may_be_laid_out(text: ChatText, indent: int | str | None) -> None:
    nested = json_form({"type": "object"}, "f")
    said = json.dumps({"a": [1, {"b": {"c": []}}], "d": None}, indent=indent)
    ids = text.vocabulary.encode(said)
    matcher = opened(text, nested)
    assert matcher.allowed(ids[:-1]) is not None
    for token in ids:
        matcher.advance(token)
    assert is_complete(text, matcher)


def test_json_is_no_place_for_white_space_without_end(text: ChatText) -> None:
    matcher = opened(text, FORMS["json"])
    assert matcher.allowed(text.vocabulary.encode('{ "')) is not None
    assert matcher.allowed(text.vocabulary.encode("{  ")) is None
    assert matcher.allowed(text.vocabulary.encode("{\n" + " " * 25)) is None
