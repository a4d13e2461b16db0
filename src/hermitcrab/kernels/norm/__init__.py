"""Root-mean-square norms."""

from hermitcrab.kernels.norm.ref import l2_norm, rms_norm

__all__ = ["l2_norm", "rms_norm"]
