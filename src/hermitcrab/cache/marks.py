"""Where a prompt pass stops to keep a state: planned from the prompt's tokens alone.

Conversations come back with something added or changed at a message's start, so that is where states are
worth most. A prompt row's bits are tied to an absolute grid, and so states are kept on the grid only: at the
last point at or before each place. What is run again from there is whole steps, as in a fresh prompt.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from hermitcrab.cache.prefixes import PromptChain

# message starts nearer to each other share a mark: what is kept at each, beside the rows between them, costs
# as much as some hundred rows
GAP_ROWS = 256


@dataclass(slots=True)
class PromptPlan:
    """What the cache knows of one prompt: its prefixes by name, and the lengths at which to keep a state.

    A state may be resumed from up to `most_rows`. `turns` counts the prompts in a row that lead to this one.
    """

    chain: PromptChain
    marks: tuple[int, ...]
    most_rows: int
    turns: int = 1


def last_mark(prompt_tokens: int, *, grid_rows: int) -> int:
    """The last point of the grid from which at least one row is left to run; 0 if there is none."""
    return (prompt_tokens - 1) // grid_rows * grid_rows


def planned_marks(
    prompt: Sequence[int], *, start_ids: frozenset[int], grid_rows: int, gap_rows: int
) -> tuple[int, ...]:
    """Lengths, ascending multiples of the grid, at which to keep a state; at least one row follows the last.

    One at each message start that comes `gap_rows` behind the mark before it. However near they are, two
    more: at the last message start, where the next turn's prompt can part from this one, and at the end.
    """
    last = last_mark(len(prompt), grid_rows=grid_rows)
    starts = [place // grid_rows * grid_rows for place, token in enumerate(prompt) if token in start_ids]
    marks: list[int] = []
    reached = 0
    for start in starts:
        if start >= reached + gap_rows:
            marks.append(start)
            reached = start
    always = {last, *starts[-1:]}
    return tuple(sorted({mark for mark in (*marks, *always) if 0 < mark <= last}))
