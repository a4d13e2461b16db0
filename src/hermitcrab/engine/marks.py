"""Marks of logits: digests that tell equal bits from nearly equal ones, for whoever compares two runs."""

import hashlib

import numpy as np
import numpy.typing as npt
from torch import Tensor

from hermitcrab.core.marks import LogitsMark

# as many as a difference shows on each side
BEST_COUNT = 8


class MarkTap:
    """A watch for `TorchBackend.watch_logits` that keeps marks until they are taken."""

    def __init__(self) -> None:
        self._marks: list[LogitsMark] = []

    def __call__(self, logits: Tensor) -> None:
        """Mark the rows of logits [rows, vocabulary] float32."""
        self._marks += [_mark(row) for row in logits.numpy()]

    def take(self) -> list[LogitsMark]:
        """The marks since the last call, in order of the rows drawn from."""
        taken, self._marks = self._marks, []
        return taken


def _mark(row: npt.NDArray[np.float32]) -> LogitsMark:
    count = min(BEST_COUNT, row.shape[0])
    best = np.argpartition(row, -count)[-count:]
    best = best[np.lexsort((best, -row[best]))]
    return LogitsMark(
        hashlib.blake2b(row.tobytes(), digest_size=16).digest(),
        tuple((int(token), float(row[token])) for token in best),
    )
