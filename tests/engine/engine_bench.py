"""The real backend over sessions that a test can see: their memory, parts of a state, logits drawn from."""

from collections.abc import Sequence

import torch
from torch import Tensor

from hermitcrab.core.backend import DraftRequest, SlotId, Window
from hermitcrab.engine.backend import Limits, TorchBackend
from hermitcrab.kernels.deltanet import CHUNK_ROWS
from hermitcrab.kernels.linear import choose_path
from hermitcrab.kernels.measures import Measures
from hermitcrab.models.qwen4_exp.checkpoint import Checkpoint
from hermitcrab.models.qwen4_exp.model import Model
from hermitcrab.models.qwen4_exp.state import Sessions
from hermitcrab.sampling.params import Sampling

WINDOW_ROWS, DRAFT_DEPTH, ROW_LIMIT = 4, 3, 16

# how the draft head's parts of a state are named
DRAFT_HEAD = "the draft head"

# longer than any session of these tests
CONTEXT_ROWS = 320


def build_model(checkpoint: Checkpoint, dtype: torch.dtype) -> Model:
    torch.set_num_threads(1)
    measures = Measures(products=choose_path(dtype))
    return Model(checkpoint, dtype=dtype, context_rows=CONTEXT_ROWS, measures=measures)


class Bench:
    """A backend whose cache memory first holds NaN: whatever reads a row that was never written shows it."""

    def __init__(self, model: Model, session_rows: Sequence[int]) -> None:
        self.sessions = Sessions(model.config, session_rows, model.dtype)
        for arena in (self.sessions.keys, self.sessions.values, self.sessions.raw, self.sessions.pooled):
            arena.fill_(torch.nan)
        self._block_tokens = model.config.indexer.block_tokens
        depth = DRAFT_DEPTH if model.has_draft_head else 0
        limits = Limits(
            row_limit=ROW_LIMIT,
            window_rows=WINDOW_ROWS,
            draft_depth=depth,
            prompt_grid_rows=CHUNK_ROWS,
            prompt_pass_rows=4 * CHUNK_ROWS,
        )
        self.backend = TorchBackend(model, self.sessions, limits, threads=1)
        self.logits: list[Tensor] = []
        self.backend.watch_logits(lambda logits: self.logits.extend(logits.clone()))

    def state(self, slot: int, *, rows: int, head_rows: int) -> dict[str, Tensor]:
        """Every part of a session of `rows` settled rows, of which the draft head absorbed `head_rows`."""
        sessions = self.sessions
        base, blocks_base = sessions.bases[slot], sessions.block_bases[slot]
        parts: dict[str, Tensor] = {
            "DeltaNet states": sessions.states[:, slot],
            "convolution tails": sessions.conv_tails[:, slot],
            "n-gram tails": sessions.ngram_tails[slot],
            "n-gram history": torch.tensor(sessions.histories[slot]),
        }
        last = sessions.raw.shape[0] - 1
        for layer in range(last + 1):
            # the draft head's layer is the last
            where, count = (DRAFT_HEAD, head_rows) if layer == last else (f"attention layer {layer}", rows)
            blocks = count // self._block_tokens
            parts[f"keys of {where}"] = sessions.keys[layer, :, base : base + count]
            parts[f"values of {where}"] = sessions.values[layer, :, base : base + count]
            parts[f"indexer keys of {where}"] = sessions.raw[layer, base : base + count]
            parts[f"pooled blocks of {where}"] = sessions.pooled[layer, blocks_base : blocks_base + blocks]
        return {name: part.clone() for name, part in parts.items()}


class Alone:
    """A text run alone: its prompt in one pass, its reply row by row, undrafted, in a fresh session.

    `drawn` and `logits` are those after each row from the prompt's last on. `text` ends with a pending token,
    which is not run. `state` has what the draft head gave of its first `head_rows` rows, None: of all.
    """

    def __init__(
        self,
        model: Model,
        text: Sequence[int],
        prompt_rows: int,
        sampling: Sampling,
        *,
        head_rows: int | None = None,
    ) -> None:
        bench = Bench(model, [CONTEXT_ROWS])
        backend, slot = bench.backend, SlotId(0)
        backend.prefill(slot, 0, text[:prompt_rows])
        self.drawn = [backend.draw_first(slot, prompt_rows, sampling)]
        backend.draft([DraftRequest(slot, prompt_rows - 1, (text[prompt_rows],), 0, sampling)])
        for position in range(prompt_rows, len(text) - 1):
            (verified,) = backend.verify([Window(slot, position, (text[position],), sampling)])
            self.drawn.extend(verified.drawn)
            backend.keep(slot, 1)
            backend.draft([DraftRequest(slot, position, (text[position + 1],), 0, sampling)])
        self.logits = bench.logits
        rows = len(text) - 1
        self.state = bench.state(0, rows=rows, head_rows=rows if head_rows is None else head_rows)


def differing(state: dict[str, Tensor], expected: dict[str, Tensor]) -> list[str]:
    """The parts of a state that differ in any bit."""
    assert state.keys() == expected.keys()
    return [name for name, part in expected.items() if not torch.equal(state[name], part)]
