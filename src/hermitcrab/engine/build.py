"""A checkpoint and a list of session sizes -> a backend that is ready to run; and its bytes, before that."""

from collections.abc import Callable, Sequence

import torch

from hermitcrab.engine.backend import Limits, TorchBackend
from hermitcrab.kernels.deltanet import CHUNK_ROWS
from hermitcrab.kernels.linear import choose_path
from hermitcrab.kernels.measures import Measures
from hermitcrab.models.qwen4_exp.checkpoint import Checkpoint, CheckpointInfo
from hermitcrab.models.qwen4_exp.config import ModelConfig
from hermitcrab.models.qwen4_exp.model import Model
from hermitcrab.models.qwen4_exp.state import Sessions, session_bytes
from hermitcrab.weights.table import RESIDENT_BYTES

# rows of one round: as many sessions may exist, since each needs a row of its own
ROW_LIMIT = 64

# deeper chains of the head land too rarely to pay for their steps
DEFAULT_DRAFT_DEPTH = 3

# long enough that a pass is not all overhead, short enough that running replies go on in between
PROMPT_PASS_ROWS = 4 * CHUNK_ROWS

# below this many weights a product is over before a second thread has woken up
_ONE_THREAD_PARAMS = 200_000_000

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def weight_bytes(info: CheckpointInfo, dtype: str) -> int:
    """Bytes that a model's weights will take; an n-gram table too large to hold stays in its file."""
    resident = (info.body_params + info.mtp_params) * _DTYPES[dtype].itemsize
    table_bytes = info.ngram_params * 4
    return resident + (table_bytes if table_bytes <= RESIDENT_BYTES else 0)


def session_cost(config: ModelConfig, dtype: str) -> Callable[[int], int]:
    """Bytes of a session by its rows."""
    return lambda rows: session_bytes(config, rows, _DTYPES[dtype])


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

    `draft_depth` None means as deep as is worth it; without a draft head it is 0. `threads` None means one
    for a small model, else torch's own choice. `measures` None means all of them, with the fastest products
    that this machine passes the proof of.
    """
    torch.set_num_threads(threads or _default_threads(checkpoint))
    if measures is None:
        # the proof holds for the number of threads it ran with
        measures = Measures(products=choose_path(_DTYPES[dtype]))
    model = Model(checkpoint, dtype=_DTYPES[dtype], context_rows=max(session_rows), measures=measures)
    depth = DEFAULT_DRAFT_DEPTH if draft_depth is None else draft_depth
    depth = depth if model.has_draft_head else 0
    limits = Limits(
        row_limit=ROW_LIMIT,
        window_rows=1 + depth,
        draft_depth=depth,
        prompt_grid_rows=CHUNK_ROWS if measures.prompt_grid else 1,
        prompt_pass_rows=PROMPT_PASS_ROWS,
    )
    sessions = Sessions(checkpoint.config, session_rows, _DTYPES[dtype])
    return TorchBackend(model, sessions, limits, threads=torch.get_num_threads())


def _default_threads(checkpoint: Checkpoint) -> int:
    params = sum(share.params for share in checkpoint.formats)
    return 1 if params < _ONE_THREAD_PARAMS else torch.get_num_threads()
