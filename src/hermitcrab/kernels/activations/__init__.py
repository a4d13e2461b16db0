"""Activations whose value depends on nothing but their input."""

from hermitcrab.kernels.activations.ref import sigmoid, silu, softplus

__all__ = ["sigmoid", "silu", "softplus"]
