"""Products of rows with a weight."""

import pytest
import torch
from kernel_bench import DTYPES, assert_near, assert_rows_are_their_own, exact, random

from hermitcrab.kernels.linear import Linear, choose_path
from hermitcrab.kernels.measures import ProductPath

# [out, in]: one column, odd widths, sums past 1024 where the packed product needs a companion, a wide head
SHAPES = ((1, 128), (36, 512), (100, 96), (131, 640), (64, 1100), (16, 2560), (512, 128), (8, 4096))


@pytest.mark.parametrize("path", exact())
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_row_is_its_own(path: ProductPath, dtype: torch.dtype, shape: tuple[int, int]) -> None:
    linear = Linear(random(*shape, seed=1, dtype=dtype), path)
    table = random(24, shape[1], seed=2, dtype=dtype)
    assert_rows_are_their_own(lambda index: linear(table[index]))


@pytest.mark.parametrize("path", exact())
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("rows", [31, 32, 33, 64, 130])
def test_a_row_among_many_is_its_own(path: ProductPath, dtype: torch.dtype, rows: int) -> None:
    linear = Linear(random(100, 320, seed=3, dtype=dtype), path)
    table = random(rows, 320, seed=4, dtype=dtype)
    together = linear(table)
    alone = torch.cat([linear(row.unsqueeze(0)) for row in table])
    assert torch.equal(together, alone)


@pytest.mark.parametrize("path", exact())
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_what_stands_in_other_rows_leaves_no_trace(path: ProductPath, dtype: torch.dtype) -> None:
    linear = Linear(random(40, 256, seed=5, dtype=dtype), path)
    row = random(1, 256, seed=6, dtype=dtype)
    alone = linear(row)
    for other in (0.0, 1e20, -1e-30, float("inf"), float("nan")):
        for place in (0, 1, 7):
            rows = torch.full((8, 256), other, dtype=dtype)
            rows[place] = row
            assert torch.equal(linear(rows)[place : place + 1], alone)


@pytest.mark.parametrize("path", exact())
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_products_are_the_oracles(path: ProductPath, dtype: torch.dtype) -> None:
    for shape in SHAPES:
        weight, rows = random(*shape, seed=7, dtype=dtype), random(5, shape[1], seed=8, dtype=dtype)
        product = Linear(weight, path)(rows)
        assert product.dtype == dtype
        assert_near(product, rows.double() @ weight.double().T, dtype)


@pytest.mark.parametrize("path", exact())
def test_rows_cut_out_of_a_wider_table_give_what_their_copy_gives(path: ProductPath) -> None:
    linear = Linear(random(40, 96, seed=9), path)
    wide = random(6, 300, seed=10)
    assert torch.equal(linear(wide[:, 100:196]), linear(wide[:, 100:196].clone()))


@pytest.mark.parametrize("path", exact())
def test_the_weight_given_may_be_a_slice(path: ProductPath) -> None:
    wide, rows = random(80, 300, seed=11), random(6, 96, seed=12)
    assert torch.equal(
        Linear(wide[10:50, 100:196], path)(rows), Linear(wide[10:50, 100:196].clone(), path)(rows)
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_path_chosen_is_an_exact_one_and_chosen_again_the_same(dtype: torch.dtype) -> None:
    assert choose_path(dtype) in (ProductPath.PACKED, ProductPath.TILED)
    assert choose_path(dtype) is choose_path(dtype)


def test_widths_are_those_of_the_weight() -> None:
    linear = Linear(random(7, 96, seed=13), ProductPath.TILED)
    assert (linear.out_width, linear.in_width) == (7, 96)
