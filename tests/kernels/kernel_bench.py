"""What each row of an operation is held to: its bits are its own, its values a float64 oracle's."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from hermitcrab.kernels.linear import choose_path
from hermitcrab.kernels.measures import Measures, ProductPath

# as many rows as a round of the CPU engine is likely to have, past one tile of 16
MOST_ROWS = 24

# how many rows ride together: few, around the vector widths and a tile of 16, and all
COUNTS = (1, 2, 3, 4, 5, 7, 8, 9, 11, 15, 16, 17, 23, 24)

DTYPES = (torch.float32, torch.bfloat16)

# The oracle computes in float64 from the same inputs. float32 sums of up to a few thousand terms lose some
# 1e-6 of the largest term; bfloat16 results are rounded to 8 bits (0.4 %), a few times where an operation has
# stages.
TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 3e-2}

Outcome = Tensor | tuple[Tensor, ...]


def exact() -> list[ProductPath]:
    """The kinds of product that a server may use here."""
    return sorted({choose_path(torch.float32), ProductPath.TILED}, key=lambda path: path.value)


def measures(dtype: torch.dtype) -> Measures:
    """What a server of this dtype runs with here."""
    return Measures(products=choose_path(dtype))


def random(*shape: int, seed: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Normal values."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def assert_rows_are_their_own(run: Callable[[Tensor], Outcome]) -> None:
    """`run(index)` computes the rows of a table that `index` names, in one call: [len(index), ...] each.

    Every row of MOST_ROWS must have the bits it has alone among others drawn at random, at a random place.
    """
    generator = torch.Generator().manual_seed(1)
    alone = [_parts(run(torch.tensor([row]))) for row in range(MOST_ROWS)]
    for count in COUNTS:
        index = torch.randperm(MOST_ROWS, generator=generator)[:count]
        for part, together in enumerate(_parts(run(index))):
            assert together.shape[0] == count
            for place, row in enumerate(index.tolist()):
                assert torch.equal(together[place], alone[row][part][0]), f"row {row} among {count}"


def assert_near(ours: Tensor, oracle: Tensor, dtype: torch.dtype = torch.float32) -> None:
    """Within the dtype's tolerance of the oracle's largest value."""
    assert ours.shape == oracle.shape
    furthest = float((ours.double() - oracle).abs().max())
    assert furthest <= TOLERANCE[dtype] * max(1.0, float(oracle.abs().max()))


def sigmoid(x: Tensor) -> Tensor:
    return 1.0 / (1.0 + torch.exp(-x))


def silu(x: Tensor) -> Tensor:
    return x * sigmoid(x)


def _parts(outcome: Outcome) -> Sequence[Tensor]:
    return outcome if isinstance(outcome, tuple) else (outcome,)
