"""Many clients over few sessions for minutes: nothing lost, memory flat, every session back.

    python benchmarks/soak.py [--minutes 5] [--clients 200] [--json FILE]

Starts a server of the built-in model with 16 sessions and lets every client ask one request after another.
A client reads its stream to the end, or slowly, or waits for a whole reply, or leaves: after some chunks or
after some time, by closing or by resetting its connection. The clients and the server share the machine.

A request is lost when its client stayed and did not see exactly one end of it. The same request must get the
same reply every time. When all clients are gone, the server must be idle and have counted each request once.
"""

import argparse
import asyncio
import contextlib
import hashlib
import json
import os
import random
import socket
import struct
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from growth import server
from machine import machine

OPTIONS = (
    *("--context", "4096", "--slot-contexts", "1024x3,256x12", "--slot-grow", "64"),
    *("--queue-limit", "400", "--threads", "1"),
)
SESSIONS = 16
# crowds before the first sample; in a trial memory grew from 546 to 811 MiB in eight, then stood still
WAVES = 10
# a stream has a sign of life every five seconds; a machine as busy as this one may be late with it
SILENCE_S = 60.0
# how a client behaves, and how often
HABITS = {"reads": 40, "reads slowly": 15, "waits": 15, "leaves by count": 15, "leaves by time": 15}
PROMPTS = (
    *(f"Count from 1 to {end}" for end in (5, 12, 30, 60, 110)),
    "What is the capital of France?",
    "Tell me a short story about a crab.",
    "Hello! How are you?",
)
SEEDS = 3
COUNTED = (
    *("requests_finished", "requests_failed", "requests_cancelled", "reply_tokens", "moves", "pauses"),
    *("rounds", "drafted", "accepted"),
)
SAMPLE_S = 5.0
# memory may have grown by so much from the middle to the end
FLAT_SHARE = 0.03


@dataclass
class Tally:
    """What the clients saw: how each request ended, what was lost and why, and each request's reply."""

    outcomes: Counter[str] = field(default_factory=Counter)
    lost: list[str] = field(default_factory=list)
    replies: dict[str, set[str]] = field(default_factory=dict)
    longest_silence_s: float = 0.0

    def ended(self, outcome: str) -> None:
        self.outcomes[outcome] += 1

    def replied(self, body: dict[str, Any], text: str) -> None:
        asked = json.dumps([body["messages"], body["seed"]])
        self.replies.setdefault(asked, set()).add(hashlib.sha256(text.encode()).hexdigest())

    @property
    def differing(self) -> list[str]:
        """Requests that did not get the same reply every time."""
        return [asked for asked, digests in self.replies.items() if len(digests) > 1]


@dataclass(frozen=True)
class Sample:
    """The server's process at one moment."""

    at_s: float
    resident_mib: float
    open_files: int


def body_of(rng: random.Random, *, stream: bool) -> dict[str, Any]:
    return {
        "messages": [{"role": "user", "content": rng.choice(PROMPTS)}],
        "seed": rng.randrange(SEEDS),
        "max_tokens": 400,
        "stream": stream,
        "chat_template_kwargs": {"enable_thinking": False},
    }


async def one_client(name: int, http: httpx.AsyncClient, tally: Tally, until_s: float) -> None:
    """One request after another, each behaved as chance has it."""
    rng = random.Random(name)
    while time.monotonic() < until_s:
        (habit,) = rng.choices(list(HABITS), list(HABITS.values()))
        body = body_of(rng, stream=habit != "waits")
        try:
            if habit == "waits":
                await wait_for_reply(http, body, tally)
            elif habit == "leaves by time":
                await leave_in_time(http, body, tally, within_s=rng.uniform(0.0, 4.0))
            else:
                leave_after = rng.randrange(30) if habit == "leaves by count" else None
                pause_s = rng.uniform(0.02, 0.3) if habit == "reads slowly" else 0.0
                await read_stream(
                    http, body, tally, leave_after=leave_after, pause_s=pause_s, resets=rng.random() < 0.5
                )
        except httpx.HTTPError as error:
            tally.lost.append(f"{habit}: {type(error).__name__} {error}")
            tally.ended("lost")


async def wait_for_reply(http: httpx.AsyncClient, body: dict[str, Any], tally: Tally) -> None:
    answer = await http.post("/v1/chat/completions", json=body, timeout=None)
    if answer.status_code != 200:
        tally.ended(f"status {answer.status_code}")
        return
    (choice,) = answer.json()["choices"]
    tally.replied(body, choice["message"]["content"])
    tally.ended(f"whole: {choice['finish_reason']}")


async def leave_in_time(
    http: httpx.AsyncClient, body: dict[str, Any], tally: Tally, *, within_s: float
) -> None:
    """Closes the connection after a time, in whatever phase the request is then."""
    try:
        async with asyncio.timeout(within_s):
            await read_stream(http, body, tally)
    except TimeoutError:
        tally.ended("left by time")


async def read_stream(
    http: httpx.AsyncClient,
    body: dict[str, Any],
    tally: Tally,
    *,
    leave_after: int | None = None,
    pause_s: float = 0.0,
    resets: bool = False,
) -> None:
    """Reads a stream to its end, pausing after each line; `leave_after` so many chunks it leaves instead."""
    text, ends, chunks, heard_s = "", [], 0, time.monotonic()
    async with http.stream("POST", "/v1/chat/completions", json=body) as answer:
        if answer.status_code != 200:
            tally.ended(f"status {answer.status_code}")
            return
        async for line in answer.aiter_lines():
            tally.longest_silence_s = max(tally.longest_silence_s, time.monotonic() - heard_s)
            if leave_after is not None and chunks > leave_after:
                if resets:
                    reset(answer)
                tally.ended("left by reset" if resets else "left by closing")
                return
            if line.startswith("data: {"):
                chunks += 1
                chunk = json.loads(line[6:])
                if "error" in chunk:
                    ends.append("error")
                for choice in chunk.get("choices", ()):
                    text += choice["delta"].get("content") or ""
                    ends += [choice["finish_reason"]] if choice["finish_reason"] else []
            elif line == "data: [DONE]":
                ends.append("done")
            if pause_s and line:
                await asyncio.sleep(pause_s)
            heard_s = time.monotonic()
    if len(ends) != 2 or ends[1] != "done":
        tally.lost.append(f"a stream ended with {ends}")
        tally.ended("lost")
        return
    if ends[0] != "error":
        tally.replied(body, text)
    tally.ended(f"stream: {ends[0]}")


def reset(answer: httpx.Response) -> None:
    """Makes the close of the connection a reset."""
    raw = answer.extensions["network_stream"].get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


async def sample(http: httpx.AsyncClient, start_s: float) -> Sample:
    """What the server tells of its own process."""
    lines = (await http.get("/metrics")).text.splitlines()
    told = dict(line.split() for line in lines if line.startswith("process_") and line.count(" ") == 1)
    resident_mib = round(float(told["process_resident_memory_bytes"]) / (1 << 20), 1)
    return Sample(round(time.monotonic() - start_s, 1), resident_mib, int(float(told["process_open_fds"])))


async def watch(http: httpx.AsyncClient, samples: list[Sample], start_s: float) -> None:
    while True:
        samples.append(await sample(http, start_s))
        await asyncio.sleep(SAMPLE_S)


async def idle(http: httpx.AsyncClient, within_s: float) -> dict[str, Any]:
    """The server's status once nothing runs, or what it is after that time."""
    until_s = time.monotonic() + within_s
    while True:
        status: dict[str, Any] = (await http.get("/v1/status")).json()
        if not status["streams"] or time.monotonic() > until_s:
            return status
        await asyncio.sleep(0.1)


async def warm_up(http: httpx.AsyncClient) -> None:
    """Crowds that come and thin out: what is allocated once for each number of streams is there then."""
    for wave in range(WAVES):
        asked = (body_of(random.Random(wave * 100 + name), stream=False) for name in range(SESSIONS + 2))
        await asyncio.gather(*(wait_for_reply(http, body, Tally()) for body in asked))


async def soak(url: str, clients: int, minutes: float) -> dict[str, Any]:
    """The whole run: what clients saw, what the server counted, and what its process took."""
    tally, samples = Tally(), []
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    timeout = httpx.Timeout(SILENCE_S)
    async with httpx.AsyncClient(base_url=url, limits=limits, timeout=timeout) as http:
        await warm_up(http)
        before = await idle(http, within_s=10.0)
        start_s = time.monotonic()
        watching = asyncio.create_task(watch(http, samples, start_s))
        until_s = start_s + minutes * 60
        await asyncio.gather(*(one_client(name, http, tally, until_s) for name in range(clients)))
        after = await idle(http, within_s=5.0)
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching
        samples.append(await sample(http, start_s))
    return report(tally, samples, before, after)


def report(
    tally: Tally, samples: list[Sample], before: dict[str, Any], after: dict[str, Any]
) -> dict[str, Any]:
    counted = {name: after[name] - before[name] for name in COUNTED}
    seen = sum(count for outcome, count in tally.outcomes.items() if outcome.startswith(("stream", "whole")))
    left = sum(count for outcome, count in tally.outcomes.items() if outcome.startswith("left"))
    ended = sum(counted[f"requests_{how}"] for how in ("finished", "failed", "cancelled"))
    start, middle, end = samples[0], samples[len(samples) // 2], samples[-1]
    return {
        "outcomes": dict(sorted(tally.outcomes.items())),
        "lost": tally.lost,
        "differing_replies": tally.differing,
        "distinct_requests": len(tally.replies),
        "longest_silence_s": round(tally.longest_silence_s, 1),
        "server_counted": counted,
        "resident_mib": {
            name: one.resident_mib for name, one in (("start", start), ("middle", middle), ("end", end))
        },
        "open_files": {
            name: one.open_files for name, one in (("start", start), ("middle", middle), ("end", end))
        },
        "resident_mib_each_30_s": [one.resident_mib for one in samples[:: int(30 / SAMPLE_S)]],
        "holds": {
            "nothing is lost": not tally.lost,
            "the same request has the same reply": not tally.differing,
            # one who left may have done so before the server had the request
            "the server counted each request once": seen <= ended <= seen + left,
            "memory is flat from the middle on": end.resident_mib <= middle.resident_mib * (1 + FLAT_SHARE),
            "every session is back": not after["streams"]
            and all(session["request_id"] is None for session in after["sessions"])
            and len(after["sessions"]) == SESSIONS,
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5.0, help="how long clients start new requests")
    parser.add_argument("--clients", type=int, default=200, help="clients at once")
    parser.add_argument("--json", type=Path, help="write the receipt here")
    arguments = parser.parse_args()
    with server(*OPTIONS) as (url, _):
        told = asyncio.run(soak(url, arguments.clients, arguments.minutes))
    receipt = {
        "command": f"python benchmarks/soak.py --minutes {arguments.minutes:g} --clients {arguments.clients}",
        "machine": {**machine(), "load_after": os.getloadavg()[0]},
        "options": OPTIONS,
        **told,
    }
    print(json.dumps(receipt, indent=1))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(receipt, indent=1) + "\n")
    sys.exit(0 if all(told["holds"].values()) else 1)


if __name__ == "__main__":
    main()
