"""Affine weights: the packed layout bit by bit, and values that are a function of their own row alone."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hermitcrab.weights.affine import BITS, CHUNK_VALUES, GROUP_SIZES, AffineWeight, pack, quantize, unpack

torch.set_num_threads(1)


def numbers_of(words: list[int], bits: int) -> list[int]:
    """The bit stream read one bit at a time, lowest bit of the lowest word first."""
    stream = [word >> place & 1 for word in words for place in range(32)]
    return [
        sum(bit << place for place, bit in enumerate(stream[start : start + bits]))
        for start in range(0, len(stream), bits)
    ]


def value_by_hand(weight: AffineWeight, row: int, column: int) -> float:
    number = numbers_of(weight.words[row].tolist(), weight.bits)[column]
    group = column // weight.group_size
    scale = weight.scales[row, group].to(torch.float32)
    return float(scale * number + weight.biases[row, group].to(torch.float32))


def random_weight(*shape: int, bits: int = 4, group_size: int = 32, seed: int = 0) -> AffineWeight:
    generator = torch.Generator().manual_seed(seed)
    return quantize(torch.randn(shape, generator=generator), bits=bits, group_size=group_size)


@settings(deadline=None)
@given(bits=st.sampled_from(BITS), rows=st.integers(1, 4), runs=st.integers(1, 5), data=st.data())
def test_unpacking_gives_back_what_was_packed(bits: int, rows: int, runs: int, data: st.DataObject) -> None:
    seed = data.draw(st.integers(0, 2**31))
    numbers = torch.randint(
        0, 1 << bits, (rows, 32 * runs), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed)
    )
    assert torch.equal(unpack(pack(numbers, bits), bits), numbers)


@settings(deadline=None)
@given(bits=st.sampled_from(BITS), words=st.lists(st.integers(0, 2**32 - 1), min_size=15, max_size=15))
def test_unpacking_reads_the_little_endian_bit_stream(bits: int, words: list[int]) -> None:
    stored = torch.tensor(words, dtype=torch.int64).to(torch.uint32)
    assert unpack(stored, bits).tolist() == numbers_of(words, bits)


def test_six_bits_put_four_values_into_three_bytes_low_bits_first() -> None:
    numbers = torch.tensor([1, 2, 3, 4] * 4, dtype=torch.uint8)
    first_bytes = pack(numbers, 6).view(torch.uint8)[:3].tolist()
    assert first_bytes == [0b10_000001, 0b0011_0000, 0b000100_00]


def test_five_bits_put_eight_values_into_five_bytes_low_bits_first() -> None:
    numbers = torch.tensor([1, 2, 4, 8, 16, 31, 0, 21] * 4, dtype=torch.uint8)
    first_bytes = pack(numbers, 5).view(torch.uint8)[:5].tolist()
    assert first_bytes == [0b010_00001, 0b0_00100_00, 0b0000_0100, 0b00_11111_1, 0b10101_000]


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("group_size", GROUP_SIZES)
def test_dequantized_values_are_scale_times_number_plus_bias(bits: int, group_size: int) -> None:
    weight = random_weight(3, 256, bits=bits, group_size=group_size)
    values = weight.dequantize(torch.float32)
    by_hand = [[value_by_hand(weight, row, column) for column in range(0, 256, 17)] for row in range(3)]
    assert values[:, ::17].tolist() == by_hand


def test_other_types_are_the_fp32_values_rounded_once() -> None:
    weight = random_weight(5, 64, bits=6)
    assert torch.equal(weight.dequantize(torch.bfloat16), weight.dequantize(torch.float32).to(torch.bfloat16))


@pytest.mark.parametrize("bits", BITS)
def test_a_weight_of_several_pieces_has_the_values_of_its_rows(bits: int) -> None:
    weight = random_weight(2 * CHUNK_VALUES // 4096 + 3, 4096, bits=bits)
    whole = weight.dequantize(torch.float32)
    assert torch.equal(whole, weight.rows(torch.arange(whole.shape[0]), torch.float32))


@settings(deadline=None)
@given(index=st.lists(st.integers(0, 19), max_size=8), bits=st.sampled_from(BITS))
def test_gathered_rows_have_the_bits_of_the_whole(index: list[int], bits: int) -> None:
    weight = random_weight(20, 64, bits=bits)
    picked = torch.tensor(index, dtype=torch.int64)
    assert torch.equal(weight.rows(picked, torch.float32), weight.dequantize(torch.float32)[picked])


def test_leading_dimensions_are_kept() -> None:
    weight = random_weight(3, 4, 64, bits=5)
    values = weight.dequantize(torch.float32)
    one = weight.map(lambda part: part[1])
    assert values.shape == weight.shape == (3, 4, 64)
    assert torch.equal(one.dequantize(torch.float32), values[1])


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("group_size", GROUP_SIZES)
@pytest.mark.parametrize("scale_dtype", [torch.float32, torch.bfloat16], ids=str)
def test_quantizing_errs_by_no_more_than_a_step(bits: int, group_size: int, scale_dtype: torch.dtype) -> None:
    values = torch.randn(8, 256, generator=torch.Generator().manual_seed(1))
    weight = quantize(values, bits=bits, group_size=group_size, scale_dtype=scale_dtype)
    groups = values.view(8, -1, group_size)
    spread = groups.amax(-1) - groups.amin(-1)
    # a step, and the rounding of a bfloat16 scale over all steps and of its bias
    allowed = spread / ((1 << bits) - 1) + (spread / 100 if scale_dtype == torch.bfloat16 else spread * 1e-5)
    error = (weight.dequantize(torch.float32) - values).abs().view(8, -1, group_size).amax(-1)
    assert bool((error <= allowed).all())


@pytest.mark.parametrize("bits", BITS)
def test_a_weight_on_its_own_grid_is_quantized_to_itself(bits: int) -> None:
    numbers = torch.arange(64).remainder(1 << bits).to(torch.float32)
    values = ((numbers - ((1 << bits) - 1)) * 0.25).view(2, 32)
    values[:, 0] = -0.25 * ((1 << bits) - 1)
    values[:, 1] = 0.0
    assert torch.equal(quantize(values, bits=bits, group_size=32).dequantize(torch.float32), values)


@pytest.mark.parametrize("value", [0.0, 1.5, -3.0])
def test_a_group_of_equal_values_is_kept(value: float) -> None:
    weight = quantize(torch.full((2, 64), value), bits=4, group_size=64)
    assert torch.equal(weight.dequantize(torch.float32), torch.full((2, 64), value))


def test_a_row_is_quantized_alone_as_in_a_weight_of_several_pieces() -> None:
    values = torch.randn(2 * CHUNK_VALUES // 4096 + 3, 4096, generator=torch.Generator().manual_seed(2))
    whole, last = (quantize(rows, bits=6, group_size=64) for rows in (values, values[-1:]))
    assert torch.equal(whole.words[-1:], last.words)
