"""Costs and loads with round numbers, for times that can be worked out by hand."""

from dataclasses import replace

from hermitcrab.simulate.costs import Costs, RoundCost
from hermitcrab.simulate.load import Arrival

# a round takes 10 ms for one stream and 1 ms more for each other; a prompt row 1 ms; a move 100 ms
COSTS = Costs(
    source="made up",
    rounds=(RoundCost(1, 1, 10.0), RoundCost(11, 11, 20.0)),
    prompt_row_ms=1.0,
    move_ms=100.0,
    move_row_ms=0.0,
    session_bytes=1000,
    row_bytes=1,
)

# no sum of some of these times is a sum of others: where a tie would be, a rounding decides
ODD_COSTS = replace(
    COSTS, rounds=(RoundCost(1, 1, 10.1377), RoundCost(11, 11, 20.3371)), prompt_row_ms=0.97313
)


def at(arrival_s: float, *, prompt: int = 100, reply: int = 11, most: int | None = None) -> Arrival:
    """A request."""
    return Arrival(arrival_s, prompt, reply, most)
