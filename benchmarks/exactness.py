"""What exactness costs: rounds of the built-in model with every measure in force, beside plain operations.

    python benchmarks/exactness.py [--rounds 20] [--repeats 8] [--threads 1] [--dtype float32] [--json FILE]

Two engines hold the same weights, one as it is served, one with torch's own products and activations, and
with attention over all keys at once. They take turns; a figure is the ratio of the medians. Both run windows
row by row: the plain form of that measure computes more, not less.
"""

import argparse
import json
import os
import statistics
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from hermitcrab.assemble import builtin_directory
from hermitcrab.core.backend import SlotId, Window
from hermitcrab.engine.backend import TorchBackend
from hermitcrab.engine.build import build_backend
from hermitcrab.kernels.measures import Measures, ProductPath
from hermitcrab.models.qwen4_exp.checkpoint import Checkpoint, load_checkpoint
from hermitcrab.sampling.params import Sampling
from machine import machine

PLAIN = Measures(products=ProductPath.PLAIN, activations=False, attention=False)
PROMPT_ROWS = 256
# pending rows only, and a window of three drafts
WINDOW_ROWS = (1, 4)
STREAMS = (1, 2, 4, 8)


@dataclass(frozen=True)
class Row:
    """Medians of one shape of round."""

    streams: int
    window_rows: int
    exact_ms: float
    plain_ms: float
    ratio: float


def engine(checkpoint: Checkpoint, measures: Measures | None, arguments: argparse.Namespace) -> TorchBackend:
    rounds = arguments.rounds * (arguments.repeats + 1)
    return build_backend(
        checkpoint,
        dtype=arguments.dtype,
        session_rows=[PROMPT_ROWS + rounds + max(WINDOW_ROWS)] * max(STREAMS),
        threads=arguments.threads,
        measures=measures,
    )


def fill(backend: TorchBackend, streams: int) -> None:
    """Fresh sessions with different prompts of equal length."""
    for slot in range(streams):
        backend.release(SlotId(slot))
        backend.prefill(SlotId(slot), 0, [5 + slot] * PROMPT_ROWS)


def round_ms(backend: TorchBackend, position: int, *, streams: int, window_rows: int) -> float:
    """Milliseconds of one round: a forward, its draws and the keeps; one row of each window is kept."""
    windows = [
        Window(slot=SlotId(slot), position=position, tokens=(7 + slot,) * window_rows, sampling=Sampling())
        for slot in range(streams)
    ]
    start = time.perf_counter()
    backend.verify(windows)
    for slot in range(streams):
        backend.keep(SlotId(slot), 1)
    return (time.perf_counter() - start) * 1e3


def measure(arguments: argparse.Namespace) -> list[Row]:
    checkpoint = load_checkpoint(builtin_directory())
    engines = {"exact": engine(checkpoint, None, arguments), "plain": engine(checkpoint, PLAIN, arguments)}
    found: list[Row] = []
    for streams, window_rows in ((streams, rows) for streams in STREAMS for rows in WINDOW_ROWS):
        taken: dict[str, list[float]] = {name: [] for name in engines}
        for backend in engines.values():
            fill(backend, streams)
        # turns of `rounds` rounds each, so that both meet the same busy moments; the first turn warms up
        for turn in range(arguments.repeats + 1):
            for name, backend in engines.items():
                first = PROMPT_ROWS + turn * arguments.rounds
                spent = [
                    round_ms(backend, position, streams=streams, window_rows=window_rows)
                    for position in range(first, first + arguments.rounds)
                ]
                taken[name].extend(spent if turn else [])
        exact_ms, plain_ms = statistics.median(taken["exact"]), statistics.median(taken["plain"])
        found.append(Row(streams, window_rows, exact_ms, plain_ms, exact_ms / plain_ms))
    return found


def show(rows: list[Row]) -> None:
    table = Table("streams", "window rows", "exact ms", "plain ms", "exact / plain")
    for row in rows:
        table.add_row(
            str(row.streams),
            str(row.window_rows),
            f"{row.exact_ms:.2f}",
            f"{row.plain_ms:.2f}",
            f"{row.ratio:.2f}",
        )
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20, help="rounds of a turn")
    parser.add_argument("--repeats", type=int, default=8, help="turns of each engine")
    parser.add_argument("--threads", type=int, default=1, help="torch threads")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--json", type=Path, help="write the figures and their conditions here")
    arguments = parser.parse_args()
    load_before = os.getloadavg()[0]
    rows = measure(arguments)
    show(rows)
    if arguments.json is not None:
        conditions = machine() | {"load_average_before": load_before}
        conditions |= {key: value for key, value in vars(arguments).items() if key != "json"}
        receipt = {"conditions": conditions, "rows": [asdict(row) for row in rows]}
        arguments.json.write_text(json.dumps(receipt, indent=1) + "\n")


if __name__ == "__main__":
    main()
