"""Checkpoint tensors as the forward wants them: dequantized, in one dtype, norm gains whole."""

from collections.abc import Mapping

import torch
from torch import Tensor

from hermitcrab.weights.affine import AffineWeight
from hermitcrab.weights.load import Weight


class WeightSource:
    """Reads canonical tensors by name in the forward's dtype."""

    def __init__(self, tensors: Mapping[str, Weight], dtype: torch.dtype) -> None:
        self._tensors = tensors
        self.dtype = dtype

    def get(self, name: str) -> Tensor:
        """A tensor in the forward's dtype."""
        return self._read(name, self.dtype)

    def wide(self, name: str) -> Tensor:
        """A tensor in float32."""
        return self._read(name, torch.float32)

    def gain(self, name: str) -> Tensor:
        """A norm's gain in float32: 1 + the stored weight."""
        return self.wide(f"{name}.weight") + 1.0

    def _read(self, name: str, dtype: torch.dtype) -> Tensor:
        weight = self._tensors[name]
        return weight.dequantize(dtype) if isinstance(weight, AffineWeight) else weight.to(dtype)
