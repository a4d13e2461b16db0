"""What a checkpoint does when Hermitcrab serves it: counts, tasks, drafts that stand, and held-out loss.

python -m training.evaluate [FOLDER] [--out REPORT.json]
"""

import argparse
import hashlib
import json
import platform
import random
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from hermitcrab.assemble import builtin_directory
from hermitcrab.models.qwen4_exp.checkpoint import Checkpoint
from hermitcrab.models.registry import family_of
from training.data import counts
from training.data.counts import Count, close_count, long_count, phrase, random_count
from training.data.documents import Document, Encoder, Talk, user
from training.data.mixture import Mixture
from training.heldout import Judge
from training.replies import Ask, DraftCount, Reply, replies

# never a seed of a training run, which are small
HELD_OUT_SEED = 987_654_321
TASK_KINDS = ("code", "own", "copy", "tool", "chat", "trivia")
LOSS_KINDS = ("count", *TASK_KINDS)
MOST_NUMBERS, FEW_NUMBERS = 120, 8
LONG_ROWS, SHORT_ROWS = 20_480, 2_048
SESSIONS = 16
# a reply that goes on for so long past the right one does not end by itself
SLACK_TOKENS = 32
SHOWN_FAILURES = 5


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of each kind is asked."""

    long: int
    short: int
    tasks: int
    documents: int


class Examiner:
    """Asks one checkpoint and compares its replies with the right ones, token by token."""

    def __init__(self, checkpoint: Checkpoint, encoder: Encoder) -> None:
        self._checkpoint, self._encoder = checkpoint, encoder

    def counts(self, found: Sequence[Count], rng: random.Random | None, *, rows: int) -> dict[str, object]:
        """Counts without thinking; asked in many ways with an rng, plainly without."""
        asks = []
        for one in found:
            words = phrase(rng, one) if rng else f"Count from {one.start} to {one.end}"
            if not rng and one.step != 1:
                words += f" by {abs(one.step)}"
            asks.append(self._ask(Talk([user(words)]), self._encoder.digits(one.text()).tolist()))
        return self._figures(asks, rows=rows)

    def tasks(self, kind: str, count: int) -> dict[str, object]:
        """First replies of new talks of a kind."""
        mixture = Mixture(self._encoder, HELD_OUT_SEED)
        asks: list[Ask] = []
        while len(asks) < count:
            talk = mixture.talk(kind)
            first = next(i for i, message in enumerate(talk.messages) if message["role"] == "assistant")
            whole = self._encoder.talk(Talk(talk.messages[: first + 1], talk.tools, talk.thinks, talk.effort))
            if len(whole.ids) + 2 * SLACK_TOKENS <= SHORT_ROWS:
                answer = whole.ids[np.flatnonzero(whole.weights)].tolist()[:-1]
                asks.append(
                    self._ask(Talk(talk.messages[:first], talk.tools, talk.thinks, talk.effort), answer)
                )
        return self._figures(asks, rows=SHORT_ROWS)

    def _ask(self, talk: Talk, answer: list[int]) -> Ask:
        prompt = tuple(self._encoder.prompt(talk).tolist())
        shown = str(talk.messages[-1]["content"])[:100]
        return Ask(prompt, tuple(answer), len(answer) + 1 + SLACK_TOKENS, shown)

    def _figures(self, asks: Sequence[Ask], *, rows: int) -> dict[str, object]:
        started_s = time.monotonic()
        sessions = min(SESSIONS, len(asks))
        found, depths = replies(
            self._checkpoint, asks, eos_ids=self._checkpoint.eos_ids, sessions=sessions, session_rows=rows
        )
        pairs = list(zip(asks, found, strict=True))
        wrong = [self._failure(ask, reply) for ask, reply in pairs if not is_exact(ask, reply)]
        return {
            "asked": len(asks),
            "exact": len(asks) - len(wrong),
            "ended_by_themselves": sum(reply.ended_by_itself for reply in found),
            "reply_tokens": sum(reply.reply_tokens for reply in found),
            "tokens_a_round": ratio(
                sum(reply.reply_tokens for reply in found), sum(reply.rounds for reply in found)
            ),
            "drafts": draft_figures(depths),
            "failures": wrong[:SHOWN_FAILURES],
            "seconds": round(time.monotonic() - started_s, 1),
        }

    def _failure(self, ask: Ask, reply: Reply) -> dict[str, object]:
        at = next(
            (i for i, (said, right) in enumerate(zip(reply.ids, ask.answer, strict=False)) if said != right),
            min(len(reply.ids), len(ask.answer)),
        )
        near = slice(max(0, at - 20), at + 20)
        decode = self._encoder.tokenizer.decode
        return {
            "ask": ask.shown,
            "wrong_at_token": at,
            "said": decode(list(reply.ids[near]), skip_special_tokens=False),
            "right": decode(list(ask.answer[near]), skip_special_tokens=False),
        }


def is_exact(ask: Ask, reply: Reply) -> bool:
    """True if the reply is the right one and ended where that ends."""
    return reply.ended_by_itself and reply.ids == ask.answer


def ratio(part: float, whole: float) -> float | None:
    """Their quotient, None of nothing."""
    return round(part / whole, 4) if whole else None


def draft_figures(depths: Sequence[DraftCount]) -> dict[str, object]:
    """Shares of drafts that stood, in all and by depth; `given_earlier` of those whose earlier ones did."""
    figures: dict[str, object] = {
        "share": ratio(sum(depth.stood for depth in depths), sum(depth.drafted for depth in depths))
    }
    for number, depth in enumerate(depths, start=1):
        figures[f"depth_{number}"] = asdict(depth) | {
            "share": ratio(depth.stood, depth.drafted),
            "given_earlier": ratio(depth.stood, depth.reached),
        }
    return figures


def held_out(mixture: Mixture, kind: str) -> Document:
    """A document of the kind that has every position up to its end."""
    if kind == "count":
        return counts.whole(mixture.rng, mixture.encoder, random_count(mixture.rng, MOST_NUMBERS))
    return mixture.encoder.talk(mixture.talk(kind))


def losses(checkpoint: Checkpoint, encoder: Encoder, documents: int) -> dict[str, object]:
    """Loss of each kind, over as many documents of it."""
    judge = Judge(checkpoint, longest_tokens=SHORT_ROWS)
    figures: dict[str, object] = {}
    for kind in LOSS_KINDS:
        mixture = Mixture(encoder, HELD_OUT_SEED + 1)
        found: list[Document] = []
        while len(found) < documents:
            document = held_out(mixture, kind)
            if len(document.ids) <= SHORT_ROWS:
                found.append(document)
        figures[kind] = asdict(judge.judge(found))
    return figures


def long_counts(count: int) -> list[Count]:
    """The count to 4000, then others about as long, the same each time."""
    rng = random.Random(HELD_OUT_SEED)
    return ([Count(1, 4000, 1)] + [long_count(rng, rng.randint(4_000, 20_000)) for _ in range(count)])[:count]


def by_step(draw: Callable[[], Count], count: int) -> dict[str, list[Count]]:
    """Drawn counts, as many of each kind: by one, by a step onto their end, and by a step past it."""
    groups: dict[str, list[Count]] = {"by_one": [], "by_step_onto_end": [], "by_step_past_end": []}
    while min(map(len, groups.values())) < count:
        one = draw()
        ends = "onto" if one.numbers()[-1] == one.end else "past"
        groups["by_one" if abs(one.step) == 1 else f"by_step_{ends}_end"].append(one)
    return {name: group[:count] for name, group in groups.items()}


def short_counts(rng: random.Random, count: int) -> dict[str, list[Count]]:
    """Random counts of up to 120 numbers, then those of few by any start and step."""
    groups = by_step(lambda: random_count(rng, MOST_NUMBERS), count)
    few = by_step(lambda: close_count(rng, FEW_NUMBERS), count)
    return groups | {f"few_{name}": group for name, group in few.items()}


def report(checkpoint: Checkpoint, encoder: Encoder, sizes: Sizes) -> dict[str, object]:
    """Every figure of the evaluation, printed as it is found."""
    examiner, rng = Examiner(checkpoint, encoder), random.Random(HELD_OUT_SEED)
    found: dict[str, object] = {}

    def note(name: str, figures: dict[str, object]) -> None:
        found[name] = figures
        print(name, json.dumps(figures), flush=True)

    note("losses", losses(checkpoint, encoder, sizes.documents))
    for kind in TASK_KINDS:
        note(kind, examiner.tasks(kind, sizes.tasks))
    for name, group in short_counts(rng, sizes.short).items():
        note(name, examiner.counts(group, rng, rows=SHORT_ROWS))
    for place, one in enumerate(long_counts(sizes.long)):
        name = "count_1_to_4000" if place == 0 else f"long_count_{place}"
        asked = {"start": one.start, "end": one.end, "step": one.step}
        note(name, asked | examiner.counts([one], None, rows=LONG_ROWS))
    return found


def cpu_name() -> str:
    """The processor's model name."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    named = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.machine()


def git(*arguments: str) -> str:
    """What git says about the recipe's own repository; nothing if it is in none."""
    command = ["git", "-C", str(Path(__file__).parent), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def circumstances(folder: Path) -> dict[str, object]:
    """What was run, on what, with which weights."""
    return {
        "command": " ".join(["python -m training.evaluate", *sys.argv[1:]]),
        "commit": git("rev-parse", "HEAD") or None,
        "changed_files": git("status", "--porcelain", "--", ":/training", ":/src").splitlines(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "dtype": "float32",
        "threads": torch.get_num_threads(),
        "machine": cpu_name(),
        "checkpoint_sha256": hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=builtin_directory(), help="an exported model")
    parser.add_argument("--out", type=Path, help="where the report goes, as JSON")
    parser.add_argument("--long", type=int, default=3, help="long counts, the one to 4000 first")
    parser.add_argument(
        "--short", type=int, default=64, help="counts of up to 120 and of up to 8 numbers, of each kind"
    )
    parser.add_argument("--tasks", type=int, default=64, help="talks of each kind")
    parser.add_argument("--documents", type=int, default=32, help="held-out documents of each kind")
    given = parser.parse_args()
    torch.set_num_threads(1)
    started_s = time.monotonic()
    sizes = Sizes(given.long, given.short, given.tasks, given.documents)
    found = report(family_of(given.folder).load(given.folder, None), Encoder(given.folder), sizes)
    whole = circumstances(given.folder) | {
        "sizes": asdict(sizes),
        "held_out_seed": HELD_OUT_SEED,
        "seconds": round(time.monotonic() - started_s, 1),
        "figures": found,
    }
    if given.out:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps(whole, indent=1) + "\n")


if __name__ == "__main__":
    main()
