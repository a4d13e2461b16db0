"""Ways to use the same memory side by side, on the same load with the same costs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hermitcrab.core.slot_list import MARGIN_ROWS
from hermitcrab.errors import BudgetError
from hermitcrab.memory.budget import GIB
from hermitcrab.simulate.costs import Costs
from hermitcrab.simulate.lanes import House, simulate_lanes
from hermitcrab.simulate.load import Arrival
from hermitcrab.simulate.outcome import Outcome
from hermitcrab.simulate.pool import simulate_pool
from hermitcrab.simulate.suggest import Suggestion, is_better, suggest

# sessions of a server: each needs a row of its own in a round
SESSION_LIMIT = 64


# of the search, which has many lists to try: within some percent of single tokens, in a quarter of the time
_SEARCH_GRAIN = 8


@dataclass(frozen=True, slots=True)
class Plan:
    """What is compared: the listed sessions beside the whole window, and how requests share the device.

    The lanes count `grain` tokens as one. Without `memory_bytes` the memory is what the list takes.
    """

    context_tokens: int
    listed: tuple[int, ...]
    grow_tokens: int
    decode_share: float
    memory_bytes: int | None = None
    grain: int = 1


class Comparison:
    """Runs a load on the same memory, used in different ways. Raises BudgetError if the list takes more."""

    def __init__(self, arrivals: Sequence[Arrival], plan: Plan, costs: Costs) -> None:
        self._arrivals = arrivals
        self._plan = plan
        self._costs = costs
        needed_bytes = self._house(plan.listed).memory_bytes(costs)
        self.memory_bytes = needed_bytes if plan.memory_bytes is None else plan.memory_bytes
        if needed_bytes > self.memory_bytes:
            raise BudgetError(
                f"The whole window and the list take {needed_bytes / GIB:.2f} GiB, more than the "
                f"{self.memory_bytes / GIB:.2f} GiB of --memory-gib. List fewer or smaller sessions."
            )

    def equal(self) -> Outcome:
        """As many sessions of the whole window as fit, at least one."""
        tokens = self._plan.context_tokens
        fitting = self.memory_bytes // self._costs.bytes_of(tokens + MARGIN_ROWS)
        count = min(SESSION_LIMIT, max(1, fitting))
        house = House((tokens,) * count, None, self._plan.decode_share)
        return simulate_lanes(
            self._arrivals, house, self._costs, name="equal sessions", grain=self._plan.grain
        )

    def sized(self, listed: tuple[int, ...], *, name: str = "sized sessions") -> Outcome:
        """The whole window and a list of sessions, in which requests grow."""
        return self._sized(listed, name=name, grain=self._plan.grain)

    def pool(self) -> Outcome:
        """The ideal pool."""
        return simulate_pool(
            self._arrivals,
            self._costs,
            memory_bytes=self.memory_bytes,
            context_tokens=self._plan.context_tokens,
            stream_limit=SESSION_LIMIT,
            decode_share=self._plan.decode_share,
            name="ideal paged pool",
        )

    def three(self) -> list[Outcome]:
        """Equal sessions, the plan's list, and the ideal pool."""
        return [self.equal(), self.sized(self._plan.listed), self.pool()]

    def suggest(self, *, tries: int, seed: int) -> Suggestion:
        """A list that does at least as well as the plan's, found in so many tries.

        The search counts in coarse grains; what it finds counts only if it is better in the plan's as well.
        """
        grain, name = max(_SEARCH_GRAIN, self._plan.grain), "suggested sessions"
        found = suggest(
            self._plan.listed,
            context_tokens=self._plan.context_tokens,
            memory_bytes=self.memory_bytes,
            session_limit=SESSION_LIMIT,
            costs=self._costs,
            tries=tries,
            seed=seed,
            simulate=lambda listed: self._sized(listed, name=name, grain=grain),
        )
        start, outcome = self.sized(self._plan.listed, name=name), self.sized(found.listed, name=name)
        if is_better(outcome, start):
            return replace(found, outcome=outcome)
        return Suggestion(self._plan.listed, start, found.tried)

    def _sized(self, listed: tuple[int, ...], *, name: str, grain: int) -> Outcome:
        return simulate_lanes(self._arrivals, self._house(listed), self._costs, name=name, grain=grain)

    def _house(self, listed: tuple[int, ...]) -> House:
        plan = self._plan
        return House((plan.context_tokens, *listed), plan.grow_tokens, plan.decode_share)
