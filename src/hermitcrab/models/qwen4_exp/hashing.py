"""The constants of the n-gram hash, derived from the config as the family's training code derived them."""

import math
from dataclasses import dataclass

_MASK64 = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15
_MIX_1 = 0xBF58476D1CE4E5B9
_MIX_2 = 0x94D049BB133111EB


@dataclass(frozen=True, slots=True)
class NgramHash:
    """Head h's row: head_offsets[h] + (xor of token[i] * multipliers[i]) mod head_rows[h], newest first.

    Products stay within int64. `table_rows` is the table's height, padding included.
    """

    multipliers: tuple[int, ...]
    head_rows: tuple[int, ...]
    head_offsets: tuple[int, ...]
    table_rows: int


def derive_hash(
    *, vocab_tokens: int, ngram_tokens: int, heads: int, base_rows: int, rows_multiple: int, seed: int
) -> NgramHash:
    """The hash of a model's first n-gram layer: odd SplitMix64 multipliers, heads of consecutive primes."""
    head_rows: list[int] = []
    candidate = base_rows
    while len(head_rows) < heads:
        if _is_prime(candidate):
            head_rows.append(candidate)
        candidate += 1
    head_offsets = [sum(head_rows[:head]) for head in range(heads)]
    return NgramHash(
        multipliers=_multipliers(vocab_tokens, ngram_tokens, seed),
        head_rows=tuple(head_rows),
        head_offsets=tuple(head_offsets),
        table_rows=math.ceil(sum(head_rows) / rows_multiple) * rows_multiple,
    )


def _multipliers(vocab_tokens: int, ngram_tokens: int, seed: int) -> tuple[int, ...]:
    # odd, and small enough that the largest token id times one stays below 2**63
    half_bound = max(1, ((1 << 63) - 1) // vocab_tokens // 2)
    return tuple(
        2 * (_splitmix64((seed + _GAMMA * (index + 1)) & _MASK64) % half_bound) + 1
        for index in range(ngram_tokens)
    )


def _splitmix64(value: int) -> int:
    value = (value + _GAMMA) & _MASK64
    value = ((value ^ (value >> 30)) * _MIX_1) & _MASK64
    value = ((value ^ (value >> 27)) * _MIX_2) & _MASK64
    return value ^ (value >> 31)


def _is_prime(value: int) -> bool:
    if value < 2 or value % 2 == 0:
        return value == 2
    return all(value % divisor for divisor in range(3, math.isqrt(value) + 1, 2))
