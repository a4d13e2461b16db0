"""Gated DeltaNet, its recurrence as products of 32-row matrices and one parallel scan over chunks."""

import torch
from torch import Tensor, nn
from torch.nn import functional as fn

from training.nets.rows import causal_conv
from training.shape import Shape

CHUNK_ROWS = 32
BLOCK_ROWS = 8


def unit_lower_inverse(strict: Tensor) -> Tensor:
    """(I + strict)^-1 for strictly lower [..., C, C] fp32, differentiable in `strict`.

    Inverts the 8-row diagonal blocks by a short power series, then the rest by another in the inverted
    blocks: neither series' terms grow large when keys repeat, as they would over all 32 rows. A Newton step
    carries the gradient.
    """
    rows = strict.shape[-1]
    eye = torch.eye(rows, dtype=strict.dtype, device=strict.device)
    block = torch.arange(rows, device=strict.device) // BLOCK_ROWS
    same = block.unsqueeze(-1) == block
    with torch.no_grad():
        zero = torch.zeros((), dtype=strict.dtype, device=strict.device)
        inside, outside = torch.where(same, strict, zero), torch.where(same, zero, strict)
        square = inside @ inside
        blocks = (eye - inside) @ (eye + square) @ (eye + square @ square)
        rest = blocks @ outside
        guess = (eye - rest) @ (eye + rest @ rest) @ blocks
    return guess + guess @ (eye - guess - strict @ guess)


def chunk_parts(
    q: Tensor, k: Tensor, v: Tensor, decay: Tensor, beta: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """What each chunk does to the state and reads from it, all chunks at once.

    q, k, v [chunks, H, C, dim] fp32 (q scaled), decay [chunks, H, C] log, beta the same. Returns the chunk's
    step of the state as [chunks, H, dim_k, dim_k + dim_v] (S' = M S + N, side by side), the rows' read of the
    entering state [chunks, H, C, dim_k], and what they read from their own chunk [chunks, H, C, dim_v].
    """
    rows = q.shape[-2]
    total = decay.cumsum(-1)
    lower = torch.ones(rows, rows, dtype=torch.bool, device=q.device).tril()
    pair = torch.where(lower, total.unsqueeze(-1) - total.unsqueeze(-2), float("-inf")).exp()
    strict = ((k * beta.unsqueeze(-1)) @ k.transpose(-1, -2) * pair).tril(-1)
    inverse = unit_lower_inverse(strict)
    grown = total.exp().unsqueeze(-1)
    solved = inverse @ torch.cat((k * grown, v), dim=-1).mul(beta.unsqueeze(-1))
    w, u = solved[..., : k.shape[-1]], solved[..., k.shape[-1] :]
    inner = (q @ k.transpose(-1, -2)) * pair
    last = total[..., -1:]
    late = (k * (last - total).exp().unsqueeze(-1)).transpose(-1, -2)
    eye = torch.eye(k.shape[-1], dtype=q.dtype, device=q.device)
    step = torch.cat((eye * last.exp().unsqueeze(-1) - late @ w, late @ u), dim=-1)
    return step, q * grown - inner @ w, inner @ u


def entering_states(step: Tensor) -> Tensor:
    """The state each chunk starts from, [B, chunks, H, dim_k, dim_v], by a parallel scan of the steps."""
    dim_k = step.shape[-2]
    chunks, reach = step.shape[1], 1
    while reach < chunks:
        later = step[:, reach:]
        through = later[..., :dim_k] @ step[:, :-reach]
        moved, added = through[..., :dim_k], through[..., dim_k:] + later[..., dim_k:]
        step = torch.cat((step[:, :reach], torch.cat((moved, added), dim=-1)), dim=1)
        reach *= 2
    after = step[..., dim_k:]
    return torch.cat((torch.zeros_like(after[:, :1]), after[:, :-1]), dim=1)


class DeltaParts(nn.Module):
    """The weights of one Gated DeltaNet block and its two halves, before and after the scan."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.key_width = shape.linear_num_key_heads * shape.linear_key_head_dim
        self.value_width = shape.linear_num_value_heads * shape.linear_value_head_dim
        hidden, heads = shape.hidden_size, shape.linear_num_value_heads
        self.in_proj_qkv = nn.Linear(hidden, 2 * self.key_width + self.value_width, bias=False)
        self.in_proj_z = nn.Linear(hidden, self.value_width, bias=False)
        self.in_proj_b = nn.Linear(hidden, heads, bias=False)
        self.in_proj_a = nn.Linear(hidden, heads, bias=False)
        self.out_proj = nn.Linear(self.value_width, hidden, bias=False)
        self.conv1d = nn.Parameter(
            torch.empty(2 * self.key_width + self.value_width, shape.linear_conv_kernel_dim)
        )
        self.A_log = nn.Parameter(torch.zeros(heads))
        self.dt_bias = nn.Parameter(torch.zeros(heads))
        self.norm = nn.Parameter(torch.ones(shape.linear_value_head_dim))

    def heads(self, mixed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Split convolved rows [N, qkv] into fp32 q, k (unit length, one a value head; q scaled) and v."""
        shape = self.shape
        share = shape.linear_num_value_heads // shape.linear_num_key_heads
        q, k, v = mixed.float().split((self.key_width, self.key_width, self.value_width), dim=-1)
        q, k = (x.unflatten(-1, (-1, shape.linear_key_head_dim)) for x in (q, k))
        q, k = (x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6) for x in (q, k))
        q = q / shape.linear_key_head_dim**0.5
        q, k = (x.repeat_interleave(share, dim=-2) for x in (q, k))
        return q, k, v.unflatten(-1, (-1, shape.linear_value_head_dim))

    def gates(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Log decay and write strength [N, H] fp32 of each row."""
        decay = -self.A_log.float().exp() * fn.softplus(self.in_proj_a(x).float() + self.dt_bias.float())
        return decay, torch.sigmoid(self.in_proj_b(x)).float()

    def before(self, x: Tensor, place: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Rows [N, D] to `chunk_parts`; N is a multiple of the chunk, and so is each sequence's start."""
        mixed = fn.silu(causal_conv(self.in_proj_qkv(x), self.conv1d, place, 1))
        decay, beta = self.gates(x)
        q, k, v = (part.unflatten(0, (-1, CHUNK_ROWS)).transpose(1, 2) for part in self.heads(mixed))
        decay, beta = (part.unflatten(0, (-1, CHUNK_ROWS)).transpose(1, 2) for part in (decay, beta))
        return chunk_parts(q, k, v, decay, beta)

    def read_out(self, core: Tensor, x: Tensor) -> Tensor:
        """Norm, gate and project what was read, [N, H, dim_v], to [N, D]; `x` is the block's input."""
        core = core.float()
        core = core * torch.rsqrt(core.square().mean(-1, keepdim=True) + self.shape.rms_norm_eps)
        gate = torch.sigmoid(self.in_proj_z(x).float()).unflatten(-1, (-1, self.shape.linear_value_head_dim))
        return self.out_proj((core * self.norm.float() * gate).flatten(-2).to(x.dtype))

    def after(self, reads: Tensor, own: Tensor, state: Tensor, x: Tensor) -> Tensor:
        """Finish the rows from the states their chunks started from."""
        core = (own + reads @ state).transpose(1, 2).flatten(0, 1)
        return self.read_out(core, x)
