"""The noise of the draw: a counter-based hash of (seed, absolute position, token id), alike on every device.

The recipe, in 64-bit words that wrap. `mix64` is the finaliser of splitmix64:

    mix64(z):    z = (z ^ (z >> 30)) * MIX_1;  z = (z ^ (z >> 27)) * MIX_2;  z ^ (z >> 31)
    row key      = mix64(mix64(seed + GOLDEN) + position * GOLDEN)
    word         = mix64(row key + (token + 1) * GOLDEN)
    numerator    = (word >> 11) | 1              an odd number below 2**53
    uniform      = numerator * 2**-53            exact in float64, strictly inside (0, 1)
    gumbel       = -log(-log(uniform))           float64

Shifts bring in zeros. A twin on signed 64-bit words gets the same bits: sums and products wrap alike, and a
shift right by n is the arithmetic shift followed by `& ((1 << (64 - n)) - 1)`. Python's ints do not wrap:
hence `WORD`. `position` is where the drawn token will stand. A row key serves all tokens of a row.
"""

import math

WORD = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
MIX_1 = 0xBF58476D1CE4E5B9
MIX_2 = 0x94D049BB133111EB


def mix64(word: int) -> int:
    """Scramble a 64-bit word; one to one, so that different words stay different."""
    word = ((word ^ (word >> 30)) * MIX_1) & WORD
    word = ((word ^ (word >> 27)) * MIX_2) & WORD
    return word ^ (word >> 31)


def row_key(seed: int, position: int) -> int:
    """The 64-bit key all tokens of one row's draw share."""
    return mix64((mix64((seed + GOLDEN) & WORD) + position * GOLDEN) & WORD)


def uniform(key: int, token: int) -> float:
    """A number strictly inside (0, 1) for one token of a row: an odd multiple of 2**-53."""
    word = mix64((key + (token + 1) * GOLDEN) & WORD)
    return ((word >> 11) | 1) * 2.0**-53


def gumbel(key: int, token: int) -> float:
    """Standard Gumbel noise for one token of a row; finite, from about -3.7 to 36.8."""
    return -math.log(-math.log(uniform(key, token)))
