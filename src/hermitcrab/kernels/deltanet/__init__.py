"""The gated delta rule: row by row for replies, in chunks on an absolute grid for prompts."""

from hermitcrab.kernels.deltanet.ref import CHUNK_ROWS, DeltaRows, chunk, chunk_windows, steps

__all__ = ["CHUNK_ROWS", "DeltaRows", "chunk", "chunk_windows", "steps"]
