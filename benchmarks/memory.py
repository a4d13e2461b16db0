"""Memory that the plan foretells beside what the kernel counts, on the CPU (Linux).

    python benchmarks/memory.py [--directory DIR] [--json FILE]

Each case loads a model in a process of its own and fills every session to its end: with a prompt, then with
as many reply rows as may wait for the draft head, in rounds of the widest windows. Foretold is what the plan
lists, on top of what the process takes after a tiny model ran in it; measured are its resident bytes, and
the most they ever were. Random checkpoints of about half a gigabyte are written to DIR and kept there. Last,
the time that the refusal of the real 6-bit checkpoint takes, from headers alone.
"""

import argparse
import ctypes
import gc
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from hermitcrab.assemble import FoundModel, choose_sessions, find_model, open_backend, read_weights
from hermitcrab.clock import WallClock
from hermitcrab.core.backend import SlotId, Window
from hermitcrab.core.slot_list import rows_of
from hermitcrab.engine.backend import BACKLOG_ROWS, TorchBackend
from hermitcrab.errors import BudgetError
from hermitcrab.models.qwen4_exp.fields import read_json
from hermitcrab.models.qwen4_exp.tiny import Layout, tiny_config, write_hollow, write_tiny
from hermitcrab.sampling.params import Sampling
from hermitcrab.settings import ModelSettings, SessionSettings
from machine import machine

MEDIUM = {
    "vocab_size": 8192,
    "hidden_size": 512,
    "num_hidden_layers": 8,
    "layer_types": [*["linear_attention"] * 3, "full_attention"] * 2,
    "max_position_embeddings": 8192,
    "num_attention_heads": 8,
    "head_dim": 64,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25},
    "linear_key_head_dim": 64,
    "linear_value_head_dim": 64,
    "linear_num_key_heads": 4,
    "linear_num_value_heads": 8,
    "num_experts": 64,
    "num_experts_per_tok": 4,
    "moe_intermediate_size": 256,
    "shared_expert_intermediate_size": 256,
    "indexer_budget": 512,
    "indexer_head_dim": 64,
    "ple_embed_dim": 512,
}
CONTEXT_TOKENS = 2048
LISTED = "1024x2"
FLAGSHIP = Path(__file__).parents[1] / "tests" / "memory" / "flagship" / "config.json"
REFUSED_LIMIT_GB = 141.0


@dataclass(frozen=True)
class Case:
    """One model, how it is stored, and the engine's number format; `model` None is the built-in one."""

    name: str
    model: str | None
    dtype: str


CASES = (
    Case("built-in, 6-bit MLX", None, "float32"),
    Case("built-in, 6-bit MLX", None, "bfloat16"),
    Case("random 234 M, bfloat16 original", "original", "float32"),
    Case("random 234 M, bfloat16 original", "original", "bfloat16"),
    Case("random 234 M, 6-bit MLX", "mlx", "float32"),
    Case("random 234 M, 6-bit MLX", "mlx", "bfloat16"),
)


@dataclass(frozen=True)
class Measured:
    """One case's bytes. `start`: before the load. `filled`: all sessions full; `trimmed`: after the C
    library was asked to give back what it holds free. Peaks are of loading and of all after it.
    """

    name: str
    dtype: str
    start: int
    weights: int
    sessions: int
    buffers: int
    loading: int
    mapped: int
    loaded: int
    loading_peak: int
    filled: int
    trimmed: int
    running_peak: int

    @property
    def foretold(self) -> int:
        """What is resident with all sessions full; the n-gram table keeps its file mapped, all of it here."""
        return self.start + self.weights + self.sessions + self.mapped

    @property
    def foretold_loading_peak(self) -> int:
        """Weights, copies, and pages of the files; sessions are not written to yet."""
        return self.start + self.weights + self.loading + self.mapped

    @property
    def foretold_running_peak(self) -> int:
        """With the buffers of the largest prompt pass or round."""
        return self.foretold + self.buffers


def memory_of(field: str) -> int:
    """A line of the kernel's account of this process, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"the kernel tells no {field}")


def forget_peak() -> None:
    """Let the kernel count the peak anew from here."""
    Path("/proc/self/clear_refs").write_text("5")


def fill(backend: TorchBackend, session_rows: Sequence[int]) -> None:
    """Fill all sessions: a prompt, then rows that wait for the draft head, with nothing drafted."""
    facts = backend.facts()
    width = max(facts.exact_widths)
    for slot, rows in enumerate(session_rows):
        prompt_rows = (rows - BACKLOG_ROWS) // facts.prompt_grid_rows * facts.prompt_grid_rows
        for start in range(0, prompt_rows, facts.prompt_pass_rows):
            count = min(facts.prompt_pass_rows, prompt_rows - start)
            backend.prefill(SlotId(slot), start, [5 + index % 300 for index in range(start, start + count)])
    lengths = [
        (rows - BACKLOG_ROWS) // facts.prompt_grid_rows * facts.prompt_grid_rows for rows in session_rows
    ]
    per_round = facts.row_limit // width
    # a prompt's last row waits too, so one row fewer of the reply may
    for done in range(0, BACKLOG_ROWS - 1, width):
        count = min(width, BACKLOG_ROWS - 1 - done)
        kept = count if count in facts.exact_widths else 1
        for first in range(0, len(lengths), per_round):
            slots = range(first, min(first + per_round, len(lengths)))
            backend.verify([Window(SlotId(slot), lengths[slot], (7,) * kept, Sampling()) for slot in slots])
            for slot in slots:
                backend.keep(SlotId(slot), kept)
                lengths[slot] += kept


def warm_up(dtype: str) -> None:
    """Run a tiny model once: the libraries' own pages and kernels belong to the program, not to a model."""
    with tempfile.TemporaryDirectory() as directory:
        write_tiny(Path(directory))
        settings = ModelSettings(path=directory, dtype=dtype, context_tokens=512, threads=1, load_check=False)
        model = find_model(settings)
        fill(load(model, (512,)), (rows_of(512),))
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


def measure(case: Case) -> Measured:
    """Load and fill the case's model in this process."""
    warm_up(case.dtype)
    model = find_model(
        ModelSettings(
            path=case.model,
            dtype=case.dtype,
            context_tokens=CONTEXT_TOKENS,
            threads=1,
            # its buffers are those of a round, which are measured below
            load_check=False,
        )
    )
    tokens = choose_sessions(model, SessionSettings(slot_contexts=LISTED))
    rows = [rows_of(count) for count in tokens]
    start = memory_of("VmRSS")
    forget_peak()
    backend = load(model, tokens)
    loaded, loading_peak = memory_of("VmRSS"), memory_of("VmHWM")
    forget_peak()
    fill(backend, rows)
    filled, running_peak = memory_of("VmRSS"), memory_of("VmHWM")
    ctypes.CDLL(None).malloc_trim(0)
    foretold = model.memory
    return Measured(
        name=case.name,
        dtype=case.dtype,
        start=start,
        weights=foretold.weight_bytes + foretold.ngram_bytes,
        sessions=sum(foretold.session_bytes(count) for count in rows),
        buffers=foretold.work_bytes(rows),
        loading=foretold.loading_bytes,
        mapped=foretold.mapped_bytes,
        loaded=loaded,
        loading_peak=loading_peak,
        filled=filled,
        trimmed=memory_of("VmRSS"),
        running_peak=running_peak,
    )


def load(model: FoundModel, tokens: Sequence[int]) -> TorchBackend:
    """The backend as `serve` opens it; the checkpoint is let go."""
    return open_backend(model, read_weights(model, lambda *_: None), tokens, lambda *_: None)


def write_models(directory: Path) -> dict[str, Path]:
    """The random checkpoints, written where they are missing."""
    paths = {"original": directory / "original", "mlx": directory / "mlx"}
    config = tiny_config(**MEDIUM)
    if not paths["original"].exists():
        write_tiny(paths["original"], config=config, dtype=torch.bfloat16)
    if not paths["mlx"].exists():
        write_tiny(paths["mlx"], layout=Layout.MLX, config=config, dtype=torch.bfloat16, bits=6)
    return paths


def refusal(directory: Path) -> dict[str, object]:
    """How long the refusal of the real 6-bit checkpoint takes, which is here a file with a hole in it."""
    hollow = directory / "hollow"
    write_hollow(hollow, read_json(FLAGSHIP), bits=6, group_size=32)
    clock = WallClock()
    times: list[float] = []
    message = ""
    for _ in range(3):
        started = clock.now_s()
        try:
            choose_sessions(
                find_model(ModelSettings(path=str(hollow), dtype="bfloat16")),
                SessionSettings(slot_contexts="65536,32768x3,16384x11", load_limit_gb=REFUSED_LIMIT_GB),
            )
        except BudgetError as error:
            message = str(error)
        times.append(round(clock.now_s() - started, 3))
    size = (hollow / "model.safetensors").stat().st_size
    return {"file_bytes": size, "seconds": times, "message": message.splitlines()}


def in_a_process(case: Case) -> Measured:
    """Measure a case in a fresh process."""
    command = [sys.executable, __file__, "--case", json.dumps(asdict(case))]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    return Measured(**json.loads(ended.stdout.splitlines()[-1]))


def table_of(found: Sequence[Measured]) -> Table:
    """Foretold and measured side by side, in MB."""
    table = Table(pad_edge=False)
    table.add_column("case")
    for column in ("start", "weights", "sessions", "foretold", "measured", "off", "trimmed"):
        table.add_column(column, justify="right")
    for column in ("peak loading: foretold", "measured", "peak running: foretold", "measured"):
        table.add_column(column, justify="right")
    for item in found:
        amounts = (item.start, item.weights, item.sessions, item.foretold, item.filled)
        peaks = (
            item.foretold_loading_peak, item.loading_peak, item.foretold_running_peak, item.running_peak,
        )  # fmt: skip
        table.add_row(
            f"{item.name}, {item.dtype}",
            *(f"{count / 1e6:.0f}" for count in amounts),
            f"{100 * (item.filled / item.foretold - 1):+.1f} %",
            f"{item.trimmed / 1e6:.0f}",
            *(f"{count / 1e6:.0f}" for count in peaks),
        )
    return table


def receipt(found: Sequence[Measured], refused: dict[str, object]) -> dict[str, object]:
    """The figures and their conditions."""
    return {
        "command": "python benchmarks/memory.py --json docs/receipts/memory.json",
        "machine": machine(),
        "threads": 1,
        "context_tokens": CONTEXT_TOKENS,
        "load_check": False,
        "slot_contexts": LISTED,
        "cases": [
            asdict(item)
            | {
                "foretold": item.foretold,
                "measured_over_foretold": round(item.filled / item.foretold, 4),
                "trimmed_over_foretold": round(item.trimmed / item.foretold, 4),
                "foretold_loading_peak": item.foretold_loading_peak,
                "foretold_running_peak": item.foretold_running_peak,
            }
            for item in found
        ],
        "refusal": refused,
    }


def main() -> None:
    """Measure every case and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()) / "hermitcrab-memory")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--case", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.case is not None:
        print(json.dumps(asdict(measure(Case(**json.loads(given.case))))))
        return
    paths = write_models(given.directory)
    found = [
        in_a_process(Case(case.name, None if case.model is None else str(paths[case.model]), case.dtype))
        for case in CASES
    ]
    refused = refusal(given.directory)
    console = Console(highlight=False, width=150)
    console.print(table_of(found))
    console.print(f"refused in {refused['seconds']} s")
    if given.json is not None:
        given.json.write_text(json.dumps(receipt(found, refused), indent=1) + "\n")


if __name__ == "__main__":
    main()
