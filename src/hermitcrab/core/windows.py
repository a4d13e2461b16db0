"""How many drafts a stream's next window may have; its pending token is never cut."""

from collections.abc import Sequence


def draft_room(*, depth: int, remaining_tokens: int, rows: int, capacity_rows: int) -> int:
    """The most drafts that run neither past the reply's limit nor past the session.

    A window of d drafts draws d + 1 tokens, so at most `remaining_tokens` - 1 of them are any use; it
    writes rows `rows .. rows + d`, all of which must be in the session.
    """
    return max(0, min(depth, remaining_tokens - 1, capacity_rows - rows - 1))


def exact_drafts(drafts: int, widths: Sequence[int]) -> int:
    """At most `drafts`, so that the window they make with the pending token has one of `widths`, as 1 is."""
    return max(width for width in widths if width <= drafts + 1) - 1


def share_rows(wanted_drafts: list[int], *, row_limit: int) -> list[int]:
    """Drafts each window gets, in order, when each also has its pending row and all share `row_limit` rows.

    Rows left over after the pending ones go round, one draft a window at a time: early drafts land most
    often.
    """
    left = row_limit - len(wanted_drafts)
    assert left >= 0, "a round had more windows than rows"
    granted = [0] * len(wanted_drafts)
    while left > 0 and granted != wanted_drafts:
        for index, wanted in enumerate(wanted_drafts):
            if left > 0 and granted[index] < wanted:
                granted[index] += 1
                left -= 1
    return granted
