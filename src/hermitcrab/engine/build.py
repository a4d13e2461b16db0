"""A checkpoint and a list of session sizes -> a backend that is ready to run."""

from collections.abc import Sequence

import torch

from hermitcrab.engine.backend import Limits, TorchBackend
from hermitcrab.kernels.deltanet import CHUNK_ROWS
from hermitcrab.kernels.linear import choose_path
from hermitcrab.kernels.measures import Measures
from hermitcrab.models.qwen4_exp.checkpoint import Checkpoint
from hermitcrab.models.qwen4_exp.model import Model
from hermitcrab.models.qwen4_exp.state import Sessions

# rows of one round: as many sessions may exist, since each needs a row of its own
ROW_LIMIT = 64

# rows of a window at most: a copy of the context may be so long; how long it is follows from what rounds cost
WINDOW_ROWS = 16

# the deepest chain of the head: each draft of it is a step of its own, and the chance that all land falls
HEAD_DEPTH = 7

# long enough that a pass is not all overhead, short enough that running replies go on in between
PROMPT_PASS_ROWS = 4 * CHUNK_ROWS

# below this many weights a product is over before a second thread has woken up
_ONE_THREAD_PARAMS = 200_000_000

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def window_rows(draft_depth: int | None) -> int:
    """The widest window where `draft_depth` drafts are allowed; None sets no limit but the engine's own."""
    return WINDOW_ROWS if draft_depth is None else 1 + draft_depth


def build_backend(
    checkpoint: Checkpoint,
    *,
    dtype: str,
    session_rows: Sequence[int],
    draft_depth: int | None = None,
    threads: int | None = None,
    measures: Measures | None = None,
) -> TorchBackend:
    """Put the model and its sessions in memory.

    `draft_depth` is the most drafts of a window, None for as many as can be worth it; a model without a draft
    head has copies of the context only. `threads` None means one for a small model, else torch's own choice.
    `measures` None means all of them, with the fastest products that this machine passes the proof of.
    """
    torch.set_num_threads(threads or _default_threads(checkpoint))
    if measures is None:
        # the proof holds for the number of threads it ran with
        measures = Measures(products=choose_path(DTYPES[dtype]))
    model = Model(checkpoint, dtype=DTYPES[dtype], context_rows=max(session_rows), measures=measures)
    widest = window_rows(draft_depth)
    limits = Limits(
        row_limit=ROW_LIMIT,
        window_rows=widest,
        draft_depth=min(HEAD_DEPTH, widest - 1) if model.has_draft_head else 0,
        prompt_grid_rows=CHUNK_ROWS if measures.prompt_grid else 1,
        prompt_pass_rows=PROMPT_PASS_ROWS,
    )
    sessions = Sessions(checkpoint.config, session_rows, DTYPES[dtype])
    return TorchBackend(model, sessions, limits, threads=torch.get_num_threads())


def _default_threads(checkpoint: Checkpoint) -> int:
    params = sum(share.params for share in checkpoint.formats)
    return 1 if params < _ONE_THREAD_PARAMS else torch.get_num_threads()
