"""Read `--slot-contexts`: the sessions past slot 0 in tokens, all checked before anything is built."""

import re

from hermitcrab.errors import SettingError

# rows past a session's tokens, so that a round near the edge still fits; inside it are the headroom of
# `room` and a window
MARGIN_ROWS = 32

INT64_MAX = (1 << 63) - 1

OPTION = "--slot-contexts"

# ascii digits only: int() would also take signs, underscores and digits of other scripts
_NUMBER = re.compile(r"[0-9]+")

# what stands for every number too long to read; 2**63 - 1 has 19 digits
_BEYOND = INT64_MAX + 1
_MOST_DIGITS = 19


def rows_of(tokens: int) -> int:
    """The rows of a session listed with so many tokens."""
    return tokens + MARGIN_ROWS


def parse_slot_contexts(text: str, *, sessions_allowed: int, context_tokens: int) -> tuple[int, ...]:
    """The token counts that a list such as `65536,32768x3,16384x11` names, in its order.

    Items are TOKENS or TOKENSxN. At most `sessions_allowed` sessions may be listed, slot 0 not counted;
    none may be larger than slot 0, which holds the whole window of `context_tokens`.

    Raises SettingError, naming the item and what is allowed.
    """
    listed: list[int] = []
    for place, item in enumerate(text.split(","), start=1):
        tokens, count = _parse_item(item.strip(), place=place, allowed=sessions_allowed - len(listed))
        if tokens > context_tokens:
            raise SettingError(
                f"{OPTION}: item {item.strip()!r} is larger than the whole window: at most "
                f"{context_tokens} tokens are allowed. Raise --context or lower the item."
            )
        listed.extend([tokens] * count)
    return tuple(listed)


def _parse_item(item: str, *, place: int, allowed: int) -> tuple[int, int]:
    if not item:
        raise SettingError(
            f"{OPTION}: item {place} is empty. Write TOKENS or TOKENSxN, separated by single commas, "
            "for example 65536,32768x3."
        )
    tokens_text, times, count_text = item.partition("x")
    tokens = _positive(tokens_text, item=item, what="the token count")
    count = _positive(count_text, item=item, what="the repeat count") if times else 1
    if count > allowed:
        raise SettingError(
            f"{OPTION}: item {item!r} asks for more sessions than the {allowed} still allowed "
            "beside slot 0 and the items before it: every session needs a row of its own in a round."
        )
    most = INT64_MAX // count - MARGIN_ROWS
    if tokens > most:
        raise SettingError(
            f"{OPTION}: item {item!r} leaves the 64-bit range: with a margin of {MARGIN_ROWS} rows each, "
            f"{count} sessions may have at most {most} tokens."
        )
    return tokens, count


def _positive(text: str, *, item: str, what: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise SettingError(
            f"{OPTION}: {what} of item {item!r} must be a whole number in digits, without a sign, "
            f"not {text!r}. Items are TOKENS or TOKENSxN."
        )
    digits = text.lstrip("0")
    if not digits:
        raise SettingError(f"{OPTION}: {what} of item {item!r} must be at least 1.")
    return int(digits) if len(digits) <= _MOST_DIGITS else _BEYOND
