"""The noise is fixed for ever: its bits, its range, its spread."""

import math

from hypothesis import given
from hypothesis import strategies as st

from hermitcrab.sampling.noise import GOLDEN, MIX_1, MIX_2, WORD, gumbel, mix64, row_key, uniform

SEEDS = st.integers(0, (1 << 63) - 1)
POSITIONS = st.integers(0, 1 << 24)
TOKENS = st.integers(0, 1 << 20)


def signed(word: int) -> int:
    """A 64-bit word as a signed integer that wraps, as a device holds it."""
    word &= WORD
    return word - (1 << 64) if word >> 63 else word


def shifted(word: int, bits: int) -> int:
    """The logical shift right of a signed word, written with an arithmetic one."""
    return (word >> bits) & ((1 << (64 - bits)) - 1)


def signed_mix(word: int) -> int:
    word = signed((word ^ shifted(word, 30)) * signed(MIX_1))
    word = signed((word ^ shifted(word, 27)) * signed(MIX_2))
    return word ^ shifted(word, 31)


def signed_uniform(seed: int, position: int, token: int) -> float:
    """The recipe of the module's docstring on signed words."""
    golden = signed(GOLDEN)
    key = signed_mix(signed(signed_mix(signed(seed + golden)) + signed(position * golden)))
    word = signed_mix(signed(key + signed((token + 1) * golden)))
    return (shifted(word, 11) | 1) * 2.0**-53


def test_the_hash_is_the_finaliser_of_splitmix64() -> None:
    # the first outputs of splitmix64 with seed 1234567, as published with the generator
    state, outputs = 1234567, []
    for _ in range(3):
        state = (state + GOLDEN) & WORD
        outputs.append(mix64(state))
    assert outputs == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_the_bits_are_those_of_the_first_release() -> None:
    assert row_key(0, 0) == 0x48218226FF3CD4BF
    assert uniform(row_key(0, 0), 0).hex() == (0.33805245419550556).hex()
    assert uniform(row_key((1 << 63) - 1, 262143), 248319).hex() == "0x1.999fb7b63974bp-1"


@given(SEEDS, POSITIONS, TOKENS)
def test_signed_words_give_the_same_bits(seed: int, position: int, token: int) -> None:
    assert signed_uniform(seed, position, token).hex() == uniform(row_key(seed, position), token).hex()


@given(SEEDS, POSITIONS, TOKENS)
def test_a_uniform_is_an_odd_multiple_of_two_to_minus_53_inside_0_and_1(
    seed: int, position: int, token: int
) -> None:
    number = uniform(row_key(seed, position), token)
    assert 0.0 < number < 1.0
    assert (number * 2.0**53) % 2.0 == 1.0


def test_gumbel_noise_is_finite_at_both_ends_of_the_uniform() -> None:
    assert math.isfinite(-math.log(-math.log(2.0**-53)))
    assert math.isfinite(-math.log(-math.log(1.0 - 2.0**-53)))


def test_gumbel_noise_has_the_mean_and_spread_of_its_law() -> None:
    numbers = [gumbel(row_key(5, position), token) for position in range(100) for token in range(100)]
    mean = sum(numbers) / len(numbers)
    variance = sum((number - mean) ** 2 for number in numbers) / len(numbers)
    # the Euler constant and pi**2 / 6; five standard errors of 10,000 draws
    assert abs(mean - 0.5772) < 5 * 1.2825 / 100
    assert abs(variance - math.pi**2 / 6) < 0.15


def test_a_different_seed_position_or_token_gives_different_noise() -> None:
    numbers = {
        uniform(row_key(seed, position), token)
        for seed in range(12)
        for position in range(12)
        for token in range(12)
    }
    assert len(numbers) == 12**3
