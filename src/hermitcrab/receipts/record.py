"""What a receipt is made of: cases, replies, where two replies to one case differ, the outcome of a check."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from hermitcrab.core.marks import LogitsMark
from hermitcrab.sampling.params import Sampling


class Verdict(StrEnum):
    """How a check ended; only EQUAL and NOT_AVAILABLE let a run pass."""

    EQUAL = "equal"
    DIFFERENT = "different"
    NOT_SHOWN = "not shown"
    NOT_AVAILABLE = "not available"


@dataclass(frozen=True, slots=True)
class Case:
    """One request to be replied to more than once; its reply goes on past end-of-text tokens."""

    name: str
    prompt: tuple[int, ...]
    sampling: Sampling
    max_new_tokens: int


@dataclass(frozen=True, slots=True)
class Reply:
    """What a case got.

    `marks` has the logits that each token was drawn from, by the position of the row; it is empty where they
    cannot be seen. `is_cancelled`: only the beginning is there. `failure` says what ended it instead.
    """

    case: Case
    tokens: tuple[int, ...]
    marks: Mapping[int, LogitsMark] = field(default_factory=dict)
    is_cancelled: bool = False
    failure: str | None = None
    moves: int = 0
    drafted: int = 0
    accepted: int = 0

    @property
    def sha256(self) -> str:
        """The hex digest of the token ids, each as 4 little-endian bytes."""
        return hashlib.sha256(b"".join(token.to_bytes(4, "little") for token in self.tokens)).hexdigest()


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a difference: the token, and the highest logits of the row it was drawn from."""

    token: int | None
    best: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Difference:
    """Where a reply first differs from the one alone: in its `index`-th token, or in the logits behind it."""

    case: str
    index: int
    what: str
    alone: Side
    other: Side


@dataclass(frozen=True, slots=True)
class Shown:
    """One reply of a check, for the receipt."""

    case: str
    tokens: int
    sha256: str
    is_cancelled: bool


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one check found; `receipt` is its number in the list of receipts, where it has one."""

    name: str
    verdict: Verdict
    receipt: str = ""
    note: str = ""
    rows_compared: int = 0
    seconds: float = 0.0
    replies: tuple[Shown, ...] = ()
    differences: tuple[Difference, ...] = ()

    @property
    def is_failure(self) -> bool:
        """True if the run cannot pass."""
        return self.verdict in (Verdict.DIFFERENT, Verdict.NOT_SHOWN)


@dataclass(frozen=True, slots=True)
class Pair:
    """One case's reply alone, and its reply in other circumstances."""

    alone: Reply
    other: Reply


def first_difference(pair: Pair) -> Difference | None:
    """Where the other reply leaves the one alone, in tokens or in the bits of their logits; None: nowhere.

    The other may be shorter, if that is what its case asked for or if it was cancelled.
    """
    alone, other = pair.alone, pair.other
    if other.failure is not None:
        return _difference(pair, len(other.tokens), f"ended by an error: {other.failure}")
    first_row = len(other.case.prompt) - 1
    for index, token in enumerate(other.tokens):
        if index >= len(alone.tokens) or token != alone.tokens[index]:
            return _difference(pair, index, "another token")
        mark = other.marks.get(first_row + index)
        expected = alone.marks.get(first_row + index)
        if mark is not None and expected is not None and mark.digest != expected.digest:
            return _difference(pair, index, "the same token from other logits")
    if not other.is_cancelled and len(other.tokens) != other.case.max_new_tokens:
        return _difference(pair, len(other.tokens), "ended early")
    return None


def judge(
    name: str,
    pairs: Iterable[Pair],
    *,
    seconds: float,
    receipt: str = "",
    note: str = "",
    missing: str | None = None,
) -> Outcome:
    """The outcome of a check; `missing` says what it was to show and did not come to show."""
    pairs = list(pairs)
    differences = tuple(found for pair in pairs if (found := first_difference(pair)) is not None)
    verdict = Verdict.EQUAL
    if missing is not None or not pairs:
        verdict = Verdict.NOT_SHOWN
    if differences:
        verdict = Verdict.DIFFERENT
    return Outcome(
        name,
        verdict,
        receipt,
        note if missing is None else missing,
        rows_compared=sum(_rows_compared(pair) for pair in pairs),
        seconds=seconds,
        replies=tuple(
            Shown(pair.other.case.name, len(pair.other.tokens), pair.other.sha256, pair.other.is_cancelled)
            for pair in pairs
        ),
        differences=differences,
    )


def not_available(name: str, why: str, *, receipt: str = "") -> Outcome:
    """A check that cannot be made here; never a passed one."""
    return Outcome(name, Verdict.NOT_AVAILABLE, receipt, why)


def _rows_compared(pair: Pair) -> int:
    """Rows whose logits were compared."""
    first_row = len(pair.other.case.prompt) - 1
    rows = range(first_row, first_row + min(len(pair.other.tokens), len(pair.alone.tokens)))
    return sum(row in pair.other.marks and row in pair.alone.marks for row in rows)


def _difference(pair: Pair, index: int, what: str) -> Difference:
    return Difference(pair.other.case.name, index, what, _side(pair.alone, index), _side(pair.other, index))


def _side(reply: Reply, index: int) -> Side:
    token = reply.tokens[index] if index < len(reply.tokens) else None
    mark = reply.marks.get(len(reply.case.prompt) - 1 + index)
    return Side(token, () if mark is None else mark.best)
