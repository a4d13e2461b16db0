"""Choose each row's experts."""

from hermitcrab.kernels.router.ref import Routes, route

__all__ = ["Routes", "route"]
