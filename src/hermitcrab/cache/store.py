"""Which states are kept: a tree of prefixes that share their rows, inside a budget of bytes.

A kept prefix has rows, from its parent's end to its own, and an *end*: what a session holds beside its rows,
which is of one size however long the prefix. A prefix without an end cannot be resumed from; it stays as long
as a longer one needs its rows. Rows and ends are *pieces* that a backend holds under numbers given here.

What goes when room is needed is the end that is worth least: the tokens that it alone saves a prompt from
running, times how likely it is to be of use, by the bytes that would come free, less with every request that
came without needing it. A new state has to be worth as much as what it would push out. The state that a
conversation goes on from is the likelier to be of use the more turns it has had; one in the middle is of use
where texts part, so it counts by those that have parted there. A prefix that was refused counts as having had
a turn when it comes again, so that a new conversation gets in.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from hermitcrab.cache.prefixes import PromptChain

# requests after which an unused state is worth half
_HALF_WORTH_REQUESTS = 8

# a conversation that has come back so often is as sure to come back as any: together with the line above, it
# outlasts some 24 requests that come once
_MOST_TURNS = 4

# refused prefixes that are remembered, by name only
_MOST_REFUSED = 1024

# how likely a text's middle is to be gone on from, beside its end, before anybody has
_MIDDLE_WEIGHT = 0.25


@dataclass(frozen=True, slots=True)
class PieceCosts:
    """Bytes of pieces at most: n rows take n * `row_bytes` + `span_bytes`, an end `end_bytes`."""

    row_bytes: int
    span_bytes: int
    end_bytes: int

    def rows(self, count: int) -> int:
        """Bytes of a piece of so many rows."""
        return count * self.row_bytes + self.span_bytes


@dataclass(slots=True, eq=False)
class Entry:
    """A kept prefix of `rows` rows; changed by the store only.

    `turns` counts the prompts in a row that led to it, each resumed from the one before; `uses` those that
    were resumed from it. `users` counts its children, and whoever needs it to stay for the moment.
    """

    digest: bytes
    rows: int
    parent: "Entry | None"
    rows_piece: int
    end_piece: int | None
    turns: int
    used_at: int
    uses: int = 0
    users: int = 0

    @property
    def start_rows(self) -> int:
        """Where its own rows begin."""
        return 0 if self.parent is None else self.parent.rows


@dataclass(frozen=True, slots=True)
class Offer:
    """A state that could be kept: what of it is new.

    `entry` is there already if only its end is missing; else the rows from `start_rows` on are new, too.
    """

    digest: bytes
    rows: int
    start_rows: int
    turns: int
    entry: Entry | None
    parent: Entry | None

    @property
    def needs_rows(self) -> bool:
        """True if rows are to be kept, not only an end."""
        return self.entry is None


@dataclass(frozen=True, slots=True)
class Resumption:
    """A kept state as a backend restores it: pieces of rows in order, then the end."""

    rows: int
    rows_pieces: tuple[int, ...]
    end_piece: int


@dataclass(frozen=True, slots=True)
class CacheStatus:
    """What is kept now, and counts since the start.

    `states` can be resumed from, `bytes` is what all pieces take by their costs. Of the requests that have
    begun, `hits` resumed from a state and saved `reused_tokens` together; `misses` began with nothing.
    """

    budget_bytes: int = 0
    bytes: int = 0
    states: int = 0
    hits: int = 0
    misses: int = 0
    reused_tokens: int = 0
    kept: int = 0
    evicted: int = 0


NO_CACHE = CacheStatus()


class Store:
    """The kept prefixes. It hands out numbers of pieces and says which to drop; it never sees one."""

    def __init__(self, budget_bytes: int, costs: PieceCosts) -> None:
        self._budget_bytes = budget_bytes
        self._costs = costs
        self._entries: dict[bytes, Entry] = {}
        # how often each was refused, the one refused last at the end
        self._refused: dict[bytes, int] = {}
        self._bytes = 0
        self._next_piece = 0
        self._requests = 0
        self._hits = self._misses = self._reused_tokens = self._kept = self._evicted = 0

    @property
    def status(self) -> CacheStatus:
        """Where it stands."""
        return CacheStatus(
            budget_bytes=self._budget_bytes,
            bytes=self._bytes,
            states=sum(entry.end_piece is not None for entry in self._entries.values()),
            hits=self._hits,
            misses=self._misses,
            reused_tokens=self._reused_tokens,
            kept=self._kept,
            evicted=self._evicted,
        )

    @property
    def pieces(self) -> frozenset[int]:
        """Every piece that is kept."""
        ends = {entry.end_piece for entry in self._entries.values() if entry.end_piece is not None}
        return frozenset(ends | {entry.rows_piece for entry in self._entries.values()})

    def longest(self, chain: PromptChain, *, most_rows: int) -> Entry | None:
        """The longest prefix of a prompt, up to so many rows, that can be resumed from."""
        for _, digest in chain.prefixes(most_rows) if self._entries else ():
            entry = self._entries.get(digest)
            if entry is not None and entry.end_piece is not None:
                return entry
        return None

    def has(self, chain: PromptChain, rows: int) -> bool:
        """True if the first `rows` rows of a prompt can be resumed from."""
        entry = self._entries.get(chain.digest(rows))
        return entry is not None and entry.end_piece is not None

    def resumption(self, entry: Entry) -> Resumption:
        """The pieces of a prefix that can be resumed from."""
        assert entry.end_piece is not None, "a prefix without an end was resumed from"
        pieces = [ancestor.rows_piece for ancestor in _line(entry)]
        return Resumption(entry.rows, tuple(reversed(pieces)), entry.end_piece)

    def count_hit(self, entry: Entry) -> None:
        """A request has resumed from a prefix."""
        self._requests += 1
        self._hits += 1
        self._reused_tokens += entry.rows
        entry.uses += 1
        entry.used_at = self._requests

    def count_miss(self) -> None:
        """A request has begun with nothing."""
        self._requests += 1
        self._misses += 1

    def offer(self, chain: PromptChain, rows: int, *, turns: int) -> Offer | None:
        """What keeping a prompt's first `rows` rows takes; None if they are kept, or can never fit."""
        line = [
            entry for _, digest in chain.prefixes(rows) if (entry := self._entries.get(digest)) is not None
        ]
        nearest = line[0] if line else None
        digest = chain.digest(rows)
        turns = max(turns, 1 + self._refused.get(digest, 0))
        if nearest is not None and nearest.rows == rows:
            return None if nearest.end_piece is not None else _again(nearest, turns)
        start_rows = 0 if nearest is None else nearest.rows
        offer = Offer(digest, rows, start_rows, turns, None, nearest)
        return offer if self._offer_bytes(offer) <= self._budget_bytes else None

    def make_room(self, offer: Offer) -> tuple[bool, list[int]]:
        """Whether the offer has room now, its bytes set aside if so; and the pieces to drop, either way.

        An offer that has room is to be taken in by `add` or given up by `withdraw`.
        """
        anchor = offer.entry or offer.parent
        if anchor is not None:
            anchor.users += 1
        needed_bytes, dropped = self._offer_bytes(offer), list[int]()
        worth = self._offer_worth(offer)
        while self._bytes + needed_bytes > self._budget_bytes:
            victim = min(
                (entry for entry in self._entries.values() if entry.end_piece is not None),
                key=lambda entry: (self._worth(entry), entry.used_at, -entry.rows),
                default=None,
            )
            if victim is None or self._worth(victim) > worth:
                self._refuse(offer)
                self._leave(anchor, dropped)
                return False, dropped
            self._evicted += 1
            self._lose_end(victim, dropped)
        self._bytes += needed_bytes
        return True, dropped

    def pieces_for(self, offer: Offer) -> tuple[int, int]:
        """Numbers for the offer's rows and its end; the rows' are those it has, if they are not new."""
        end_piece = self._number()
        return (self._number() if offer.entry is None else offer.entry.rows_piece), end_piece

    def add(self, offer: Offer, rows_piece: int, end_piece: int) -> Entry:
        """Take in an offer whose pieces exist now."""
        self._kept += 1
        self._refused.pop(offer.digest, None)
        entry = offer.entry
        if entry is None:
            # the anchor's place among its users is the new child's
            entry = Entry(
                offer.digest, offer.rows, offer.parent, rows_piece, None, offer.turns, self._requests
            )
            self._entries[offer.digest] = entry
        else:
            entry.users -= 1
            entry.turns, entry.used_at = max(entry.turns, offer.turns), self._requests
        entry.end_piece = end_piece
        return entry

    def withdraw(self, offer: Offer) -> list[int]:
        """Give up an offer that had room; the pieces to drop with it."""
        self._bytes -= self._offer_bytes(offer)
        dropped: list[int] = []
        self._leave(offer.entry or offer.parent, dropped)
        return dropped

    def forget(self, entry: Entry) -> list[int]:
        """Let a state go that cannot be restored; the pieces to drop."""
        dropped: list[int] = []
        if entry.end_piece is not None:
            self._lose_end(entry, dropped)
        return dropped

    def clear(self) -> frozenset[int]:
        """Forget everything; the pieces to drop."""
        pieces = self.pieces
        self._entries.clear()
        self._bytes = 0
        return pieces

    def _refuse(self, offer: Offer) -> None:
        self._refused[offer.digest] = self._refused.pop(offer.digest, 0) + 1
        if len(self._refused) > _MOST_REFUSED:
            del self._refused[next(iter(self._refused))]

    def _number(self) -> int:
        self._next_piece += 1
        return self._next_piece

    def _offer_bytes(self, offer: Offer) -> int:
        rows_bytes = self._costs.rows(offer.rows - offer.start_rows) if offer.needs_rows else 0
        return rows_bytes + self._costs.end_bytes

    def _offer_worth(self, offer: Offer) -> float:
        before = offer.parent if offer.entry is None else offer.entry.parent
        weight = min(offer.turns, _MOST_TURNS) if offer.entry is None else _MIDDLE_WEIGHT + offer.entry.users
        return weight * (offer.rows - _resumable_rows(before)) / self._offer_bytes(offer)

    def _worth(self, entry: Entry) -> float:
        saved_tokens = entry.rows - _resumable_rows(entry.parent)
        idle = (self._requests - entry.used_at) / _HALF_WORTH_REQUESTS
        if entry.users:
            weight = _MIDDLE_WEIGHT + entry.users - 1
        else:
            weight = min(entry.turns + entry.uses, _MOST_TURNS)
        return weight * saved_tokens / self._freed_bytes(entry) / (1.0 + idle)

    def _freed_bytes(self, entry: Entry) -> int:
        freed_bytes = self._costs.end_bytes
        for ancestor in _line(entry):
            if (ancestor is not entry and ancestor.end_piece is not None) or ancestor.users > (
                ancestor is not entry
            ):
                break
            freed_bytes += self._costs.rows(ancestor.rows - ancestor.start_rows)
        return freed_bytes

    def _lose_end(self, entry: Entry, dropped: list[int]) -> None:
        assert entry.end_piece is not None, "an end was dropped twice"
        dropped.append(entry.end_piece)
        entry.end_piece = None
        self._bytes -= self._costs.end_bytes
        self._prune(entry, dropped)

    def _leave(self, entry: Entry | None, dropped: list[int]) -> None:
        """One who needed the entry does so no longer."""
        if entry is not None:
            entry.users -= 1
            self._prune(entry, dropped)

    def _prune(self, entry: Entry | None, dropped: list[int]) -> None:
        """Let rows go that nobody needs, from the entry on down to the root."""
        while entry is not None and entry.end_piece is None and not entry.users:
            dropped.append(entry.rows_piece)
            self._bytes -= self._costs.rows(entry.rows - entry.start_rows)
            del self._entries[entry.digest]
            entry = entry.parent
            if entry is not None:
                entry.users -= 1


def _again(entry: Entry, turns: int) -> Offer:
    return Offer(entry.digest, entry.rows, entry.rows, turns, entry, entry.parent)


def _line(entry: Entry | None) -> Sequence[Entry]:
    """An entry and those it stands on, itself first."""
    line: list[Entry] = []
    while entry is not None:
        line.append(entry)
        entry = entry.parent
    return line


def _resumable_rows(entry: Entry | None) -> int:
    """Rows of the nearest prefix, itself or one that it stands on, that can be resumed from."""
    return next((ancestor.rows for ancestor in _line(entry) if ancestor.end_piece is not None), 0)
