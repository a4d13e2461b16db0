"""Softmax attention in fixed chunks of keys by absolute position."""

from hermitcrab.kernels.attention.ref import CHUNK_KEYS, attend_listed, attend_prompt

__all__ = ["CHUNK_KEYS", "attend_listed", "attend_prompt"]
