"""Choose the blocks of past keys that a row may read."""

from hermitcrab.kernels.indexer.ref import SCORE_BLOCKS, pool_blocks, score_blocks, top_blocks

__all__ = ["SCORE_BLOCKS", "pool_blocks", "score_blocks", "top_blocks"]
