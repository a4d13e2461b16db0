"""Prompts of honest conversations are, token for token, what transformers makes of the built-in model."""

from pathlib import Path
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from hermitcrab.clock import ScriptedClock
from hermitcrab.server.text.load import load_chat_text

BUILTIN = Path(__file__).parents[2] / "src" / "hermitcrab" / "builtin"
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city, such as Zürich.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
CALL = {"function": {"name": "get_weather", "arguments": {"city": "Paris", "days": [1, 2]}}}
CONVERSATION: list[dict[str, Any]] = [
    {"role": "system", "content": "be brief"},
    {"role": "user", "content": "hi  there\n"},
    {"role": "assistant", "content": "Looking.", "reasoning_content": "hm", "tool_calls": [CALL]},
    {"role": "tool", "content": "18 degrees"},
    {"role": "assistant", "content": "It has 18 degrees."},
    {"role": "user", "content": "日本 👋 1 < 2 > 0 ok?"},
]


@pytest.mark.parametrize("switches", [{}, {"enable_thinking": False}, {"reasoning_effort": "low"}], ids=str)
@pytest.mark.parametrize("tools", [[], [TOOL]], ids=["plain", "tools"])
def test_a_prompt_is_what_transformers_makes_of_it(
    tools: list[dict[str, Any]], switches: dict[str, Any]
) -> None:
    tokenizer = PreTrainedTokenizerFast.from_pretrained(BUILTIN)
    expected = tokenizer.apply_chat_template(
        CONVERSATION,
        tools=tools or None,
        add_generation_prompt=True,
        tokenize=True,
        return_dict=False,
        **switches,
    )
    prompt = load_chat_text(BUILTIN, ScriptedClock()).chat_prompt(CONVERSATION, tools, switches)
    assert list(prompt.ids) == list(expected)
