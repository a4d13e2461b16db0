"""Routed experts and the shared expert of a layer."""

from hermitcrab.kernels.experts.ref import Experts, experts_of

__all__ = ["Experts", "experts_of"]
