"""The hashed n-gram embedding (PLE): ids from token history, and the gated, convolved injection."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as fn

from training.nets.rows import causal_conv, stream_norm
from training.shape import END_OF_TEXT_ID, Shape

_MASK = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15


def _splitmix(value: int) -> int:
    value = (value + _GAMMA) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return (value ^ (value >> 31)) & _MASK


def multipliers(shape: Shape) -> list[int]:
    """The odd hash multipliers, one a position of the n-gram, for the first PLE layer."""
    half_bound = max(1, ((1 << 63) - 1) // shape.vocab_size // 2)
    return [
        2 * (_splitmix((shape.seed + _GAMMA * (place + 1)) & _MASK) % half_bound) + 1
        for place in range(shape.ngram_size)
    ]


def table_rows(shape: Shape) -> list[int]:
    """The rows of each head's table: consecutive primes from the base up."""
    sizes: list[int] = []
    candidate = shape.ngram_vocab_size_base
    while len(sizes) < shape.ngram_heads:
        if all(candidate % divisor for divisor in range(2, math.isqrt(candidate) + 1)):
            sizes.append(candidate)
        candidate += 1
    return sizes


def padded_rows(shape: Shape) -> int:
    """Rows of all tables together, padded to the configured divisor."""
    divisor = shape.make_ngram_vocab_size_divisible_by
    return -(-sum(table_rows(shape)) // divisor) * divisor


def previous_tokens(tokens: Tensor, shift: int) -> Tensor:
    """Tokens [B, T] moved right by `shift`; <|endoftext|> stands where it would cross a start or one."""
    if shift == 0:
        return tokens
    places = torch.arange(tokens.shape[1], device=tokens.device)
    ends = torch.where(tokens == END_OF_TEXT_ID, places, -1)
    before = fn.pad(ends.cummax(dim=1).values[:, :-1], (1, 0), value=-1)
    moved = fn.pad(tokens[:, :-shift], (shift, 0), value=END_OF_TEXT_ID)
    return torch.where(places - (before + 1) >= shift, moved, END_OF_TEXT_ID)


class NgramTables(nn.Module):
    """All heads' tables as one, with the hash constants that find a row."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        sizes = table_rows(shape)
        offsets = [sum(sizes[:head]) for head in range(len(sizes))]
        self.register_buffer("layer_multipliers", torch.tensor(multipliers(shape)))
        self.register_buffer("ngram_heads_vocab_sizes", torch.tensor(sizes))
        self.register_buffer("ngram_heads_offsets", torch.tensor(offsets))
        self.ngram_embedding = nn.Parameter(
            torch.empty(padded_rows(shape), shape.ple_embed_dim // shape.ngram_heads)
        )

    @torch.no_grad()
    def rows(self, tokens: Tensor) -> Tensor:
        """Table rows [B, T, heads] int64 of each token's n-grams."""
        tokens = tokens.long()
        shifted = [previous_tokens(tokens, shift) for shift in range(self.shape.ngram_size)]
        found, mixed = [], shifted[0] * self.layer_multipliers[0]
        for order in range(1, self.shape.ngram_size):
            mixed = mixed ^ (shifted[order] * self.layer_multipliers[order])
            heads = slice((order - 1) * self.shape.heads_per_ngram, order * self.shape.heads_per_ngram)
            sizes, offsets = self.ngram_heads_vocab_sizes[heads], self.ngram_heads_offsets[heads]
            found.append(mixed.unsqueeze(-1).remainder(sizes) + offsets)
        return torch.cat(found, dim=-1)


class NgramInjection(nn.Module):
    """Adds gated n-gram values to every residual stream."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        width = shape.stream_width
        self.ple_embedding = NgramTables(shape)
        self.key_proj = nn.Linear(shape.ple_embed_dim, width, bias=False)
        self.value_proj = nn.Linear(shape.ple_embed_dim, shape.hidden_size, bias=False)
        self.norm_key = nn.Parameter(torch.zeros(width))
        self.norm_query = nn.Parameter(torch.zeros(width))
        self.norm_conv = nn.Parameter(torch.zeros(width))
        self.conv1d = nn.Parameter(torch.zeros(width, shape.ple_conv_kernel_size))

    def gated(self, streams: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The gated values [N, S * D] and the same normed for the convolution."""
        shape = self.shape
        hidden, count, eps = shape.hidden_size, shape.hc_count, shape.rms_norm_eps
        embedded = fn.embedding(rows, self.ple_embedding.ngram_embedding).flatten(-2)
        key = stream_norm(self.key_proj(embedded), self.norm_key, eps, hidden).unflatten(-1, (count, hidden))
        query = stream_norm(streams, self.norm_query, eps, hidden).unflatten(-1, (count, hidden))
        gate = (key.float() * query.float()).sum(-1, keepdim=True) / hidden**0.5
        gate = gate.abs().clamp_min(1e-6).sqrt() * gate.sign()
        value = self.value_proj(embedded).unsqueeze(-2)
        injected = (torch.sigmoid(gate).to(streams.dtype) * value).flatten(-2)
        return injected, stream_norm(injected, self.norm_conv, eps, hidden)

    def forward(self, streams: Tensor, rows: Tensor, place: Tensor) -> Tensor:
        injected, normed = self.gated(streams, rows)
        return streams + injected + fn.silu(causal_conv(normed, self.conv1d, place, self.shape.ngram_size))
