"""Log probabilities of `sampling/logprobs.py` in arrays: a function of one row of logits."""

import numpy as np
import numpy.typing as npt

from hermitcrab.sampling.logprobs import TokenLogprobs


def row_logprobs(row: npt.NDArray[np.float32], token: int, *, top: int) -> TokenLogprobs:
    """What a row [vocabulary] says of `token` and of its `top` likeliest tokens, ties to the lower id.

    In float64, over one row at a time, so that the order of the sum follows from the vocabulary alone.
    """
    logits = row.astype(np.float64)
    highest = logits.max()
    norm = highest + np.log(np.exp(logits - highest).sum())
    count = min(top, row.shape[0])
    best: tuple[tuple[int, float], ...] = ()
    if count:
        threshold = np.partition(row, -count)[-count]
        ids = np.flatnonzero(row >= threshold)
        ids = ids[np.lexsort((ids, -logits[ids]))][:count]
        best = tuple((int(other), float(logits[other] - norm)) for other in ids)
    return TokenLogprobs(token, float(logits[token] - norm), best)
