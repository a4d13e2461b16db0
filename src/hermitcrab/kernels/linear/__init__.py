"""Products of rows with a weight, each row's bits independent of the rows beside it."""

from hermitcrab.kernels.linear.ref import Linear, choose_path
from hermitcrab.kernels.measures import ProductPath

__all__ = ["Linear", "ProductPath", "choose_path"]
