"""Train in pieces of minutes: start or resume, stop at a wall-clock limit, leave the weights in parts.

python -m training.trainer --tokenizer FOLDER --out FOLDER --steps N --seconds S [--resume FOLDER]
"""

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from training.checkpoint import load_weights, save_weights
from training.exported import is_exported, load_exported
from training.loader import Sequences, batches
from training.nets.model import Batch, Losses, Model, Pass, Pieces, Plan, pieces
from training.nets.start import fresh_model
from training.optim import Optimizer
from training.schedule import Schedule, Step
from training.shape import BUILTIN
from training.weights import FlatWeights

SHORT_TOKENS, LONG_TOKENS = 2_048, 20_480
SHORT_SEQUENCES, LONG_SEQUENCES = 30, 3
CHAIN_SEQUENCES = 4
KL_ROWS = 64
DRAFT_WEIGHTS = (0.3, 0.1, 0.1)
BALANCE_WEIGHT, Z_WEIGHT = 0.01, 1e-4
LOG_EVERY_STEPS = 20


@dataclass(frozen=True, slots=True)
class Run:
    """What a piece of training was asked to do."""

    tokenizer: Path
    out: Path
    steps: int
    seconds: float
    resume: Path | None
    peak: float
    seed: int
    workers: int
    scale: int
    compiled: bool
    save_every_s: float


def parse() -> Run:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, required=True, help="steps of this piece's schedule")
    parser.add_argument(
        "--seconds", type=float, default=1e9, help="the schedule ends here even if steps are left"
    )
    parser.add_argument("--resume", type=Path, help="weights of an earlier piece, or an exported model")
    parser.add_argument("--peak", type=float, default=3e-3, help="the highest learning rate")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=5, help="data processes for each sequence length")
    parser.add_argument(
        "--scale", type=int, default=1, help="divide sequences and lengths, for trying on a CPU"
    )
    parser.add_argument("--no-compile", dest="compiled", action="store_false")
    parser.add_argument("--save-every-s", type=float, default=120.0)
    return Run(**vars(parser.parse_args()))


def total_loss(losses: Losses) -> Tensor:
    """The sum that is minimised."""
    loss = losses.token[0] / losses.token[1].clamp_min(1)
    for weight, draft in zip(DRAFT_WEIGHTS, losses.drafts, strict=False):
        loss = loss + weight * draft[0] / draft[1].clamp_min(1)
    return loss + BALANCE_WEIGHT * losses.router[0] + Z_WEIGHT * losses.router[1] + losses.indexer


def start_from(model: Model, folder: Path) -> int:
    """Fill the model from an earlier piece or an export; returns the step it is from, 0 for an export."""
    if not is_exported(folder):
        return load_weights(model, folder)
    load_exported(model, folder)
    return 0


class Trainer:
    """Owns the model, its weights and their optimizer for one piece of training."""

    def __init__(self, run: Run, device: torch.device) -> None:
        self.run, self.device = run, device
        self.model: Model = fresh_model(BUILTIN, run.seed).to(torch.bfloat16)
        self.started_at_step = start_from(self.model, run.resume) if run.resume else 0
        self.model.to(device)
        self.weights = FlatWeights(self.model)
        self.optimizer = Optimizer(self.weights)
        self.schedule = Schedule(run.steps, run.peak, resumes=run.resume is not None)
        self.pieces: Pieces = pieces(compiled=run.compiled)
        self.rows = torch.Generator(device="cpu").manual_seed(run.seed)
        self.tokens = 0
        self.log: list[dict[str, float]] = []

    def source(self, sequences: int, length_tokens: int) -> Iterator[Batch]:
        """Batches of one length; a resumed piece sees new ones."""
        seed = self.run.seed + 7919 * (self.started_at_step + 1) + length_tokens
        scale = self.run.scale
        data = Sequences(
            self.run.tokenizer,
            sequences=max(1, sequences // scale),
            length_tokens=length_tokens // scale,
            seed=seed,
        )
        return batches(data, self.device, workers=self.run.workers)

    def plan(self, step: Step, length_tokens: int) -> Plan:
        """The pass that a step makes; it samples the rows that teach the indexer."""
        rows = torch.randint(4, length_tokens, (KL_ROWS,), generator=self.rows).to(self.device)
        chains = CHAIN_SEQUENCES // self.run.scale if step.chains and not step.is_long else 0
        return Plan(step.budget_blocks, rows, chains)

    def one_step(self, step: Step, batch: Batch) -> Losses:
        """Forward, backward, update."""
        losses = Pass(self.model, self.pieces, batch, self.plan(step, batch.positions.shape[1])).losses()
        total_loss(losses).backward()
        self.weights.gather()
        self.optimizer.step(step.rate)
        self.weights.publish(rounds=step.rounds)
        self.tokens += batch.positions.numel()
        return losses

    def record(self, number: int, step: Step, losses: Losses, elapsed_s: float) -> None:
        """Log one step's figures, and print them."""
        triples = [losses.token, *losses.drafts]
        entry = {
            "step": number,
            "seconds": round(elapsed_s, 1),
            "tokens": self.tokens,
            "rate": round(step.rate, 6),
        }
        entry |= {"long": int(step.is_long), "budget": (step.budget_blocks or 0) * 4}
        for depth, (loss, count, right) in enumerate(triple.tolist() for triple in triples):
            entry |= {
                f"loss_{depth}": round(loss / max(count, 1), 5),
                f"right_{depth}": round(right / max(count, 1), 5),
            }
        entry |= {"indexer": round(losses.indexer.item(), 4), "balance": round(losses.router[0].item(), 3)}
        if self.device.type == "cuda":
            entry["memory_gib"] = round(torch.cuda.max_memory_allocated() / 2**30, 1)
        self.log.append(entry)
        print(json.dumps(entry), flush=True)

    def save(self, number: int) -> None:
        """Leave the weights and the log."""
        names = {id(parameter): name for name, parameter in self.model.named_parameters()}
        weights = dict(self.model.named_buffers())
        weights |= {
            names[id(parameter)]: master
            for parameter, master in zip(self.weights.parameters, self.weights.masters, strict=True)
        }
        save_weights(weights, self.run.out, step=self.started_at_step + number)
        (self.run.out / "log.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in self.log))

    def train(self) -> None:
        """Run the schedule until its end or the wall-clock limit."""
        short, long = self.source(SHORT_SEQUENCES, SHORT_TOKENS), self.source(LONG_SEQUENCES, LONG_TOKENS)
        started_s = saved_s = time.monotonic()
        number = 0
        for number in range(self.run.steps):
            spent = (time.monotonic() - started_s) / self.run.seconds
            step = self.schedule.at(number, spent)
            losses = self.one_step(step, next(long if step.is_long else short))
            now_s = time.monotonic()
            if number < 3 or number % LOG_EVERY_STEPS in (0, 7) or number == self.run.steps - 1:
                self.record(number, step, losses, now_s - started_s)
            if now_s - started_s > self.run.seconds:
                break
            if now_s - saved_s > self.run.save_every_s:
                self.save(number)
                saved_s = now_s
        self.save(number + 1)


def main() -> None:
    run = parse()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_float32_matmul_precision("high")
    torch.manual_seed(run.seed)
    if device.type == "cpu":
        torch.set_num_threads(1)
    Trainer(run, device).train()


if __name__ == "__main__":
    main()
