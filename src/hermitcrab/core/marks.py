"""A row's logits in short: enough to tell whether two computations gave the same bits, and to show it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LogitsMark:
    """One row of logits: a digest of all its bits, and its highest values as (token, logit), best first."""

    digest: bytes
    best: tuple[tuple[int, float], ...]
