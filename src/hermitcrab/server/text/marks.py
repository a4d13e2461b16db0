"""The model's structural tokens inside text: one character each that no tokenizer and no client can spell.

A reply's text is handled as a plain string in which the *token* `</think>` is the mark `THINK_CLOSE`, while
the same letters written out by ordinary tokens stay letters. The marks are lone surrogates: UTF-8 cannot hold
them, so decoding never makes one, and requests that contain one are refused.
"""

from types import MappingProxyType

THINK_OPEN = "\ud800"
THINK_CLOSE = "\ud801"
TOOL_OPEN = "\ud802"
TOOL_CLOSE = "\ud803"

# stands inside a control token spelled out in somebody's text, so that it is not taken for the token
BREAK = "\udfff"

SPELLINGS = MappingProxyType(
    {
        THINK_OPEN: "<think>",
        THINK_CLOSE: "</think>",
        TOOL_OPEN: "<tool_call>",
        TOOL_CLOSE: "</tool_call>",
    }
)
MARKS = MappingProxyType({spelling: mark for mark, spelling in SPELLINGS.items()})

_SPELL = str.maketrans(dict(SPELLINGS))


def spelled(text: str) -> str:
    """The text with its marks written out, as a client may see it."""
    return text.translate(_SPELL)
