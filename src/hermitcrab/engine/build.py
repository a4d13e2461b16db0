"""A checkpoint, settings of a few words and a list of session sizes -> a backend that is ready to run."""

from collections.abc import Sequence

import torch

from hermitcrab.engine.backend import Limits, TorchBackend
from hermitcrab.kernels.deltanet import CHUNK_ROWS
from hermitcrab.kernels.linear import choose_path
from hermitcrab.models.qwen4_exp.checkpoint import Checkpoint
from hermitcrab.models.qwen4_exp.model import Model
from hermitcrab.models.qwen4_exp.state import Sessions

# rows of one round: as many sessions may exist, since each needs a row of its own
ROW_LIMIT = 64

# a chain this deep still lands often enough on text that repeats to pay for itself
DEFAULT_DRAFT_DEPTH = 3

# long enough that a pass is not all overhead, short enough that running replies go on in between
PROMPT_PASS_ROWS = 4 * CHUNK_ROWS


def build_backend(
    checkpoint: Checkpoint,
    *,
    dtype: torch.dtype,
    session_rows: Sequence[int],
    draft_depth: int | None = None,
    threads: int | None = None,
) -> TorchBackend:
    """The model and its sessions in memory; `draft_depth` None: as deep as is worth it, 0 without a head."""
    if threads is not None:
        torch.set_num_threads(threads)
    path = choose_path(dtype)
    model = Model(checkpoint, dtype=dtype, context_rows=max(session_rows), path=path)
    depth = DEFAULT_DRAFT_DEPTH if draft_depth is None else draft_depth
    depth = depth if model.has_draft_head else 0
    limits = Limits(
        row_limit=ROW_LIMIT, window_rows=1 + depth, draft_depth=depth, prompt_pass_rows=PROMPT_PASS_ROWS
    )
    sessions = Sessions(checkpoint.config, session_rows, dtype)
    return TorchBackend(model, sessions, limits, threads=torch.get_num_threads())
