"""Products of rows with a weight, each row's bits independent of the rows beside it."""

from hermitcrab.kernels.linear.ref import Linear, ProductPath, choose_path

__all__ = ["Linear", "ProductPath", "choose_path"]
