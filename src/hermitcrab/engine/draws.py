"""Logits to tokens by the rule of `sampling/rule.py`: a function of a row's logits, position and parameters.

Which of the two ways a sampled row takes follows from its parameters alone, so that a reply takes one way
throughout: a short list (top-k of at most SHORT_LIST) is ranked here and drawn by the plain rule; the whole
vocabulary is drawn in float64 arrays.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from torch import Tensor

from hermitcrab.engine.edits import PastTokens, edited_row
from hermitcrab.errors import DeviceFailed
from hermitcrab.sampling.edits import Edits
from hermitcrab.sampling.noise import GOLDEN, MIX_1, MIX_2, row_key
from hermitcrab.sampling.params import Sampling
from hermitcrab.sampling.rule import draw_ranked

# the plain rule costs about a microsecond a candidate
SHORT_LIST = 256

Logits = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def draw_rows(
    logits: Tensor,
    positions: Sequence[int],
    samplings: Sequence[Sampling],
    edits: Sequence[Edits | None] = (),
) -> list[int]:
    """One token a row: logits [rows, vocabulary] float32; `positions` are where the tokens will stand.

    `edits` is empty or has one item a row; logits are never changed in place.
    Raises DeviceFailed for a row that holds a NaN or has no finite maximum, before or after its edits.
    """
    table: Logits = logits.numpy()
    # numpy's arg-max is the first of equals, and a NaN counts as the highest
    best = table.argmax(axis=1)
    highest = table[np.arange(table.shape[0]), best]
    if not np.isfinite(highest).all():
        raise _no_highest(positions[int(np.flatnonzero(~np.isfinite(highest))[0])])
    past = PastTokens()
    return [
        _draw_edited(row, position, sampling, edit, past)
        if edit is not None
        else int(token)
        if sampling.is_greedy
        else _draw(row, position, sampling)
        for row, token, position, sampling, edit in zip(
            table, best, positions, samplings, edits or (None,) * len(positions), strict=True
        )
    ]


def _draw_edited(row: Logits, position: int, sampling: Sampling, edits: Edits, past: PastTokens) -> int:
    if edits.forced is not None:
        return edits.forced
    changed = edited_row(row, edits, past)
    best = int(changed.argmax())
    if not np.isfinite(changed[best]):
        raise _no_highest(position)
    return best if sampling.is_greedy else _draw(changed, position, sampling)


def _no_highest(position: int) -> DeviceFailed:
    return DeviceFailed(f"the logits for position {position} have no highest finite value")


def _draw(row: Logits | Floats, position: int, sampling: Sampling) -> int:
    if 0 < sampling.top_k <= min(SHORT_LIST, row.shape[0]):
        ids = _top_ids(row, sampling.top_k)
        return draw_ranked(ids.tolist(), row[ids].astype(np.float64).tolist(), position, sampling)
    ids = (
        np.argsort(-row, kind="stable")
        if not 0 < sampling.top_k < row.shape[0]
        else _top_ids(row, sampling.top_k)
    )
    return _draw_long(ids.astype(np.int64), row[ids].astype(np.float64), position, sampling)


def _top_ids(row: Logits | Floats, count: int) -> Ids:
    """The best `count` ids by (logit descending, id ascending)."""
    threshold = np.partition(row, -count)[-count]
    above = np.flatnonzero(row > threshold)
    ties = np.flatnonzero(row == threshold)[: count - above.shape[0]]
    ids = np.concatenate((above, ties))
    return ids[np.lexsort((ids, -row[ids]))]


def _draw_long(ids: Ids, logits: Floats, position: int, sampling: Sampling) -> int:
    """The rule over ranked ids, in arrays."""
    scaled = (logits - logits[0]) / sampling.temperature
    weights = np.exp(scaled)
    count = ids.shape[0]
    if sampling.top_p < 1.0:
        sums = np.cumsum(weights)
        count = 1 + int(np.count_nonzero(sums[:-1] < sampling.top_p * sums[-1]))
    kept = np.flatnonzero(weights[:count] >= sampling.min_p)
    noisy = scaled[kept] + _gumbel(row_key(sampling.seed, position), ids[kept])
    best = ids[kept][noisy == noisy.max()]
    return int(best.min())


def _gumbel(key: int, ids: Ids) -> Floats:
    """The noise of `sampling/noise.py` for many tokens; unsigned words wrap as it asks."""
    with np.errstate(over="ignore"):
        word = np.uint64(key) + (ids.astype(np.uint64) + np.uint64(1)) * np.uint64(GOLDEN)
        word = (word ^ (word >> np.uint64(30))) * np.uint64(MIX_1)
        word = (word ^ (word >> np.uint64(27))) * np.uint64(MIX_2)
        word = word ^ (word >> np.uint64(31))
    uniform = ((word >> np.uint64(11)) | np.uint64(1)).astype(np.float64) * 2.0**-53
    return -np.log(-np.log(uniform))
