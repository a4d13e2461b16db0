"""What an engine takes of a model, before it is loaded: weights, sessions, work buffers, the peak of loading.

The CPU engine's figures follow its code. Those of the planned GPU engine, which keeps weights packed, follow
its design: its weights and sessions are exact for the checkpoint, its work buffers an estimate.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from hermitcrab.engine.backend import BACKLOG_ROWS
from hermitcrab.engine.build import DTYPES, ROW_LIMIT, window_rows
from hermitcrab.models.qwen4_exp.config import ModelConfig
from hermitcrab.models.qwen4_exp.footprint import (
    StoredBytes,
    arranged_bytes,
    arranging_bytes,
    held_ngram_bytes,
    prompt_work_bytes,
    rope_bytes,
    round_work_bytes,
)
from hermitcrab.models.qwen4_exp.state import session_bytes


@dataclass(frozen=True, slots=True)
class EngineMemory:
    """An engine's use of memory with one model.

    `ngram_bytes` is an n-gram table held beside the weights, `mapped_ngram_bytes` one that stays in its file,
    whose pages the system keeps as it has room. `loading_bytes` are copies made on the way, `mapped_bytes`
    the files' pages that loading reads, which the system may drop. `session_bytes` takes a session's rows,
    `work_bytes` those of each session.
    """

    name: str
    is_planned: bool
    weight_bytes: int
    ngram_bytes: int
    mapped_ngram_bytes: int
    loading_bytes: int
    mapped_bytes: int
    session_bytes: Callable[[int], int]
    work_bytes: Callable[[Sequence[int]], int]


def cpu_memory(stored: StoredBytes, dtype: str, draft_depth: int | None) -> EngineMemory:
    """The CPU engine's: weights dequantized and arranged in `dtype`."""
    config, kind = stored.config, DTYPES[dtype]
    held = held_ngram_bytes(config)
    return EngineMemory(
        name=f"CPU engine, {dtype} weights and states",
        is_planned=False,
        weight_bytes=arranged_bytes(config, kind),
        ngram_bytes=held,
        mapped_ngram_bytes=0 if held else stored.ngram_bytes,
        loading_bytes=stored.joined_bytes + arranging_bytes(config, kind),
        mapped_bytes=stored.body_bytes + (stored.ngram_bytes if held else 0),
        session_bytes=_session_bytes(config, kind),
        work_bytes=lambda rows: cpu_work_bytes(config, kind, rows, draft_depth),
    )


def packed_memory(stored: StoredBytes) -> EngineMemory:
    """The planned GPU engine's: weights as they are stored, bfloat16 sessions, the n-gram table on the host.

    Work buffers: logits and streams of a full round; its kernels are to keep no copy of keys or states.
    """
    config, kind = stored.config, torch.bfloat16
    row_bytes = 4 * (2 * config.vocab_tokens + 6 * config.streams_width)
    return EngineMemory(
        name="planned GPU engine, packed weights, bfloat16 states",
        is_planned=True,
        weight_bytes=stored.body_bytes,
        ngram_bytes=0,
        mapped_ngram_bytes=stored.ngram_bytes,
        loading_bytes=0,
        mapped_bytes=stored.body_bytes,
        session_bytes=_session_bytes(config, kind),
        work_bytes=lambda rows: ROW_LIMIT * row_bytes + rope_bytes(config, max(rows), kind),
    )


def cpu_work_bytes(
    config: ModelConfig, dtype: torch.dtype, rows: Sequence[int], draft_depth: int | None
) -> int:
    """Position tables, and the larger of a prompt chunk's and a round's passing buffers, at their most."""
    prompt = prompt_work_bytes(config, max(rows), dtype)
    widths = range(1, window_rows(draft_depth) + 1)
    rounds = (
        round_work_bytes(config, min(len(rows), ROW_LIMIT - width + 1), width, ROW_LIMIT, dtype)
        for width in widths
    )
    return rope_bytes(config, max(rows), dtype) + max(prompt, *rounds)


def backlog_bytes(config: ModelConfig, dtype: torch.dtype, rows: int) -> int:
    """Residual streams that may wait for the draft head in a session of so many rows."""
    return min(BACKLOG_ROWS, rows) * config.streams_width * dtype.itemsize


def _session_bytes(config: ModelConfig, dtype: torch.dtype) -> Callable[[int], int]:
    return lambda rows: session_bytes(config, rows, dtype) + backlog_bytes(config, dtype, rows)
