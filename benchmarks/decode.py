"""Decode speed of the built-in model on this CPU, beside transformers' generate on the same weights.

    python benchmarks/decode.py [--tokens 200] [--repeats 3] [--threads 1] [--json FILE]

Every figure is the best of `repeats`, so that a busy moment of the machine does not count. Streams run the
engine in rounds as the server does, without HTTP. One prompt asks for a count, the text that drafts land on
best, one for a story, the text they land on worst.
"""

import argparse
import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import transformers
from rich.console import Console
from rich.table import Table
from tokenizers import Tokenizer

from hermitcrab.assemble import builtin_directory
from hermitcrab.clock import WallClock
from hermitcrab.core.api import Event, Failed, Request, Tokens
from hermitcrab.core.lanes import LaneRules
from hermitcrab.core.loop import HostLoop
from hermitcrab.engine.backend import TorchBackend
from hermitcrab.engine.build import build_backend
from hermitcrab.models.qwen4_exp.checkpoint import Checkpoint, load_checkpoint
from hermitcrab.models.qwen4_exp.names import ngram_table
from hermitcrab.sampling.params import Sampling
from hermitcrab.weights.affine import AffineWeight
from machine import machine

PROMPTS = {
    "count": "Count from 1 to 4000",
    "story": "Tell me a short story about a crab.",
}
TURN = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"


@dataclass(frozen=True)
class Row:
    """One measurement."""

    engine: str
    prompt: str
    streams: int
    drafts: int
    tokens_per_s: float
    accepted: float | None


class Counted:
    """A sink that counts tokens."""

    def __init__(self) -> None:
        self.tokens = 0

    def put(self, event: Event) -> None:
        if isinstance(event, Failed):
            raise event.error
        if isinstance(event, Tokens):
            self.tokens += len(event.ids)


def ours(
    backend: TorchBackend, prompt: list[int], *, name: str, streams: int, drafts: int, tokens: int
) -> Row:
    """Aggregate decode speed of `streams` equal requests, from all first tokens to the last token."""
    loop = HostLoop(backend, LaneRules(draft_depth=drafts), WallClock())
    sinks = [Counted() for _ in range(streams)]
    for index, sink in enumerate(sinks):
        loop.submit(Request(str(index), tuple(prompt), Sampling(), max_new_tokens=tokens), sink)
    while not all(sink.tokens for sink in sinks):
        loop.step()
    before, start = sum(sink.tokens for sink in sinks), time.perf_counter()
    while loop.has_requests:
        loop.step()
    seconds = time.perf_counter() - start
    totals = loop.engine.totals
    speed = (sum(sink.tokens for sink in sinks) - before) / seconds
    accepted = totals.accepted / totals.drafted if totals.drafted else None
    return Row("hermitcrab", name, streams, drafts, speed, accepted)


def reference_model(checkpoint: Checkpoint, directory: Path) -> transformers.PreTrainedModel:
    """transformers' own model with the same weights, dequantized."""
    config = transformers.AutoConfig.from_pretrained(directory)
    model = transformers.AutoModelForCausalLM.from_config(config.get_text_config(), dtype=torch.float32)
    state = {
        name: weight.dequantize(torch.float32) if isinstance(weight, AffineWeight) else weight.float()
        for name, weight in checkpoint.tensors.items()
        if not name.startswith("mtp.")
    }
    assert checkpoint.ngram is not None
    assert checkpoint.config.ngram is not None
    every = torch.arange(checkpoint.ngram.rows)
    state[ngram_table(checkpoint.config.ngram)] = checkpoint.ngram.gather(every, torch.float32)
    named = {name if name.startswith("lm_head") else f"model.{name}": value for name, value in state.items()}
    left = model.load_state_dict(named, strict=False)
    assert not left.unexpected_keys, left.unexpected_keys
    assert all("ple_embedding." in key for key in left.missing_keys), left.missing_keys
    return model.eval()


def theirs(model: transformers.PreTrainedModel, prompt: list[int], *, name: str, tokens: int) -> Row:
    """transformers' greedy generate, one request, prompt pass left out as far as one token's run goes."""
    ids = torch.tensor([prompt])

    def run(count: int) -> float:
        start = time.perf_counter()
        model.generate(ids, max_new_tokens=count, min_new_tokens=count, do_sample=False, use_cache=True)
        return time.perf_counter() - start

    with torch.inference_mode():
        first = run(1)
        return Row("transformers", name, 1, 0, (tokens - 1) / (run(tokens) - first), None)


def best(rows: list[Row]) -> Row:
    return max(rows, key=lambda row: row.tokens_per_s)


def measure(arguments: argparse.Namespace) -> list[Row]:
    directory = builtin_directory()
    checkpoint = load_checkpoint(directory)
    tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    prompts = {name: tokenizer.encode(TURN.format(text)).ids for name, text in PROMPTS.items()}
    backend = build_backend(
        checkpoint, dtype=arguments.dtype, session_rows=[4096] * 8, threads=arguments.threads
    )
    model = reference_model(checkpoint, directory)
    depth = backend.facts().draft_depth
    rows: list[Row] = []
    count = prompts["count"]
    for repeat in range(arguments.repeats + 1):
        step = [theirs(model, count, name="count", tokens=arguments.tokens)]
        for streams in (1, 2, 4, 8):
            step.extend(
                ours(backend, count, name="count", streams=streams, drafts=drafts, tokens=arguments.tokens)
                for drafts in (0, depth)
            )
        step.append(
            ours(backend, prompts["story"], name="story", streams=1, drafts=depth, tokens=arguments.tokens)
        )
        # the first time round warms up
        rows.extend(step if repeat else [])
    keys = dict.fromkeys((row.engine, row.prompt, row.streams, row.drafts) for row in rows)
    return [
        best([row for row in rows if (row.engine, row.prompt, row.streams, row.drafts) == key])
        for key in keys
    ]


def show(rows: list[Row]) -> None:
    base = next(row for row in rows if row.engine == "transformers").tokens_per_s
    table = Table("engine", "prompt", "streams", "drafts", "tok/s", "x transformers", "drafts accepted")
    for row in rows:
        accepted = "" if row.accepted is None else f"{100 * row.accepted:.0f} %"
        table.add_row(
            row.engine, row.prompt, str(row.streams), str(row.drafts), f"{row.tokens_per_s:.0f}",
            f"{row.tokens_per_s / base:.2f}", accepted,
        )  # fmt: skip
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tokens", type=int, default=200, help="reply tokens of each request")
    parser.add_argument(
        "--repeats", type=int, default=3, help="times each figure is measured; the best counts"
    )
    parser.add_argument("--threads", type=int, default=1, help="torch threads, for both engines")
    parser.add_argument(
        "--dtype", choices=("float32", "bfloat16"), default="float32", help="our engine's dtype"
    )
    parser.add_argument("--json", type=Path, help="write the figures and their conditions here")
    arguments = parser.parse_args()
    transformers.logging.set_verbosity_error()
    load_before = os.getloadavg()[0]
    rows = measure(arguments)
    show(rows)
    if arguments.json is not None:
        conditions = {
            **machine(),
            "load_average_before": load_before,
            "transformers": transformers.__version__,
            **{key: value for key, value in vars(arguments).items() if key != "json"},
        }
        receipt = {"conditions": conditions, "rows": [asdict(row) for row in rows]}
        arguments.json.write_text(json.dumps(receipt, indent=1) + "\n")


if __name__ == "__main__":
    main()
