"""The edits of `sampling/edits.py` in arrays: the same float64 arithmetic on a copy of the row."""

from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

from hermitcrab.sampling.edits import Edits

Row = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class PastTokens:
    """Earlier tokens as arrays, made once for all rows that share them; lives for one call."""

    def __init__(self) -> None:
        # kept beside the arrays, so that no other object can get the same identity meanwhile
        self._known: dict[int, tuple[object, Ids, Floats]] = {}

    def counts(self, given: Mapping[int, int]) -> tuple[Ids, Floats]:
        """The tokens and how often each stands in the reply."""
        if id(given) not in self._known:
            counts = np.fromiter(given.values(), np.float64, len(given))
            self._known[id(given)] = (given, _ids(given, len(given)), counts)
        return self._known[id(given)][1:]

    def prompt(self, given: frozenset[int]) -> Ids:
        """The prompt's tokens."""
        if id(given) not in self._known:
            ids = _ids(given, len(given))
            self._known[id(given)] = (given, ids, np.zeros(0))
        return self._known[id(given)][1]


def edited_row(row: Row, edits: Edits, past: PastTokens) -> Floats:
    """A copy of the logits row [vocabulary] in float64 with its edits applied, a forced token apart."""
    changed = row.astype(np.float64)
    penalties = edits.penalties
    ids, counts = past.counts(edits.counts)
    if edits.ahead:
        ids, counts = _counted_ahead(ids, counts, edits)
    if penalties.repetition != 1.0:
        seen = np.union1d(ids, past.prompt(edits.prompt_ids))
        logits = changed[seen]
        changed[seen] = np.where(logits > 0.0, logits / penalties.repetition, logits * penalties.repetition)
    changed[ids] -= penalties.frequency * counts
    changed[ids] -= penalties.presence
    for token, bias in penalties.bias:
        changed[token] += bias
    if edits.banned:
        banned = _ids(edits.banned, len(edits.banned))
        changed[banned[banned < row.shape[0]]] = -np.inf
    if edits.mask is not None:
        changed[~_allowed(edits.mask, row.shape[0])] = -np.inf
    return changed


def _counted_ahead(ids: Ids, counts: Floats, edits: Edits) -> tuple[Ids, Floats]:
    """The counts with the window's drafts among them; the arrays given stay as they are."""
    ahead = np.array(sorted(set(edits.ahead)), dtype=np.int64)
    others = ~np.isin(ids, ahead)
    fresh = np.array([edits.count(token) for token in ahead.tolist()], dtype=np.float64)
    return np.concatenate((ids[others], ahead)), np.concatenate((counts[others], fresh))


def _allowed(mask: bytes, vocab_tokens: int) -> npt.NDArray[np.bool_]:
    """The mask as [vocabulary] booleans; tokens past its end are not in it."""
    bits = np.unpackbits(np.frombuffer(mask, dtype=np.uint8), bitorder="little")[:vocab_tokens]
    allowed = np.zeros(vocab_tokens, dtype=np.bool_)
    allowed[: bits.shape[0]] = bits
    return allowed


def _ids(tokens: Iterable[int], count: int) -> Ids:
    return np.fromiter(tokens, np.int64, count)
