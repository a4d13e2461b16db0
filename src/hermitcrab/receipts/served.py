"""Checks against a running server, over its API: what can be asked there, and no more.

Logits cannot be seen over HTTP, so replies are compared by their text and by the digest of their tokens.
"""

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import httpx

from hermitcrab.clock import Clock
from hermitcrab.errors import RequestError
from hermitcrab.receipts.cases import QUESTIONS, Scale
from hermitcrab.receipts.record import Difference, Outcome, Shown, Side, Verdict, not_available
from hermitcrab.receipts.traffic import Weather

# a reply may wait in the queue behind long ones; a server that is silent for so long is taken for stuck
_SILENCE_S = 600.0

_SAMPLINGS: dict[str, dict[str, object]] = {
    "greedy": {"temperature": 0},
    "seeded": {"temperature": 0.9, "top_p": 0.95, "top_k": 20, "seed": 11},
}

# text shown from where two replies part
_SHOWN_CHARACTERS = 20

# requests of the random traffic that are open at once
_MOST_OPEN = 12


@dataclass(frozen=True, slots=True)
class Question:
    """One request; `cancel_after` closes the connection once so many chunks have come."""

    words: str
    sampling: str
    max_tokens: int
    cancel_after: int | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: the text as streamed, and at its end the digest of its tokens and what it cost."""

    question: Question
    text: str = ""
    sha256: str = ""
    tokens: int = 0
    moves: int = 0
    failure: str | None = None

    @property
    def is_whole(self) -> bool:
        return bool(self.sha256)


class Server:
    """A running server, asked from as many threads as there are questions at once."""

    def __init__(self, url: str, *, api_key: str | None, clock: Clock) -> None:
        headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
        self._client = httpx.Client(
            base_url=url.rstrip("/"),
            headers=headers,
            timeout=httpx.Timeout(10.0, read=_SILENCE_S),
            limits=httpx.Limits(max_connections=None),
        )
        self._alone: dict[Question, Answer] = {}
        self.clock = clock

    def close(self) -> None:
        self._client.close()

    def status(self) -> dict[str, Any]:
        """The server's status. Raises RequestError if it has none to give."""
        try:
            response = self._client.get("/v1/status").raise_for_status()
        except httpx.HTTPError as error:
            raise RequestError(f"no status from {self._client.base_url}: {error}") from error
        body: dict[str, Any] = response.json()
        return body

    def ask(self, question: Question) -> Answer:
        """Stream one reply; an error becomes the answer's failure."""
        body = {
            "messages": [{"role": "user", "content": question.words}],
            "chat_template_kwargs": {"enable_thinking": False},
            "max_tokens": question.max_tokens,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
            **_SAMPLINGS[question.sampling],
        }
        answer = Answer(question)
        try:
            with self._client.stream("POST", "/v1/chat/completions", json=body) as response:
                if response.is_error:
                    return replace(answer, failure=response.read().decode(errors="replace"))
                for chunks, data in enumerate(_data(response)):
                    if chunks == question.cancel_after:
                        return answer
                    answer = _with_chunk(answer, json.loads(data))
        except httpx.HTTPError as error:
            return replace(answer, failure=f"{type(error).__name__}: {error}")
        return answer

    def ask_all(self, questions: Sequence[Question]) -> list[Answer]:
        """All at once; answers in order."""
        answers = [Answer(question) for question in questions]

        def run(place: int) -> None:
            answers[place] = self.ask(questions[place])

        threads = [threading.Thread(target=run, args=(place,)) for place in range(len(questions))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return answers

    def alone(self, question: Question) -> Answer:
        """The answer to a question asked alone; asked once."""
        whole = replace(question, cancel_after=None)
        if whole not in self._alone:
            self._alone[whole] = self.ask(whole)
        return self._alone[whole]


def run_served(
    url: str, scale: Scale, weather: Weather, clock: Clock, *, api_key: str | None
) -> Iterator[Outcome]:
    """All checks that a server allows; it should have nothing else to do meanwhile."""
    with closing(Server(url, api_key=api_key, clock=clock)) as server:
        yield _load_check(server.status())
        yield from _concurrency(server, scale)
        yield _growth(server, scale)
        yield _traffic(server, scale, weather)
    inside = "seen only in this process: leave out --url"
    for name, receipt in (
        ("drafts on = drafts off", ""),
        ("every width and cut", ""),
        ("pauses at every step", ""),
        ("at the edge of its session, one draft landing", "6"),
        ("prompts in other passes", ""),
        ("prompts from kept states", ""),
        ("after other traffic = on a fresh engine", ""),
    ):
        yield not_available(name, inside, receipt=receipt)


def compare(name: str, alone: Answer, other: Answer) -> Difference | None:
    """Where an answer leaves the one alone; as far as it came, if it was cancelled."""
    if other.failure is not None or alone.failure is not None:
        what = f"ended by an error: {other.failure or alone.failure}"
        return Difference(name, other.tokens, what, Side(None), Side(None))
    is_prefix = other.question.cancel_after is not None and not other.is_whole
    if is_prefix and alone.text.startswith(other.text):
        return None
    if not is_prefix and (alone.text, alone.sha256) == (other.text, other.sha256):
        return None
    place = next(
        (at for at, (one, two) in enumerate(zip(alone.text, other.text, strict=False)) if one != two),
        min(len(alone.text), len(other.text)),
    )
    one, two = (answer.text[place : place + _SHOWN_CHARACTERS] for answer in (alone, other))
    return Difference(name, place, f"{one!r} alone, {two!r} here", Side(None), Side(None))


def _judge(
    server: Server,
    name: str,
    ask: Callable[[], Sequence[Answer]],
    *,
    receipt: str = "",
    note: Callable[[Sequence[Answer]], str],
    missing: Callable[[Sequence[Answer]], str | None] = lambda answers: None,
) -> Outcome:
    started_s = server.clock.now_s()
    answers = ask()
    seconds = server.clock.now_s() - started_s
    found = (compare(answer.question.words, server.alone(answer.question), answer) for answer in answers)
    differences = tuple(difference for difference in found if difference is not None)
    lacking = missing(answers)
    verdict = Verdict.EQUAL if lacking is None else Verdict.NOT_SHOWN
    return Outcome(
        name,
        Verdict.DIFFERENT if differences else verdict,
        receipt,
        lacking or note(answers),
        seconds=seconds,
        replies=tuple(
            Shown(answer.question.words, answer.tokens, answer.sha256, not answer.is_whole)
            for answer in answers
        ),
        differences=differences,
    )


def _load_check(status: dict[str, Any]) -> Outcome:
    check = status.get("load_check", {})
    name, note = "check at load", "; ".join((*check.get("reasons", ()), *check.get("unchecked", ())))
    match check.get("state"):
        case "passed":
            return Outcome(name, Verdict.EQUAL, note=note)
        case "parts switched off":
            return Outcome(name, Verdict.DIFFERENT, note=note)
        case _:
            return not_available(name, "the server has not run it")


def _concurrency(server: Server, scale: Scale) -> Iterator[Outcome]:
    for sampling in _SAMPLINGS:
        questions = [Question(words, sampling, scale.reply_tokens) for words in QUESTIONS]
        for question in questions:
            server.alone(question)
        for streams in scale.streams:
            asked = questions[:streams]
            yield _judge(
                server,
                f"{streams} at once, {sampling}",
                lambda asked=asked: server.ask_all(asked),  # type: ignore[misc]  # bound now, called at once
                receipt="1",
                note=lambda answers: f"{sum(answer.tokens for answer in answers)} tokens",
            )


def _growth(server: Server, scale: Scale) -> Outcome:
    """Long replies at once, where the server's sessions are of several sizes, which decide who moves."""
    name = "replies in growing sessions"
    sessions = server.status()["sessions"]
    if len({session["capacity_rows"] for session in sessions}) == 1:
        return not_available(name, "the server's sessions are all of one size", receipt="3, 4")
    before = server.status()
    asked = [Question(words, "greedy", scale.grown_tokens) for words in QUESTIONS[:4]]

    def note(answers: Sequence[Answer]) -> str:
        pauses = server.status()["pauses"] - before["pauses"]
        return f"{sum(answer.moves for answer in answers)} moves, {pauses} pauses"

    def missing(answers: Sequence[Answer]) -> str | None:
        return (
            None if any(answer.moves for answer in answers) else "no reply moved: its sessions are too large"
        )

    return _judge(server, name, lambda: server.ask_all(asked), receipt="3, 4", note=note, missing=missing)


def _traffic(server: Server, scale: Scale, weather: Weather) -> Outcome:
    """Random questions, lengths and cancels from several clients at once."""
    random = Random(weather.seed)
    lengths = (max(1, scale.reply_tokens // 3), scale.reply_tokens)
    waves: list[list[Question]] = []

    def wave() -> list[Question]:
        return [
            Question(
                random.choice(QUESTIONS),
                random.choice(tuple(_SAMPLINGS)),
                random.choice(lengths),
                random.randint(1, scale.reply_tokens) if random.random() < 0.2 else None,
            )
            for _ in range(random.randint(1, _MOST_OPEN))
        ]

    def ask() -> list[Answer]:
        answers: list[Answer] = []
        started_s = server.clock.now_s()
        while not answers or (
            server.clock.now_s() - started_s < 60 * weather.minutes
            if weather.minutes is not None
            else len(answers) < scale.arrivals
        ):
            waves.append(wave())
            answers += server.ask_all(waves[-1])
        return answers

    return _judge(
        server,
        f"random traffic, seed {weather.seed}",
        ask,
        note=lambda answers: (
            f"{len(answers)} requests in {len(waves)} waves, "
            f"{sum(not answer.is_whole for answer in answers)} cancelled"
        ),
    )


def _data(response: httpx.Response) -> Iterator[str]:
    for line in response.iter_lines():
        if line.startswith("data: {"):
            yield line.removeprefix("data: ")


def _with_chunk(answer: Answer, chunk: dict[str, Any]) -> Answer:
    if "error" in chunk:
        return replace(answer, failure=str(chunk["error"]))
    text = answer.text
    for choice in chunk["choices"]:
        delta = choice["delta"]
        text += (delta.get("reasoning_content") or "") + (delta.get("content") or "")
    extra, usage = chunk.get("hermitcrab") or {}, chunk.get("usage") or {}
    return replace(
        answer,
        text=text,
        sha256=extra.get("tokens_sha256", answer.sha256),
        moves=extra.get("moves", answer.moves),
        tokens=usage.get("completion_tokens", answer.tokens),
    )
