"""Eight requests at once in sized, growing sessions, against each of them alone on an unsized server.

    python benchmarks/growth.py [--longest 4000] [--json FILE]

Starts two servers of the built-in model, one after the other, and talks HTTP to them. The sized one has
`--context 32768 --slot-contexts 16384,4096x6 --slot-grow 1024`: a count to 4000 starts in a 4,096 session and
moves twice, two more counts outgrow 4,096 together. Every reply must equal its solo reply character for
character, and every count must be right to its last number.
"""

import argparse
import contextlib
import hashlib
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console
from rich.table import Table

import hermitcrab

SIZED = ("--context", "32768", "--slot-contexts", "16384,4096x6", "--slot-grow", "1024")
HEAD_START_TOKENS = 1000
UNSIZED = ("--context", "32768", "--parallel", "1")


@dataclass(frozen=True)
class Reply:
    """What a request got."""

    prompt: str
    text: str
    finish: str
    tokens: int
    moves: int
    waited_s: float
    seconds: float


def prompts(longest: int) -> list[str]:
    """Eight requests: one long count, two that outgrow the small sessions together, five short ones."""
    return [
        f"Count from 1 to {longest}",
        f"Count from 1 to {longest * 3 // 10}",
        f"Count from 1 to {longest * 3 // 10 + 1}",
        "Count from 100 to 10 by 5",
        "What is the capital of France?",
        "Tell me a short story about a crab.",
        "Hello! How are you?",
        "Count from 7 to 77 by 7",
    ]


@contextlib.contextmanager
def server(*options: str) -> Iterator[tuple[str, Path]]:
    """A running server's address and its log."""
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory) / "log"
        command = [sys.executable, "-m", "hermitcrab", "serve", "--port", "0", *options]
        with log.open("w") as sink:
            process = subprocess.Popen(command, stderr=sink, stdout=sink)
        try:
            yield _address(log, process), log
        finally:
            process.terminate()
            process.wait(30)


def _address(log: Path, process: "subprocess.Popen[bytes]") -> str:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        if found := re.search(r"served at (http://\S+)/v1", log.read_text()):
            return found[1]
        time.sleep(0.1)
    raise RuntimeError(f"the server did not start:\n{log.read_text()}")


def ask(url: str, prompt: str) -> Reply:
    """Stream one greedy reply without thinking."""
    body: dict[str, Any] = {
        "messages": [{"role": "user", "content": prompt}],
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
        "chat_template_kwargs": {"enable_thinking": False},
    }
    text, finish, extra, tokens = "", "", {}, 0
    start = time.perf_counter()
    with httpx.stream("POST", f"{url}/v1/chat/completions", json=body, timeout=None) as response:
        for line in response.iter_lines():
            if not line.startswith("data: {"):
                continue
            chunk = json.loads(line[6:])
            if "error" in chunk:
                raise RuntimeError(f"{prompt}: {chunk['error']}")
            for choice in chunk["choices"]:
                text += choice["delta"].get("content") or ""
                finish = choice["finish_reason"] or finish
            extra = chunk.get("hermitcrab") or extra
            tokens = (chunk.get("usage") or {}).get("completion_tokens", tokens)
    seconds = time.perf_counter() - start
    return Reply(prompt, text, finish, tokens, extra["moves"], extra["waited_s"], seconds)


def streams(url: str) -> list[dict[str, Any]]:
    return httpx.get(f"{url}/v1/status").json()["streams"]


def together(url: str, asked: list[str]) -> list[Reply]:
    """All requests at once, the first one ahead: so it outgrows its session first, and moves twice."""
    replies: dict[int, Reply] = {}

    def run(place: int) -> None:
        replies[place] = ask(url, asked[place])

    threads = [threading.Thread(target=run, args=(place,)) for place in range(len(asked))]
    threads[0].start()
    while not any(stream["reply_tokens"] > HEAD_START_TOKENS for stream in streams(url)):
        time.sleep(0.02)
    for thread in threads[1:]:
        thread.start()
    for thread in threads:
        thread.join()
    return [replies[place] for place in range(len(asked))]


def is_right(reply: Reply) -> bool | None:
    """Whether a count is right to its last number; None for a prompt that is no count."""
    found = re.fullmatch(r"Count from (\d+) to (\d+)(?: by (\d+))?", reply.prompt)
    if found is None:
        return None
    start, end, step = int(found[1]), int(found[2]), int(found[3] or 1)
    numbers = range(start, end + 1, step) if start <= end else range(start, end - 1, -step)
    return reply.text == " ".join(map(str, numbers)) and reply.finish == "stop"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--longest", type=int, default=4000, help="where the long count ends")
    parser.add_argument("--json", type=Path, help="write the receipt here")
    arguments = parser.parse_args()
    asked = prompts(arguments.longest)
    with server(*SIZED) as (url, log):
        crowd = together(url, asked)
        status = httpx.get(f"{url}/v1/status").json()
        moves = [line for line in log.read_text().splitlines() if "a stream at" in line]
    with server(*UNSIZED) as (url, _):
        alone = [ask(url, prompt) for prompt in asked]
    table = Table("prompt", "tokens", "moves", "paused s", "seconds", "alone s", "= alone", "right")
    for one, solo in zip(crowd, alone, strict=True):
        right = {None: "", True: "yes", False: "NO"}[is_right(one)]
        equal = "yes" if one.text == solo.text else "NO"
        times = (f"{one.waited_s:.1f}", f"{one.seconds:.1f}", f"{solo.seconds:.1f}")
        table.add_row(one.prompt, str(one.tokens), str(one.moves), *times, equal, right)
    Console().print(table)
    print(*moves, sep="\n")
    failed = [one.prompt for one, solo in zip(crowd, alone, strict=True) if one.text != solo.text]
    failed += [one.prompt for one in crowd if is_right(one) is False]
    if arguments.json is not None:
        receipt = {
            "hermitcrab": hermitcrab.__version__,
            "machine": {
                "platform": platform.platform(),
                "cores": os.cpu_count(),
                "load_after": os.getloadavg()[0],
            },
            "options": {"sized": SIZED, "unsized": UNSIZED},
            "log": [line.split(maxsplit=2)[2] for line in moves],
            "totals": {key: status[key] for key in ("moves", "pauses", "rounds", "drafted", "accepted")},
            "replies": [
                {
                    **{key: value for key, value in asdict(one).items() if key != "text"},
                    "sha256": hashlib.sha256(one.text.encode()).hexdigest(),
                    "equals_alone": one.text == solo.text,
                    "is_right": is_right(one),
                }
                for one, solo in zip(crowd, alone, strict=True)
            ],
        }
        arguments.json.write_text(json.dumps(receipt, indent=1) + "\n")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
