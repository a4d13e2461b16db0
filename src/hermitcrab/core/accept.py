"""How much of a verified window stands: a draft lands exactly when it equals the target's own draw."""

from collections.abc import Sequence


def kept_rows(tokens: Sequence[int], drawn: Sequence[int]) -> int:
    """Rows of a window that stand: the pending token's, then drafts while each equals the draw before it.

    `tokens` is the window, `drawn[i]` the target's token after its row i. The reply's new tokens are the
    first `kept_rows` of `drawn`: the landed drafts, then one more that no draft was needed for.
    """
    assert len(tokens) == len(drawn), "a window has one draw a row"
    kept = 1
    while kept < len(tokens) and tokens[kept] == drawn[kept - 1]:
        kept += 1
    return kept
