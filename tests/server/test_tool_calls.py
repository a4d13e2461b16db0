"""Tool calls in the family's own spelling: read when they are right, left as content when they are not."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermitcrab.server.text.marks import TOOL_CLOSE, TOOL_OPEN
from hermitcrab.server.tools.qwen_xml import Content, ToolCall, ToolCallSplit

SCHEMAS: dict[str, dict[str, Any]] = {
    "get_weather": {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer"},
            "ratio": {"type": "number"},
            "metric": {"type": "boolean"},
            "tags": {"type": "array"},
            "where": {"$ref": "#/$defs/Place"},
            "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            "either": {"type": ["string", "null"]},
            "level": {"enum": [1, 2, 3]},
            "open": {},
        },
        "$defs": {"Place": {"type": "object"}},
    },
    "now": {},
}


def read(text: str, schemas: dict[str, dict[str, Any]] | None = None) -> tuple[str, list[ToolCall]]:
    """Content and calls of an answer that comes at once."""
    return read_parts([text], SCHEMAS if schemas is None else schemas)


def read_parts(parts: list[str], schemas: dict[str, dict[str, Any]]) -> tuple[str, list[ToolCall]]:
    sorter = ToolCallSplit(schemas)
    pieces = [piece for part in parts for piece in sorter.push(part)] + sorter.finish()
    content = "".join(piece.text for piece in pieces if isinstance(piece, Content))
    return content, [piece for piece in pieces if isinstance(piece, ToolCall)]


def call_text(name: str = "get_weather", **values: str) -> str:
    parameters = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in values.items())
    return f"{TOOL_OPEN}\n<function={name}>\n{parameters}</function>\n{TOOL_CLOSE}"


def test_a_call_becomes_a_name_and_a_json_object() -> None:
    content, calls = read(call_text(city="Paris"))
    assert content == ""
    assert [(call.name, json.loads(call.arguments)) for call in calls] == [("get_weather", {"city": "Paris"})]


@pytest.mark.parametrize(
    ("key", "written", "value"),
    [
        ("city", "12", "12"),
        ("city", " two  spaces ", " two  spaces "),
        ("city", "a\nb", "a\nb"),
        ("city", "null", "null"),
        ("city", "Zürich 👋", "Zürich 👋"),
        ("city", "a </parameter> b", "a </parameter> b"),
        ("days", "3", 3),
        ("days", "3.0", 3),
        ("days", "three", "three"),
        ("days", "NaN", "NaN"),
        ("ratio", "0.5", 0.5),
        ("ratio", "2", 2),
        ("metric", "true", True),
        ("metric", "False", False),
        ("tags", '["a", 1]', ["a", 1]),
        ("tags", "[1,", "[1,"),
        ("where", '{"x": {"y": 1}}', {"x": {"y": 1}}),
        ("maybe", "null", None),
        ("maybe", "7", 7),
        ("either", "null", None),
        ("either", "7", "7"),
        ("level", "2", 2),
        ("open", "2", "2"),
        ("not_declared", "2", "2"),
        ("tags", '["\\ud800"]', '["\\ud800"]'),
        ("days", "9" * 5000, "9" * 5000),
        ("ratio", "1e999", "1e999"),
        ("tags", "[1e999]", "[1e999]"),
    ],
)
def test_a_value_has_the_type_its_schema_gives(key: str, written: str, value: object) -> None:
    _, calls = read(call_text(**{key: written}))
    assert json.loads(calls[0].arguments) == {key: value}
    assert type(json.loads(calls[0].arguments)[key]) is type(value)


def test_a_function_without_parameters_gets_an_empty_object() -> None:
    _, calls = read(call_text("now"))
    assert calls[0].arguments == "{}"


def test_several_calls_come_in_order_under_ids_of_their_own() -> None:
    content, calls = read(f"Let me see.\n\n{call_text('now')}\n{call_text(city='Rome')}\n")
    assert content == "Let me see."
    assert [call.name for call in calls] == ["now", "get_weather"]
    assert calls[0].id != calls[1].id


def test_text_after_a_call_is_content() -> None:
    assert read(f"a {call_text('now')}\n\nb c ")[0] == "ab c "


@pytest.mark.parametrize(
    "inside",
    [
        "",
        "get_weather()",
        "<function=unknown>\n</function>",
        "<function=get_weather>\n<parameter=city>\nParis\n</function>",
        "<function=get_weather>\n<parameter=city>\nParis\n</parameter>",
        "<function=get_weather>\n<parameter=city>\na\n</parameter>\n<parameter=city>\nb\n</parameter>\n</function>",
        "<function=get_weather>\nstray\n</function>",
        '{"name": "get_weather", "arguments": {}}',
    ],
)
def test_a_malformed_or_unknown_call_stays_content_to_the_letter(inside: str) -> None:
    text = f"Well: {TOOL_OPEN}{inside}{TOOL_CLOSE} so"
    assert read(text) == (f"Well: <tool_call>{inside}</tool_call> so", [])


def test_a_call_that_the_end_of_the_reply_cuts_off_is_content() -> None:
    assert read(f"{TOOL_OPEN}\n<function=get_weather>\n<para") == (
        "<tool_call>\n<function=get_weather>\n<para",
        [],
    )


def test_a_call_that_lacks_only_its_last_mark_counts() -> None:
    assert [call.name for call in read(call_text("now").removesuffix(TOOL_CLOSE))[1]] == ["now"]


def test_without_offered_tools_the_marks_are_shown_as_written() -> None:
    assert read(f" {TOOL_OPEN}x{TOOL_CLOSE}\n", {}) == (" <tool_call>x</tool_call>\n", [])


def test_spelled_out_letters_are_never_a_call() -> None:
    text = "<tool_call>\n<function=now>\n</function>\n</tool_call>"
    assert read(text) == (text, [])


@given(
    text=st.lists(
        st.sampled_from(["a", " ", "\n", TOOL_OPEN, TOOL_CLOSE, "<function=now>", "</function>"]), max_size=14
    ),
    cut=st.integers(0, 60),
)
def test_the_parts_it_comes_in_do_not_matter(text: list[str], cut: int) -> None:
    whole = "".join(text)
    content, calls = read(whole)
    for parts in ([whole[:cut], whole[cut:]], list(whole)):
        again, more = read_parts(parts, SCHEMAS)
        assert (again, [call.arguments for call in more]) == (content, [call.arguments for call in calls])
