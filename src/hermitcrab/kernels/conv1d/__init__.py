"""Causal depthwise convolution over rows."""

from hermitcrab.kernels.conv1d.ref import causal_conv

__all__ = ["causal_conv"]
