"""The gated delta rule: rows in order for replies, chunks for prompts."""

import pytest
import torch
from kernel_bench import assert_near, assert_rows_are_their_own, random
from torch import Tensor

from hermitcrab.kernels.deltanet import CHUNK_ROWS, DeltaRows, chunk, steps

HEADS, KEY, VALUE = 3, 16, 20


def some_rows(windows: int, rows: int, *, seed: int, decay: float = 1.0) -> DeltaRows:
    """Unit keys and queries, decays of every strength up to `decay`, writing strengths from 0 to 1."""
    q, k = (random(windows, rows, HEADS, KEY, seed=seed + part) for part in (0, 1))
    return DeltaRows(
        q / q.norm(dim=-1, keepdim=True) * KEY**-0.5,
        k / k.norm(dim=-1, keepdim=True),
        random(windows, rows, HEADS, VALUE, seed=seed + 2),
        -random(windows, rows, HEADS, seed=seed + 3).abs() * decay,
        torch.rand(windows, rows, HEADS, generator=torch.Generator().manual_seed(seed + 4)),
    )


def pick(rows: DeltaRows, windows: Tensor | slice, places: slice = slice(None)) -> DeltaRows:
    parts = (rows.q, rows.k, rows.v, rows.g, rows.beta)
    return DeltaRows(*(part[windows][:, places] for part in parts))


def oracle(rows: DeltaRows, state: Tensor) -> tuple[Tensor, Tensor]:
    """The rule in float64, row by row: outputs, and the states after every row [windows, rows, ...]."""
    state, outputs, states = state.double(), [], []
    for row in range(rows.q.shape[1]):
        q, k, v = (part[:, row].double() for part in (rows.q, rows.k, rows.v))
        state = state * rows.g[:, row].double().exp()[..., None, None]
        change = rows.beta[:, row].double().unsqueeze(-1) * (v - torch.einsum("whkv,whk->whv", state, k))
        state = state + torch.einsum("whk,whv->whkv", k, change)
        outputs.append(torch.einsum("whkv,whk->whv", state, q))
        states.append(state)
    return torch.stack(outputs, 1), torch.stack(states, 1)


@pytest.mark.parametrize("rows", [1, 4])
def test_a_window_is_its_own(rows: int) -> None:
    windows, state = some_rows(24, rows, seed=1), random(24, HEADS, KEY, VALUE, seed=9)

    def run(index: Tensor) -> tuple[Tensor, ...]:
        outputs, states = steps(pick(windows, index), state[index])
        return outputs, *(states[row] for row in range(rows))

    assert_rows_are_their_own(run)


def test_a_windows_rows_have_the_bits_of_windows_of_one_row() -> None:
    windows, state = some_rows(3, 8, seed=2), random(3, HEADS, KEY, VALUE, seed=9)
    outputs, states = steps(windows, state)
    for row in range(8):
        alone, after = steps(pick(windows, slice(None), slice(row, row + 1)), state)
        assert torch.equal(alone, outputs[:, row : row + 1])
        assert torch.equal(after[0], states[row])
        state = after[0]


@pytest.mark.parametrize("decay", [0.0, 0.1, 5.0, 200.0])
def test_steps_are_the_oracles(decay: float) -> None:
    windows, state = some_rows(2, 40, seed=3, decay=decay), random(2, HEADS, KEY, VALUE, seed=9)
    outputs, states = steps(windows, state)
    expected, expected_states = oracle(windows, state)
    assert_near(outputs, expected)
    assert_near(states[39], expected_states[:, 39])


def test_the_state_given_to_steps_is_left_as_it_was() -> None:
    state = random(2, HEADS, KEY, VALUE, seed=9)
    before = state.clone()
    steps(some_rows(2, 3, seed=4), state)
    assert torch.equal(state, before)


@pytest.mark.parametrize("decay", [0.0, 0.1, 5.0, 200.0])
@pytest.mark.parametrize("rows", [1, 2, 63, CHUNK_ROWS])
def test_a_chunk_is_the_oracles(rows: int, decay: float) -> None:
    window, state = some_rows(1, rows, seed=5, decay=decay), random(1, HEADS, KEY, VALUE, seed=9)
    outputs, after = chunk(window, state)
    expected, expected_states = oracle(window, state)
    assert_near(outputs, expected)
    assert_near(after, expected_states[:, -1])


def test_a_chunks_row_depends_on_no_later_row() -> None:
    """A prompt's bits do not depend on how long it goes on within its last chunk."""
    window, state = some_rows(1, CHUNK_ROWS, seed=6), random(1, HEADS, KEY, VALUE, seed=9)
    whole, _ = chunk(window, state)
    for rows in (1, 2, 3, 8, 17, 33, 63):
        part, _ = chunk(pick(window, slice(None), slice(rows)), state)
        assert torch.equal(part, whole[:, :rows])


def test_chunks_in_a_row_go_on_from_the_state() -> None:
    window, state = some_rows(1, 2 * CHUNK_ROWS, seed=7, decay=0.05), random(1, HEADS, KEY, VALUE, seed=9)
    expected, expected_states = oracle(window, state)
    first, between = chunk(pick(window, slice(None), slice(CHUNK_ROWS)), state)
    second, after = chunk(pick(window, slice(None), slice(CHUNK_ROWS, None)), between)
    assert_near(torch.cat((first, second), 1), expected)
    assert_near(after, expected_states[:, -1])


def test_rows_that_write_nothing_only_let_the_state_fade() -> None:
    window, state = some_rows(1, 5, seed=8), random(1, HEADS, KEY, VALUE, seed=9)
    silent = DeltaRows(window.q, window.k, window.v, window.g, torch.zeros_like(window.beta))
    faded = state.double() * window.g.double().sum(1).exp()[..., None, None]
    assert_near(steps(silent, state)[1][4], faded)
    assert_near(chunk(silent, state)[1], faded)


def test_a_full_write_without_decay_recalls_the_value_written() -> None:
    window = some_rows(1, 1, seed=8)
    full = DeltaRows(window.k, window.k, window.v, torch.zeros_like(window.g), torch.ones_like(window.beta))
    state = random(1, HEADS, KEY, VALUE, seed=9)
    assert_near(steps(full, state)[0], window.v.double())
    assert_near(chunk(full, state)[0], window.v.double())


def test_the_same_key_over_and_over_stays_bounded() -> None:
    window, state = some_rows(1, CHUNK_ROWS, seed=10, decay=0.0), torch.zeros(1, HEADS, KEY, VALUE)
    same = DeltaRows(window.q, window.k[:, :1].expand_as(window.k), window.v, window.g, window.beta)
    expected, _ = oracle(same, state)
    assert_near(chunk(same, state)[0], expected)
    assert_near(steps(same, state)[0], expected)
