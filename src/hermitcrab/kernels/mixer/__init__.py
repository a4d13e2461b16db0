"""Hyper-connections: read the residual streams into one row, write a block's output back to all."""

from hermitcrab.kernels.mixer.ref import Mixer

__all__ = ["Mixer"]
