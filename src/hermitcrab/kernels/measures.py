"""What makes a row's bits its own, each measure with a plain form that a check can switch on to see it fail.

A server always runs `Measures()`: the plain forms are for the mutation check of `hermitcrab parity` and for
measuring what exactness costs.
"""

from dataclasses import dataclass
from enum import Enum


class ProductPath(Enum):
    """How a product of rows and a weight is computed."""

    PACKED = "packed"
    TILED = "tiled"
    PLAIN = "plain"


@dataclass(frozen=True, slots=True)
class Measures:
    """The measures in force; True, and any product path but PLAIN, keeps a row's bits its own.

    `activations`: a value depends on its input, not on its place in a buffer. `attention`: keys are summed in
    chunks fixed by absolute position. `recurrence`: a window runs row by row, as single rows do.
    `prompt_grid`: prompts are cut at absolute positions, however passes are cut.
    """

    products: ProductPath = ProductPath.TILED
    activations: bool = True
    attention: bool = True
    recurrence: bool = True
    prompt_grid: bool = True
