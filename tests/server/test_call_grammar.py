"""Calls drawn inside a grammar: whatever is drawn reads back as a call that the schema takes."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermitcrab.errors import RequestError
from hermitcrab.sampling.edits import is_in
from hermitcrab.server.reading import ReplyReader
from hermitcrab.server.text.chat import ChatText
from hermitcrab.server.text.grammar import Matcher
from hermitcrab.server.tools.call_grammar import Calling
from hermitcrab.server.tools.qwen_xml import Content, ToolCall

WEATHER = {
    "type": "object",
    "$defs": {"place": {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}},
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer", "minimum": 1, "maximum": 9},
        "unit": {"enum": ["C", "F", None, 3]},
        "place": {"$ref": "#/$defs/place"},
        "tags": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2},
        "anything": {},
    },
    "required": ["city", "days"],
}
OFFERED: dict[str, Mapping[str, Any]] = {"get_weather": WEATHER, "stop": {}}
CALL = "<tool_call>\n<function=get_weather>\n<parameter=city>\n{}\n</parameter>\n{}</function>\n</tool_call>"
DAYS = "<parameter=days>\n{}\n</parameter>\n"
PARIS = CALL.format("Paris", DAYS.format(3))
STOP = "<tool_call>\n<function=stop>\n</function>\n</tool_call>"

MUST = Calling(is_required=True)
MUST_ONCE = Calling(is_required=True, is_parallel=False)
MAY_ONCE = Calling(is_parallel=False)


def opened(text: ChatText, calling: Calling, offered: Mapping[str, Mapping[str, Any]] = OFFERED) -> Matcher:
    return text.grammar(text.call_form(offered, calling), ignore_eos=False)


def is_reply(text: ChatText, calling: Calling, said: str, **more: Any) -> bool:
    """Whether the grammar takes `said` token by token, and lets it end there."""
    matcher = opened(text, calling, **more)
    for token in text.vocabulary.encode(said):
        if not is_in(matcher.allowed(()) or b"", token):
            return False
        matcher.advance(token)
    return any(is_in(matcher.allowed(()) or b"", end) for end in text.eos_ids)


@pytest.mark.parametrize(
    ("said", "calling", "is_taken"),
    [
        (PARIS, MUST, True),
        (f"{PARIS}\n{STOP}\n{PARIS}", MUST, True),
        (PARIS, MUST_ONCE, True),
        (f"{PARIS}\n{PARIS}", MUST_ONCE, False),
        ("It is sunny.", MUST, False),
        ("", MUST, False),
        (f"Let me look.\n\n{PARIS}", MAY_ONCE, True),
        ("It is sunny.", MAY_ONCE, True),
        (f"{STOP}\n{STOP}", MAY_ONCE, False),
        (f"{STOP} and more", MAY_ONCE, False),
        (STOP, Calling(is_required=True, only="get_weather"), False),
        (PARIS, Calling(is_required=True, only="get_weather"), True),
    ],
)
def test_a_reply_calls_as_often_as_it_must_and_may(
    text: ChatText, said: str, calling: Calling, is_taken: bool
) -> None:
    assert is_reply(text, calling, said) is is_taken


@pytest.mark.parametrize(
    ("said", "is_taken"),
    [
        (CALL.format("two\nlines <b> </parameter> in it", DAYS.format(9)), True),
        (CALL.format("Paris", ""), False),
        (CALL.format("Paris", DAYS.format("three")), False),
        (CALL.format("Paris", DAYS.format(10)), False),
        (CALL.format("Paris", DAYS.format(1) + "<parameter=unit>\nF\n</parameter>\n"), True),
        (CALL.format("Paris", DAYS.format(1) + "<parameter=unit>\nnull\n</parameter>\n"), True),
        (CALL.format("Paris", DAYS.format(1) + "<parameter=unit>\nK\n</parameter>\n"), False),
        (CALL.format("Paris", DAYS.format(1) + '<parameter=place>\n{"x": 4}\n</parameter>\n'), True),
        (CALL.format("Paris", DAYS.format(1) + '<parameter=place>\n{"y": 4}\n</parameter>\n'), False),
        (CALL.format("Paris", DAYS.format(1) + "<parameter=nobody>\n4\n</parameter>\n"), False),
        (PARIS.replace("get_weather", "get_money"), False),
    ],
)
def test_arguments_are_those_the_schema_takes(text: ChatText, said: str, is_taken: bool) -> None:
    assert is_reply(text, MUST, said) is is_taken


def fits(arguments: Mapping[str, Any]) -> bool:
    rest = set(arguments) - {"city", "days", "unit", "place", "tags", "anything"}
    return (
        not rest
        and isinstance(arguments["city"], str)
        and arguments["days"] in range(1, 10)
        and arguments.get("unit") in ("C", "F", None, 3)
        and isinstance(arguments.get("place", {"x": 1})["x"], int)
        and all(isinstance(tag, bool) for tag in arguments.get("tags", ()))
    )


def drawn(text: ChatText, matcher: Matcher, picks: Sequence[int]) -> list[int] | None:
    """A reply in which each pick chooses among what may follow, and calls end as soon as they may."""
    tokens: list[int] = []
    for pick in picks:
        mask = matcher.allowed(()) or b""
        allowed = [token for token in range(text.vocabulary.end_id) if is_in(mask, token)]
        if text.eos_ids.intersection(allowed):
            return tokens
        tokens.append(allowed[pick % len(allowed)])
        matcher.advance(tokens[-1])
    return None


@settings(deadline=None, max_examples=50)
@given(picks=st.lists(st.integers(0, 500), min_size=300, max_size=300))
def test_whatever_is_drawn_reads_as_a_call_that_fits(text: ChatText, picks: list[int]) -> None:
    tokens = drawn(text, opened(text, MUST_ONCE), picks)
    if tokens is None:
        return
    reader = ReplyReader(text, stops=(), is_thinking=False, parameters=OFFERED)
    pieces = [*reader.push(tokens), *reader.finish()]
    (call,) = pieces
    assert isinstance(call, ToolCall)
    arguments = json.loads(call.arguments)
    assert arguments == {} if call.name == "stop" else fits(arguments)


def test_a_text_that_is_no_call_stays_content(text: ChatText) -> None:
    reader = ReplyReader(text, stops=(), is_thinking=False, parameters=OFFERED)
    said = "I will not call."
    assert is_reply(text, MAY_ONCE, said)
    pieces = [*reader.push(text.vocabulary.encode(said)), *reader.finish()]
    assert "".join(piece.text for piece in pieces if isinstance(piece, Content)) == said


@pytest.mark.parametrize(
    "offered",
    [
        {"a<b": {}},
        {"f": {"type": "object", "properties": {"x\ny": {}}, "required": ["x\ny"]}},
        {"f": {"type": "object", "properties": {"x": {"type": "crab"}}}},
        {"f": {"type": "object", "properties": {"x": {"type": "integer", "minimum": "low"}}}},
    ],
    ids=str,
)
def test_what_no_call_can_be_is_refused_by_its_field(text: ChatText, offered: dict[str, Any]) -> None:
    with pytest.raises(RequestError) as refused:
        opened(text, MUST, offered)
    assert refused.value.param == "tools"


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": []},
        {"properties": {"x": True, "y": False, "z": 3}, "required": "x"},
        {"properties": {"x": {"$ref": "#/nowhere"}, "y": {"$ref": "#/properties/y"}, "z": {"enum": []}}},
        {"properties": {"x\ny": {"type": "string"}}},
    ],
    ids=str,
)
def test_a_schema_that_says_little_is_taken_for_what_it_says(text: ChatText, schema: dict[str, Any]) -> None:
    assert is_reply(text, MUST, "<tool_call>\n<function=f>\n</function>\n</tool_call>", offered={"f": schema})
