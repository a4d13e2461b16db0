"""The sparse attention's indexer: pool finished blocks of raw keys, score them, keep the best.

    pooled = rope(norm(mean of a block's raw keys, rounded to their dtype), at the block's first position)
    score  = sum over heads of relu(q . pooled) / sqrt(dim)

Scores tie often (at exactly 0): the order is total, score descending, then block ascending.
"""

import math

import torch
from torch import Tensor

from hermitcrab.kernels.norm import rms_norm
from hermitcrab.kernels.rope import rotate

# blocks a product takes at once, from block 0 on: fixed, so that a score does not depend on their number
SCORE_BLOCKS = 256


def pool_blocks(raw: Tensor, gain: Tensor, eps: float, cos: Tensor, sin: Tensor) -> Tensor:
    """Pooled keys [blocks, dim] of raw keys [blocks, block_tokens, dim]; cos, sin of the first positions."""
    total = raw[:, 0].float() + raw[:, 1].float()
    for place in range(2, raw.shape[1]):
        total += raw[:, place].float()
    mean = total.mul_(1.0 / raw.shape[1]).to(raw.dtype)
    normed = rms_norm(mean, gain, eps).to(raw.dtype)
    return rotate(normed.unsqueeze(1), cos, sin).squeeze(1)


def score_blocks(q: Tensor, pooled: Tensor) -> Tensor:
    """Scores [rows, blocks] float32 of q [rows, heads, dim] against one session's pooled keys [blocks, dim].

    `blocks` is a multiple of SCORE_BLOCKS; what stands in a block that is not finished must be masked by the
    caller. Each row is its own product, of fixed shape.
    """
    rows, heads, dim = q.shape
    tiles = pooled.float().view(-1, SCORE_BLOCKS, dim).transpose(1, 2)
    scores = torch.empty(rows, pooled.shape[0])
    for row in range(rows):
        products = torch.bmm(q[row].float().expand(tiles.shape[0], heads, dim), tiles).relu_()
        total = products[:, 0] + products[:, 1] if heads > 1 else products[:, 0]
        for head in range(2, heads):
            total = total + products[:, head]
        scores[row] = total.reshape(-1)
    return scores.mul_(1.0 / math.sqrt(dim))


def top_blocks(scores: Tensor, count: int) -> Tensor:
    """The `count` best blocks of each row, in ascending order, int64 [rows, count].

    scores [rows, blocks] with minus infinity for blocks that do not exist, of which at most blocks - count.
    """
    threshold = scores.topk(count, dim=-1).values[:, -1:]
    above = scores > threshold
    ties = scores == threshold
    wanted = count - above.sum(-1, keepdim=True)
    chosen = above | (ties & (ties.cumsum(-1) <= wanted))
    return chosen.nonzero()[:, 1].view(-1, count)
