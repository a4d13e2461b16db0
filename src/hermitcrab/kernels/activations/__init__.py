"""Activations whose value depends on nothing but their input; they take its half."""

from hermitcrab.kernels.activations.ref import (
    Activations,
    activations_of,
    silu_of_half,
    softplus,
    twice_sigmoid_of_half,
)

__all__ = ["Activations", "activations_of", "silu_of_half", "softplus", "twice_sigmoid_of_half"]
