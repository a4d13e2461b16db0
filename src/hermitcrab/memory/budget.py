"""Whether sessions fit into memory, from arithmetic alone, before anything is allocated; if not, what would.

room = cap - ready bytes - margin - reserved bytes
cap  = the load limit, but no more than the device has; without a limit 70 % of the device

What loading needs for a while counts where it is more than the prompt cache's share: the two are never there
at once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hermitcrab.errors import BudgetError

GIB = 1 << 30

# inside the cap, for what no ledger lists: the runtime's own buffers, fragmentation, a driver's pages
MARGIN_BYTES = 2 * GIB

# without a limit: what a machine can give to one program and still be used
DEFAULT_PERCENT = 70

MOST_PARALLEL = 4

# as many equal sessions as are ever asked for, so that counting how many fit stays short
_MOST_COUNTED = 1024


@dataclass(frozen=True, slots=True)
class Line:
    """One use of memory, in words and bytes."""

    name: str
    bytes: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class Ledger:
    """Memory under the load limit: what the device has, what is spoken for already.

    `ready_bytes` is all that is resident before the first session, `parts` what that consists of, where it
    is known; `reserved_bytes` is what the prompt cache may take, `loading_bytes` what loading takes beside
    all else and gives back.
    """

    device_bytes: int
    ready_bytes: int
    limit_bytes: int | None = None
    reserved_bytes: int = 0
    loading_bytes: int = 0
    parts: tuple[Line, ...] = ()

    @property
    def cap_bytes(self) -> int:
        """What weights, sessions, cache and margin may take together."""
        if self.limit_bytes is None:
            return self.device_bytes * DEFAULT_PERCENT // 100
        return min(self.limit_bytes, self.device_bytes)

    @property
    def room_bytes(self) -> int:
        """What is left for sessions; below 0 if the rest alone passes the cap."""
        return self.cap_bytes - self.ready_bytes - MARGIN_BYTES - self.set_aside_bytes

    @property
    def set_aside_bytes(self) -> int:
        """The prompt cache's share, or what loading takes before there is a prompt cache."""
        return max(self.reserved_bytes, self.loading_bytes)


@dataclass(frozen=True, slots=True)
class Item:
    """So many sessions of so many tokens, and the bytes of each."""

    tokens: int
    count: int
    bytes_each: int

    @property
    def total_bytes(self) -> int:
        return self.count * self.bytes_each


class SessionBudget:
    """Holds session lists against a ledger.

    `session_bytes` gives the bytes of a session from its rows, `work_bytes` those of the buffers that all
    sessions share from the rows of each; more rows never take fewer. A session of n tokens has n +
    `margin_rows` rows.
    """

    def __init__(
        self,
        ledger: Ledger,
        session_bytes: Callable[[int], int],
        *,
        margin_rows: int,
        work_bytes: Callable[[Sequence[int]], int] = lambda rows: 0,
    ) -> None:
        self._ledger = ledger
        self._session_bytes = session_bytes
        self._work_bytes = work_bytes
        self._margin_rows = margin_rows

    def items(self, tokens: Sequence[int]) -> tuple[Item, ...]:
        """Sessions for so many tokens each, equal neighbours together."""
        return tuple(Item(run[0], len(run), self._bytes_of(run[0])) for run in _runs(tokens))

    def shared_bytes(self, tokens: Sequence[int]) -> int:
        """The buffers that these sessions share."""
        return self._work_bytes([count + self._margin_rows for count in tokens])

    def fits(self, tokens: Sequence[int]) -> bool:
        """True if these sessions and their buffers fit into the room."""
        return self._total_bytes(tokens) <= self._ledger.room_bytes

    def more_of(self, tokens: Sequence[int], size: int) -> int:
        """How many sessions for `size` tokens fit beside sessions that fit."""
        left_bytes = max(0, self._ledger.room_bytes - self._total_bytes(tokens))
        most = min(_MOST_COUNTED, left_bytes // self._bytes_of(size))
        found = self._largest(most, lambda n: (*tokens, *(size,) * n))
        return 0 if found is None else len(found) - len(tokens)

    def check_list(self, context_tokens: int, listed_tokens: Sequence[int]) -> int:
        """The bytes of slot 0, the listed sessions and their buffers, which fit.

        Raises BudgetError with the bytes of each item, the room, and the largest list of this shape that
        fits.
        """
        tokens = (context_tokens, *listed_tokens)
        if not self.fits(tokens):
            raise BudgetError(self._refusal(tokens, self._list_advice(context_tokens, listed_tokens)))
        return self._total_bytes(tokens)

    def check_parallel(self, context_tokens: int, count: int) -> int:
        """The bytes of `count` sessions of the whole window and their buffers, which fit.

        Raises BudgetError with the bytes, the room, and how many fit.
        """
        tokens = (context_tokens,) * count
        if not self.fits(tokens):
            raise BudgetError(self._refusal(tokens, self._parallel_advice(context_tokens)))
        return self._total_bytes(tokens)

    def choose_parallel(self, context_tokens: int) -> int:
        """How many whole-window sessions to open when nobody said: as many as fit, up to 4.

        Raises BudgetError if not even one fits.
        """
        fitting = min(MOST_PARALLEL, self._whole_windows(context_tokens))
        if fitting < 1:
            self.check_parallel(context_tokens, 1)
        return fitting

    def _bytes_of(self, tokens: int) -> int:
        return self._session_bytes(tokens + self._margin_rows)

    def _total_bytes(self, tokens: Sequence[int]) -> int:
        return sum(item.total_bytes for item in self.items(tokens)) + self.shared_bytes(tokens)

    def _whole_windows(self, context_tokens: int) -> int:
        most = min(_MOST_COUNTED, max(0, self._ledger.room_bytes) // self._bytes_of(context_tokens))
        found = self._largest(most, lambda n: (context_tokens,) * n)
        return 0 if found is None else len(found)

    def _largest(self, most: int, shape: Callable[[int], tuple[int, ...]]) -> tuple[int, ...] | None:
        """The largest `shape(n)` that fits, for n from 1 to `most`; None if not even the smallest does."""
        low, high = 0, most
        while low < high:
            middle = (low + high + 1) // 2
            if self.fits(shape(middle)):
                low = middle
            else:
                high = middle - 1
        return shape(low) if low else None

    def _list_advice(self, context_tokens: int, listed_tokens: Sequence[int]) -> str:
        """What would fit: the list shrunk as a whole, or the window with it, or why neither does."""
        most = max(listed_tokens, default=0)
        scaled = self._largest(most, lambda n: (context_tokens, *_scaled(listed_tokens, n, most)))
        if scaled is not None:
            return f"The largest list of this shape that fits: --slot-contexts {spell(scaled[1:])}"
        shrunk = self._largest(context_tokens, lambda n: (n, *_scaled(listed_tokens, n, context_tokens)))
        if shrunk is not None:
            listed = f" --slot-contexts {spell(shrunk[1:])}" if listed_tokens else ""
            return f"The largest of this shape that fits: --context {shrunk[0]}{listed}"
        return self._nothing_fits()

    def _parallel_advice(self, context_tokens: int) -> str:
        fitting = self._whole_windows(context_tokens)
        if fitting:
            return f"The most that fit: --parallel {fitting}"
        window = self._largest(context_tokens, lambda n: (n,))
        if window is None:
            return self._nothing_fits()
        return f"The largest window that fits: --context {window[0]}"

    def _nothing_fits(self) -> str:
        room_bytes = self._ledger.room_bytes
        lacking_bytes = self._ledger.cap_bytes - room_bytes - self._ledger.device_bytes
        if lacking_bytes > 0:
            return (
                f"What is needed before any session is more than the device's "
                f"{_amount(self._ledger.device_bytes)}, by {_amount(lacking_bytes)}: no limit helps. "
                "Choose a smaller model or a larger machine."
            )
        if room_bytes < 0:
            return (
                f"What is needed before any session passes the cap by {_amount(-room_bytes)}: no session "
                f"fits. Raise --load-limit-gb, up to the device's {_amount(self._ledger.device_bytes)}, "
                "or choose a smaller model."
            )
        smallest_bytes = self._bytes_of(1)
        return (
            f"Even the smallest session takes {_amount(smallest_bytes)}, so at most "
            f"{room_bytes // smallest_bytes} fit: list fewer sessions, or raise --load-limit-gb."
        )

    def _refusal(self, tokens: Sequence[int], advice: str) -> str:
        ledger, shared_bytes = self._ledger, self.shared_bytes(tokens)
        source = (
            f"{DEFAULT_PERCENT} % of the device's {_amount(ledger.device_bytes)}"
            if ledger.limit_bytes is None
            else f"--load-limit-gb on a device of {_amount(ledger.device_bytes)}"
        )
        aside = "prompt cache" if ledger.reserved_bytes >= ledger.loading_bytes else "loading"
        lines = [
            f"The sessions need {_amount(self._total_bytes(tokens))}, and there is room for "
            f"{_amount(max(0, ledger.room_bytes))}.",
            *(
                f"  {item.count} x {item.tokens} tokens: {_amount(item.bytes_each)} each, "
                f"{_amount(item.total_bytes)} together"
                for item in self.items(tokens)
            ),
            *([f"  work buffers of a prompt pass and a round: {_amount(shared_bytes)}"] * bool(shared_bytes)),
            f"  room = cap {_amount(ledger.cap_bytes)} ({source}) - ready {_amount(ledger.ready_bytes)} "
            f"- margin {_amount(MARGIN_BYTES)} - {aside} {_amount(ledger.set_aside_bytes)} "
            f"= {_amount(ledger.room_bytes)}",
            *(f"  ready: {part.name} {_amount(part.bytes)}" for part in ledger.parts),
            advice,
        ]
        return "\n".join(lines)


def spell(tokens: Sequence[int]) -> str:
    """Token counts as `--slot-contexts` takes them."""
    return ",".join(f"{run[0]}x{len(run)}" if len(run) > 1 else f"{run[0]}" for run in _runs(tokens))


def _runs(tokens: Sequence[int]) -> list[tuple[int, ...]]:
    """Neighbours of equal size together."""
    runs: list[tuple[int, ...]] = []
    for count in tokens:
        if runs and runs[-1][0] == count:
            runs[-1] = (*runs[-1], count)
        else:
            runs.append((count,))
    return runs


def _scaled(tokens: Sequence[int], part: int, whole: int) -> tuple[int, ...]:
    """Each count times part / whole, rounded down, at least 1."""
    return tuple(max(1, count * part // whole) for count in tokens)


def _amount(count: int) -> str:
    """Bytes for a person: GiB to two places, and exactly."""
    return f"{count / GIB:.2f} GiB ({count} bytes)"
