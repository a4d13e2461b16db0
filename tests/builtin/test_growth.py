"""The built-in model in sized, growing sessions: moved counts say what counts alone say, and say it right."""

import itertools
import logging
from collections.abc import Sequence

import pytest

from hermitcrab.clock import WallClock
from hermitcrab.core.api import Event, Failed, Finished, FinishReason, Request, Tokens, Usage
from hermitcrab.core.lanes import LaneRules
from hermitcrab.core.loop import HostLoop
from hermitcrab.core.slot_list import rows_of
from hermitcrab.engine.build import build_backend
from hermitcrab.models.qwen4_exp.checkpoint import Checkpoint
from hermitcrab.sampling.params import Sampling
from hermitcrab.server.text.chat import ChatText

CASES = (
    "Count from 1 to 400",
    "Count from 1 to 130",
    "Count from 1 to 131",
    "Count from 7 to 77 by 7",
    "What is the capital of France?",
    "Hello! How are you?",
    "Count from 40 to 2 by 2",
    "Name a color.",
)


class Replies:
    """The sink of one request."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.usage: Usage | None = None
        self.reason: FinishReason | None = None

    def put(self, event: Event) -> None:
        match event:
            case Tokens(ids):
                self.ids.extend(ids)
            case Finished(reason, usage):
                self.reason, self.usage = reason, usage
            case Failed(error):
                raise error


def run(
    checkpoint: Checkpoint,
    text: ChatText,
    asked: Sequence[str],
    session_tokens: Sequence[int],
    *,
    grow_tokens: int | None = None,
    draft_depth: int | None = None,
    sampling: Sampling | None = None,
) -> list[Replies]:
    """All requests at once on a fresh engine."""
    backend = build_backend(
        checkpoint,
        dtype="float32",
        session_rows=[rows_of(tokens) for tokens in session_tokens],
        draft_depth=draft_depth,
        threads=1,
    )
    loop = HostLoop(backend, LaneRules(grow_tokens=grow_tokens), WallClock())
    sinks = [Replies() for _ in asked]
    for place, (words, sink) in enumerate(zip(asked, sinks, strict=True)):
        prompt = text.chat_prompt([{"role": "user", "content": words}], [], {"enable_thinking": False})
        request = Request(
            str(place), prompt.ids, sampling or Sampling(), max_new_tokens=3000, eos_ids=text.eos_ids
        )
        loop.submit(request, sink)
    while loop.has_requests:
        loop.step()
    return sinks


def said(text: ChatText, reply: Replies) -> str:
    return text.text_of(reply.ids)


@pytest.fixture(scope="module")
def alone(checkpoint: Checkpoint, text: ChatText) -> list[Replies]:
    """Each request alone on an unsized engine, without drafts."""
    return [run(checkpoint, text, [words], [4096], draft_depth=0)[0] for words in CASES]


@pytest.fixture(scope="module")
def crowd(checkpoint: Checkpoint, text: ChatText) -> list[Replies]:
    """All requests at once, drafted, in sessions of which three outgrow theirs, two of them together."""
    return run(checkpoint, text, CASES, [2048, 1024, *[384] * 6], grow_tokens=128)


@pytest.mark.timeout(300)
def test_every_reply_in_the_crowd_equals_its_reply_alone(alone: list[Replies], crowd: list[Replies]) -> None:
    assert [reply.ids for reply in crowd] == [reply.ids for reply in alone]


@pytest.mark.timeout(300)
def test_the_long_count_moves_twice_and_is_right_to_its_last_number(
    text: ChatText, crowd: list[Replies]
) -> None:
    assert crowd[0].usage is not None
    assert crowd[0].usage.moves == 2
    assert said(text, crowd[0]) == " ".join(map(str, range(1, 401)))
    assert crowd[0].reason is FinishReason.STOP


@pytest.mark.timeout(300)
def test_two_counts_that_outgrow_their_sessions_together_are_right(
    text: ChatText, crowd: list[Replies]
) -> None:
    for reply, last in zip(crowd[1:3], (130, 131), strict=True):
        assert reply.usage is not None
        assert reply.usage.moves >= 1
        assert said(text, reply) == " ".join(map(str, range(1, last + 1)))


@pytest.mark.timeout(300)
def test_a_wait_and_a_move_are_logged_in_words(
    checkpoint: Checkpoint, text: ChatText, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="hermitcrab"):
        run(checkpoint, text, CASES[1:3], [1024, 384, 384], grow_tokens=128)
    lines = [record.getMessage() for record in caplog.records if "a stream at" in record.getMessage()]
    assert any("waits for a session larger than 416 tokens to free" in line for line in lines)
    assert any("moved from a 416-token session to a 1056-token one" in line for line in lines)


@pytest.mark.timeout(300)
def test_sampled_replies_in_the_crowd_equal_those_alone(checkpoint: Checkpoint, text: ChatText) -> None:
    sampling = Sampling(temperature=1.0, top_p=0.95, top_k=20, seed=11)
    asked = CASES[3:]
    together = run(checkpoint, text, asked, [1024, *[128] * 5], grow_tokens=32, sampling=sampling)
    apart = [run(checkpoint, text, [words], [1024], draft_depth=0, sampling=sampling)[0] for words in asked]
    assert [reply.ids for reply in together] == [reply.ids for reply in apart]


@pytest.mark.timeout(300)
def test_counts_find_their_direction_and_stop_before_they_pass_their_end(
    checkpoint: Checkpoint, text: ChatText
) -> None:
    counts = (
        (380, 420, 1),
        (72328, 72278, -10),
        (4474, 4404, -10),
        (83, 73, -5),
        (64, 24, -10),
        (0, 34, 5),
        (81, 1, -25),
        (8, 113, 9),
    )
    asked = [f"Count from {start} to {end} by {abs(step)}" for start, end, step in counts]
    asked[0] = "Count from 380 to 420"
    replies = run(checkpoint, text, asked, [512] * len(asked))
    for (start, end, step), reply in zip(counts, replies, strict=True):
        beyond = end + (1 if step > 0 else -1)
        assert said(text, reply) == " ".join(map(str, range(start, beyond, step)))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_count_to_4000_is_18893_tokens_right_and_ends_by_itself(
    checkpoint: Checkpoint, text: ChatText
) -> None:
    words = "Count from 1 to 4000"
    prompt = text.chat_prompt([{"role": "user", "content": words}], [], {"enable_thinking": False})
    backend = build_backend(checkpoint, dtype="float32", session_rows=[20_000], threads=1)
    loop, sink = HostLoop(backend, LaneRules(), WallClock()), Replies()
    loop.submit(Request("count", prompt.ids, Sampling(), eos_ids=text.eos_ids), sink)
    while loop.has_requests:
        loop.step()
    assert said(text, sink) == " ".join(map(str, range(1, 4001)))
    assert sink.usage is not None
    assert sink.usage.completion_tokens == 18_893


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("start", "end", "step"),
    list(itertools.islice(((17 * i, 17 * i + 40 * (i % 4 + 1), i % 4 + 1) for i in range(1, 60, 6)), 10)),
)
def test_counts_of_any_start_end_and_step_are_right(
    checkpoint: Checkpoint, text: ChatText, start: int, end: int, step: int
) -> None:
    by = "" if step == 1 else f" by {step}"
    reply = run(checkpoint, text, [f"Count from {start} to {end}{by}"], [2048])[0]
    assert said(text, reply) == " ".join(map(str, range(start, end + 1, step)))
