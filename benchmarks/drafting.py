"""What drafting brings on the built-in model: the same requests without drafts and with them, side by side.

    python benchmarks/drafting.py [--tokens 300] [--repeats 3] [--threads 1] [--processor-time] [--json FILE]

Runs the lanes in this process, without HTTP, in two host loops over one engine: one with drafting off, one as
a server has it. Streams are measured while all of them run, as under steady load. Repeats alternate between
off and on, so that a busy moment of the machine meets both; a ratio is the median of on / off over them.
What the second loop has learned of costs it keeps, as servers do. Counts and code edits are greedy; stories
are sampled at temperature 1 and go on past their end, so that they are long and drafts land badly. Drafted
replies must equal plain ones.

On a machine that others use as well wall times say little. With --processor-time every time is this process's
processor time, for the figures and for the costs that the lanes learn; it must run on one thread then.
"""

import argparse
import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table
from tokenizers import Tokenizer

from hermitcrab.assemble import builtin_directory
from hermitcrab.clock import Clock, WallClock
from hermitcrab.core.api import Event, Failed, Finished, Request, Tokens
from hermitcrab.core.lanes import LaneRules
from hermitcrab.core.loop import HostLoop
from hermitcrab.engine.build import build_backend
from hermitcrab.models.qwen4_exp.checkpoint import load_checkpoint
from hermitcrab.sampling.params import Sampling
from machine import machine

STORY = "Tell me a short story about"

CODE = """\
def start_user(hotel_fish):
    # line start count handle
    music = {"copy": hotel_fish, "space": 20}
    music.append(hotel_fish)
    return music

def run_summer(music, hotel_fish):
    if hotel_fish == music:
        return music
    while hotel_fish < 5741:
        hotel_fish += 9
    # fill last
    return music

def fill_rocket(hotel_fish, music):
    assert music != music
    print("run map trim", hotel_fish)
    music = [3431, 51.29, 18]
    print("old green sharp", hotel_fish)
    return music"""

PROMPTS = {
    "count": ["Count from 1 to 4000"],
    "code edit": [f"Rename music to river in this code:\n\n```python\n{CODE}\n```"],
    "story": [f"{STORY} a crab."],
}

CROWDS = {
    "8 counts": [f"Count from {start} to 4000" for start in range(1, 9)],
    "8 stories": [f"{STORY} a {word}." for word in (
        "crab", "fox", "river", "ship", "tree", "king", "cat", "bird")],
    "8 mixed": [
        *(f"Count from {start} to 4000" for start in (10, 200, 3000)),
        *(f"{STORY} a {word}." for word in ("crab", "ship", "cat")),
        *(f"Rename music to {name} in this code:\n\n```python\n{CODE}\n```" for name in ("river", "tower")),
    ],
}  # fmt: skip

TURN = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
END = "<|im_end|>"


@dataclass(frozen=True)
class Run:
    """One set of requests, once: tokens and seconds while all ran, and what was drafted then."""

    tokens: int
    seconds: float
    rounds: int
    drafted: int
    accepted: int
    copied: int
    copies_accepted: int
    replies: tuple[tuple[int, ...], ...]

    @property
    def tokens_per_s(self) -> float:
        return self.tokens / self.seconds


@dataclass(frozen=True)
class Row:
    """One set of requests, off and on: medians over the repeats."""

    requests: str
    streams: int
    off_tokens_per_s: float
    on_tokens_per_s: float
    ratio: float
    lowest_ratio: float
    highest_ratio: float
    tokens_a_round: float
    head_drafts: int
    head_landed: int
    copies: int
    copies_landed: int
    equal: bool


class Reply:
    """A sink that keeps the tokens."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.has_ended = False

    def put(self, event: Event) -> None:
        if isinstance(event, Failed):
            raise event.error
        if isinstance(event, Tokens):
            self.tokens.extend(event.ids)
        self.has_ended = self.has_ended or isinstance(event, Finished)


def ask(index: int, words: str, tokenizer: Tokenizer, *, tokens: int) -> Request:
    """The request of one user's turn."""
    is_story = words.startswith(STORY)
    return Request(
        str(index),
        tuple(tokenizer.encode(TURN.format(words)).ids),
        Sampling(temperature=1.0, seed=index) if is_story else Sampling(),
        max_new_tokens=tokens,
        eos_ids=frozenset() if is_story else frozenset({tokenizer.token_to_id(END)}),
    )


class ProcessorClock(WallClock):
    """Seconds that this process has computed."""

    def now_s(self) -> float:
        return time.process_time()


def run(loop: HostLoop, requests: Sequence[Request], clock: Clock) -> Run:
    """All requests at once; measured from all first tokens to the first end."""
    sinks = [Reply() for _ in requests]
    for request, sink in zip(requests, sinks, strict=True):
        loop.submit(request, sink)
    while not all(sink.tokens for sink in sinks):
        loop.step()
    before, begun = sum(len(sink.tokens) for sink in sinks), loop.take_snapshot()
    start = clock.now_s()
    while not any(sink.has_ended for sink in sinks):
        loop.step()
    seconds, ended = clock.now_s() - start, loop.take_snapshot()
    tokens = sum(len(sink.tokens) for sink in sinks) - before
    while loop.has_requests:
        loop.step()
    return Run(
        tokens,
        seconds,
        ended.rounds - begun.rounds,
        ended.drafted - begun.drafted,
        ended.accepted - begun.accepted,
        ended.copied - begun.copied,
        ended.copies_accepted - begun.copies_accepted,
        tuple(tuple(sink.tokens) for sink in sinks),
    )


def summary(name: str, off: list[Run], on: list[Run]) -> Row:
    ratios = [new.tokens_per_s / old.tokens_per_s for old, new in zip(off, on, strict=True)]
    copied, copies_landed = (sum(getattr(one, word) for one in on) for word in ("copied", "copies_accepted"))
    return Row(
        name,
        len(off[0].replies),
        median(one.tokens_per_s for one in off),
        median(one.tokens_per_s for one in on),
        median(ratios),
        min(ratios),
        max(ratios),
        sum(one.tokens for one in on) / sum(one.rounds for one in on),
        sum(one.drafted for one in on) - copied,
        sum(one.accepted for one in on) - copies_landed,
        copied,
        copies_landed,
        all(one.replies == off[0].replies for one in (*off, *on)),
    )


def measure(arguments: argparse.Namespace) -> list[Row]:
    directory = builtin_directory()
    tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    backend = build_backend(
        load_checkpoint(directory), dtype="float32", session_rows=[4096] * 8, threads=arguments.threads
    )
    clock = ProcessorClock() if arguments.processor_time else WallClock()
    loops = {depth: HostLoop(backend, LaneRules(draft_depth=depth), clock) for depth in (0, None)}
    rows = []
    for name, asked in {**PROMPTS, **CROWDS}.items():
        requests = [
            ask(index, words, tokenizer, tokens=arguments.tokens) for index, words in enumerate(asked)
        ]
        runs: dict[int | None, list[Run]] = {0: [], None: []}
        for repeat in range(arguments.repeats):
            # which of the two comes first takes turns as well
            for depth in ((0, None), (None, 0))[repeat % 2]:
                runs[depth].append(run(loops[depth], requests, clock))
        rows.append(summary(name, runs[0], runs[None]))
    return rows


def show(rows: list[Row]) -> None:
    table = Table(
        "requests", "off tok/s", "on tok/s", "on / off", "from .. to", "tokens a round", "head landed",
        "copies landed", "equal",
    )  # fmt: skip
    for row in rows:
        table.add_row(
            row.requests, f"{row.off_tokens_per_s:.0f}", f"{row.on_tokens_per_s:.0f}", f"{row.ratio:.2f}",
            f"{row.lowest_ratio:.2f} .. {row.highest_ratio:.2f}", f"{row.tokens_a_round:.1f}",
            f"{row.head_landed} of {row.head_drafts}", f"{row.copies_landed} of {row.copies}",
            "yes" if row.equal else "NO",
        )  # fmt: skip
    Console(width=140).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tokens", type=int, default=300, help="reply tokens of each request at most")
    parser.add_argument("--repeats", type=int, default=3, help="times each set of requests runs, off and on")
    parser.add_argument("--threads", type=int, default=1, help="torch threads")
    parser.add_argument("--processor-time", action="store_true", help="count processor time, not wall time")
    parser.add_argument("--json", type=Path, help="write the figures and their conditions here")
    arguments = parser.parse_args()
    if arguments.processor_time and arguments.threads != 1:
        parser.error("--processor-time adds up threads: use --threads 1")
    load_before = os.getloadavg()[0]
    rows = measure(arguments)
    show(rows)
    if arguments.json is not None:
        settings = {key: value for key, value in vars(arguments).items() if key != "json"}
        conditions = {**machine(), "load_average_before": load_before, **settings}
        receipt = {"conditions": conditions, "rows": [asdict(row) for row in rows]}
        arguments.json.write_text(json.dumps(receipt, indent=1) + "\n")
    if not all(row.equal for row in rows):
        raise SystemExit("a drafted reply differs from the plain one")


if __name__ == "__main__":
    main()
