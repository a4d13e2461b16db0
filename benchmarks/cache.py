"""The first token of an agent's turns, with the prompt cache and without.

    python benchmarks/cache.py [--turns 5] [--repeats 3] [--json FILE]

Starts two servers of the built-in model, one after the other, the second with `--cache-gb 0`, and talks HTTP
to them. A conversation begins with a system message and tools; each turn adds a tool call and a long result.
Every repeat is another conversation, whose first turn finds nothing kept. Figures are medians over repeats of
the server's own `first_token_s`. The replies must be the same token for token.
"""

import argparse
import json
import os
import statistics
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console
from rich.table import Table

from growth import server
from machine import machine

OPTIONS = ("--context", "16384", "--parallel", "2")
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"{verb} a file of the project. " * 8,
            "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
        },
    }
    for name, verb in (("read_file", "Read"), ("write_file", "Write"), ("search_files", "Search"))
]
REPLY_TOKENS = 24


@dataclass(frozen=True)
class Turn:
    """One turn's prompt, what of it was kept, and when its first token came."""

    prompt_tokens: int
    cached_tokens: int
    first_token_s: float
    tokens_sha256: str


def result(talk: int, turn: int) -> str:
    """A tool's result, as long as a page of code."""
    return "\n".join(f"{line}: value {talk} of turn {turn} is {line * 7 + talk}" for line in range(60))


def converse(url: str, talk: int, turns: int) -> list[Turn]:
    """One conversation; each turn sends all that was said before."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": f"You are agent {talk}. You work on the files of a project. " * 20},
        {"role": "user", "content": "Look at the files and say what you find."},
    ]
    took: list[Turn] = []
    for turn in range(turns):
        body = {
            "messages": messages,
            "tools": TOOLS,
            "temperature": 0,
            "max_tokens": REPLY_TOKENS,
            "chat_template_kwargs": {"enable_thinking": False},
        }
        reply = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=None).raise_for_status().json()
        usage, more = reply["usage"], reply["hermitcrab"]
        cached_tokens = usage["prompt_tokens_details"]["cached_tokens"]
        took.append(Turn(usage["prompt_tokens"], cached_tokens, more["first_token_s"], more["tokens_sha256"]))
        call = {"name": "read_file", "arguments": json.dumps({"path": f"part_{turn}.py"})}
        said = reply["choices"][0]["message"]["content"] or ""
        messages += [
            {
                "role": "assistant",
                "content": said,
                "tool_calls": [{"id": f"call-{turn}", "type": "function", "function": call}],
            },
            {"role": "tool", "tool_call_id": f"call-{turn}", "content": result(talk, turn)},
        ]
    return took


def measure(turns: int, repeats: int, *options: str) -> tuple[list[list[Turn]], dict[str, Any]]:
    """Conversations with a fresh server, and what it says of its cache at the end."""
    with server(*OPTIONS, *options) as (url, _):
        talks = [converse(url, talk, turns) for talk in range(repeats)]
        return talks, httpx.get(f"{url}/v1/status").json()["cache"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--turns", type=int, default=5, help="turns of a conversation")
    parser.add_argument("--repeats", type=int, default=3, help="conversations")
    parser.add_argument("--json", type=Path, help="write the receipt here")
    arguments = parser.parse_args()
    with_cache, status = measure(arguments.turns, arguments.repeats)
    without, _ = measure(arguments.turns, arguments.repeats, "--cache-gb", "0")
    table = Table(
        "turn", "prompt tokens", "cached", "first token ms", "without cache ms", "ratio", "same reply"
    )
    rows: list[dict[str, Any]] = []
    for turn in range(arguments.turns):
        warm, cold = [talk[turn] for talk in with_cache], [talk[turn] for talk in without]
        warm_s = statistics.median(one.first_token_s for one in warm)
        cold_s = statistics.median(one.first_token_s for one in cold)
        is_same = all(one.tokens_sha256 == other.tokens_sha256 for one, other in zip(warm, cold, strict=True))
        rows.append({"turn": turn + 1, "warm_s": warm_s, "cold_s": cold_s, "is_same": is_same})
        table.add_row(
            str(turn + 1),
            str(warm[-1].prompt_tokens),
            str(warm[-1].cached_tokens),
            f"{warm_s * 1e3:.0f}",
            f"{cold_s * 1e3:.0f}",
            f"{cold_s / warm_s:.1f}",
            "yes" if is_same else "NO",
        )
    Console().print(table)
    if arguments.json is not None:
        receipt = {
            "machine": machine() | {"load_after": os.getloadavg()[0]},
            "options": OPTIONS,
            "turns": rows,
            "cache": status,
            "with_cache": [[asdict(turn) for turn in talk] for talk in with_cache],
            "without_cache": [[asdict(turn) for turn in talk] for talk in without],
        }
        arguments.json.write_text(json.dumps(receipt, indent=1) + "\n")
    sys.exit(0 if all(row["is_same"] for row in rows) else 1)


if __name__ == "__main__":
    main()
