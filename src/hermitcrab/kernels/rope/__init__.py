"""Rotary position embedding."""

from hermitcrab.kernels.rope.ref import rope_tables, rotate

__all__ = ["rope_tables", "rotate"]
