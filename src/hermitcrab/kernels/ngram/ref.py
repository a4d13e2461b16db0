"""The n-gram hash, in plain integers: a window has few rows, and each costs a few multiplications."""

from collections.abc import Sequence


def ngram_rows(
    tokens: Sequence[int],
    history: Sequence[int],
    *,
    multipliers: Sequence[int],
    head_rows: Sequence[int],
    head_offsets: Sequence[int],
    heads_per_ngram: int,
    reset_token: int,
) -> list[int]:
    """Table rows for each token's n-grams, head after head: len(tokens) * len(head_rows) of them.

    `history` holds the len(multipliers) - 1 tokens before, oldest first, `reset_token` where there are none.
    An n-gram of n tokens mixes token[i] * multipliers[i] by xor, newest first; it never reaches across a
    reset token: from there on back every token counts as the reset token.
    """
    line = [*history, *tokens]
    past = len(history)
    longest = len(multipliers)
    rows: list[int] = []
    for place in range(past, len(line)):
        mixed = line[place] * multipliers[0]
        is_cut = False
        for shift in range(1, longest):
            token = reset_token if is_cut else line[place - shift]
            is_cut = is_cut or token == reset_token
            mixed ^= token * multipliers[shift]
            first = (shift - 1) * heads_per_ngram
            rows.extend(
                head_offsets[head] + mixed % head_rows[head] for head in range(first, first + heads_per_ngram)
            )
    return rows
