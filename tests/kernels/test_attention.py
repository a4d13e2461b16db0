"""Softmax attention in fixed chunks of keys."""

import pytest
import torch
from kernel_bench import DTYPES, assert_near, assert_rows_are_their_own, random
from torch import Tensor

from hermitcrab.kernels.attention import CHUNK_KEYS, attend_listed, attend_prompt

KV_HEADS, GROUP, DIM = 2, 3, 32
BLOCK = 4
CHUNK_BLOCKS = CHUNK_KEYS // BLOCK
ARENA_BLOCKS = 100


def arena(dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Keys and values [kv_heads, arena rows, dim]."""
    shape = (KV_HEADS, ARENA_BLOCKS * BLOCK, DIM)
    return random(*shape, seed=1, dtype=dtype), random(*shape, seed=2, dtype=dtype)


def queries(rows: int, *, seed: int = 3) -> Tensor:
    return random(rows, KV_HEADS, GROUP, DIM, seed=seed) * DIM**-0.5


def lists(counts: list[int], chunks: int) -> tuple[Tensor, Tensor]:
    """For each row `counts[row]` keys in blocks of the arena at random, in chunks; the rest is not real."""
    generator = torch.Generator().manual_seed(len(counts) * 1000 + chunks)
    listed = torch.zeros(len(counts), chunks * CHUNK_BLOCKS, dtype=torch.int64)
    for row, count in enumerate(counts):
        blocks = -(-count // BLOCK)
        listed[row, :blocks] = torch.randperm(ARENA_BLOCKS, generator=generator)[:blocks]
    is_real = torch.arange(chunks * CHUNK_KEYS) < torch.tensor(counts).unsqueeze(1)
    return listed.view(len(counts), chunks, -1), is_real.view(len(counts), chunks, -1)


def oracle(q: Tensor, keys: Tensor, values: Tensor, places: list[Tensor]) -> Tensor:
    """Float64 softmax attention of every row over its own arena rows."""
    rows = []
    for row, place in enumerate(places):
        weights = torch.einsum("kgd,knd->kgn", q[row].double(), keys[:, place].double()).softmax(-1)
        rows.append(torch.einsum("kgn,knd->kgd", weights, values[:, place].double()))
    return torch.stack(rows)


def arena_rows(listed: Tensor, count: int) -> Tensor:
    blocks = listed.flatten()
    return (blocks.unsqueeze(1) * BLOCK + torch.arange(BLOCK)).flatten()[:count]


# one key; on each side of a block's and of a chunk's edge; several chunks
COUNTS = [1, 3, 4, 5, 63, 64, 65, 127, 128, 129, 200, 256]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_listed_row_is_its_own(dtype: torch.dtype) -> None:
    keys, values = arena(dtype)
    counts = [1 + (37 * row) % 256 for row in range(24)]
    q, (listed, is_real) = queries(24), lists(counts, 4)
    assert_rows_are_their_own(
        lambda index: attend_listed(q[index], keys, values, listed[index], is_real[index])
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_listed_rows_are_the_oracles(dtype: torch.dtype) -> None:
    keys, values = arena(dtype)
    q, (listed, is_real) = queries(len(COUNTS)), lists(COUNTS, 4)
    places = [arena_rows(listed[row], count) for row, count in enumerate(COUNTS)]
    attended = attend_listed(q, keys, values, listed, is_real)
    assert attended.dtype == torch.float32
    assert_near(attended, oracle(q, keys, values, places))


@pytest.mark.parametrize("count", [1, 64, 65])
def test_chunks_that_only_neighbours_need_change_nothing(count: int) -> None:
    keys, values = arena()
    q = queries(1)
    listed, is_real = lists([count], 2)
    expected = attend_listed(q, keys, values, listed, is_real)
    for more in (1, 2, 5):
        wider = torch.cat((listed, listed[:, :1].expand(-1, more, -1)), 1)
        none = torch.zeros(1, more, CHUNK_KEYS, dtype=torch.bool)
        assert torch.equal(attend_listed(q, keys, values, wider, torch.cat((is_real, none), 1)), expected)


def test_what_stands_in_keys_that_are_not_real_leaves_no_trace() -> None:
    keys, values = arena()
    q, (listed, is_real) = queries(1), lists([70], 2)
    expected = attend_listed(q, keys, values, listed, is_real)
    unseen = torch.ones(ARENA_BLOCKS * BLOCK, dtype=torch.bool)
    unseen[arena_rows(listed, 70)] = False
    for garbage in (0.0, -7.0, 1e18):
        dirty_keys, dirty_values = keys.clone(), values.clone()
        dirty_keys[:, unseen] = garbage
        dirty_values[:, unseen] = garbage
        assert torch.equal(attend_listed(q, dirty_keys, dirty_values, listed, is_real), expected)


def test_large_scores_do_not_overflow() -> None:
    keys, values = arena()
    q, (listed, is_real) = queries(1) * 1e4, lists([130], 3)
    assert_near(
        attend_listed(q, keys, values, listed, is_real), oracle(q, keys, values, [arena_rows(listed, 130)])
    )


def prompt_queries(rows: int, *, seed: int = 4) -> Tensor:
    q = random(CHUNK_KEYS, KV_HEADS * GROUP, DIM, seed=seed) * DIM**-0.5
    q[rows:] = 0.0
    return q


def causal(first: int, rows: int, chunks: int) -> Tensor:
    """bool [CHUNK_KEYS, chunks * CHUNK_KEYS]: rows from position `first` on see keys up to their own."""
    visible = torch.arange(chunks * CHUNK_KEYS) <= torch.arange(first, first + CHUNK_KEYS).unsqueeze(1)
    visible[rows:] = False
    return visible


def session(chunks: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    keys, values = arena(dtype)
    return keys[:, : chunks * CHUNK_KEYS], values[:, : chunks * CHUNK_KEYS]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("chunks", "rows"), [(1, 1), (1, 64), (3, 17), (4, 64)])
def test_prompt_rows_are_the_oracles(dtype: torch.dtype, chunks: int, rows: int) -> None:
    keys, values = session(chunks, dtype)
    q, first = prompt_queries(rows), (chunks - 1) * CHUNK_KEYS
    visible = causal(first, rows, chunks)
    # a sparse choice as well: every third key of the past is hidden
    visible[:, 1 : max(1, first) : 3] = False
    attended = attend_prompt(q, keys, values, visible)[:rows]
    by_group = q[:rows].view(rows, KV_HEADS, GROUP, DIM)
    expected = oracle(by_group, keys, values, [visible[row].nonzero().flatten() for row in range(rows)])
    assert attended.dtype == torch.float32
    assert_near(attended, expected.view(rows, -1, DIM))


def test_a_prompt_row_depends_on_no_later_row() -> None:
    keys, values = session(3, torch.float32)
    full = attend_prompt(prompt_queries(64), keys, values, causal(128, 64, 3))
    for rows in (1, 2, 15, 16, 33, 63):
        part = attend_prompt(prompt_queries(rows), keys, values, causal(128, rows, 3))
        assert torch.equal(part[:rows], full[:rows])


def test_rows_that_were_never_written_may_hold_anything() -> None:
    keys, values = session(2, torch.float32)
    q, visible = prompt_queries(10), causal(64, 10, 2)
    expected = attend_prompt(q, keys, values, visible)[:10]
    for garbage in (float("nan"), float("inf"), 1e38):
        dirty_keys, dirty_values = keys.clone(), values.clone()
        dirty_keys[:, 74:] = garbage
        dirty_values[:, 74:] = garbage
        assert torch.equal(attend_prompt(q, dirty_keys, dirty_values, visible)[:10], expected)


def test_the_queries_and_keys_are_left_as_they_were() -> None:
    keys, values = arena()
    q, (listed, is_real) = queries(2), lists([70, 3], 2)
    before = [part.clone() for part in (q, keys, values, listed, is_real)]
    attend_listed(q, keys, values, listed, is_real)
    assert all(torch.equal(*pair) for pair in zip(before, (q, keys, values, listed, is_real), strict=True))
