"""The built-in model's warm replies are its cold ones: repeats, next turns, edits, evictions, long ones."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from hermitcrab.clock import WallClock
from hermitcrab.core.api import Event, Failed, Finished, Request, Tokens, Usage
from hermitcrab.core.kept import CacheRules
from hermitcrab.core.lanes import LaneRules
from hermitcrab.core.loop import HostLoop
from hermitcrab.engine.build import build_backend
from hermitcrab.models.qwen4_exp.checkpoint import Checkpoint
from hermitcrab.sampling.params import Sampling
from hermitcrab.server.text.chat import ChatText

SYSTEM = "You are a helpful crab who lives on a rocky beach. " * 6
QUESTIONS = ["What is the capital of France?", "Count from 7 to 77 by 7", "Hello! How are you?"]
GREEDY, SAMPLED = Sampling(), Sampling(temperature=1.0, top_p=0.95, top_k=20, seed=5)
REPLY_TOKENS = 24
SESSION_ROWS = 2048
PLENTY_BYTES = 1 << 28


@dataclass
class Told:
    """A sink that keeps a reply and its cost."""

    ids: list[int] = field(default_factory=list)
    usage: Usage | None = None

    def put(self, event: Event) -> None:
        match event:
            case Tokens(ids):
                self.ids += ids
            case Finished(usage=usage):
                self.usage = usage
            case Failed(error=error):
                raise error

    @property
    def cached_tokens(self) -> int:
        assert self.usage is not None
        return self.usage.cached_tokens


class Talker:
    """The built-in model behind the lanes, with a prompt cache of so many bytes."""

    def __init__(
        self, checkpoint: Checkpoint, text: ChatText, *, cache_bytes: int, draft_depth: int | None = None
    ) -> None:
        self.text = text
        self.backend = build_backend(
            checkpoint,
            dtype="float32",
            session_rows=[SESSION_ROWS] * 2,
            draft_depth=draft_depth,
            threads=1,
        )
        rules = LaneRules(cache=CacheRules(cache_bytes, text.start_ids))
        self.loop = HostLoop(self.backend, rules, WallClock())
        self.asked = 0

    def prompt(self, said: Sequence[str]) -> tuple[int, ...]:
        """The prompt of a conversation whose messages are the user's and the model's in turn."""
        messages: list[dict[str, Any]] = [{"role": "system", "content": SYSTEM}]
        for place, words in enumerate(said):
            messages.append({"role": "assistant" if place % 2 else "user", "content": words})
        return self.text.chat_prompt(messages, [], {"enable_thinking": False}).ids

    def ask(self, *talks: Sequence[str], sampling: Sampling) -> list[Told]:
        """Replies to conversations that come together."""
        sinks = [Told() for _ in talks]
        for said, sink in zip(talks, sinks, strict=True):
            self.asked += 1
            request = Request(
                f"r{self.asked}", self.prompt(said), sampling, REPLY_TOKENS, eos_ids=self.text.eos_ids
            )
            self.loop.submit(request, sink)
        while self.loop.has_requests:
            self.loop.step()
        return sinks


@pytest.fixture(scope="module")
def cold(checkpoint: Checkpoint, text: ChatText) -> Talker:
    """Keeps nothing and drafts nothing."""
    return Talker(checkpoint, text, cache_bytes=0, draft_depth=0)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_a_conversation_with_repeats_and_edits_is_as_if_every_prompt_were_fresh(
    checkpoint: Checkpoint, text: ChatText, cold: Talker, sampling: Sampling
) -> None:
    warm = Talker(checkpoint, text, cache_bytes=PLENTY_BYTES)

    def same(said: Sequence[str]) -> tuple[int, str]:
        (reply,), (fresh,) = warm.ask(said, sampling=sampling), cold.ask(said, sampling=sampling)
        assert reply.ids == fresh.ids
        return reply.cached_tokens, text.text_of(reply.ids)

    said = [QUESTIONS[0]]
    first_tokens, answer = same(said)
    assert first_tokens == 0
    system_tokens = len(text.vocabulary.encode(SYSTEM))
    assert same(said)[0] >= system_tokens - 64
    lengths = []
    for question in (QUESTIONS[1], "Tell me a short story about a crab. " * 40, QUESTIONS[2]):
        said += [answer, question]
        lengths.append(len(warm.prompt(said)))
        cached_tokens, answer = same(said)
        # all but the last reply, the question, and what is left of a step of the grid
        assert cached_tokens >= len(warm.prompt(said[:-2])) - 64 - 8
    assert lengths[0] < warm.backend.boundary_tokens < lengths[-1]
    edited = [*said[:2], QUESTIONS[2]]
    assert same(edited)[0] >= system_tokens - 64


@pytest.mark.timeout(300)
def test_conversations_that_come_together_under_a_small_cap_are_as_if_fresh(
    checkpoint: Checkpoint, text: ChatText, cold: Talker
) -> None:
    costs = cold.backend.facts().piece_costs
    assert costs is not None
    warm = Talker(checkpoint, text, cache_bytes=costs.rows(256) + 2 * costs.end_bytes)
    for _ in range(2):
        for question in QUESTIONS:
            talks = [[question], [f"{question} " * 30, "Hi.", question]]
            replies, fresh = warm.ask(*talks, sampling=SAMPLED), cold.ask(*talks, sampling=SAMPLED)
            assert [reply.ids for reply in replies] == [reply.ids for reply in fresh]
            status = warm.loop.take_snapshot().cache
            assert warm.backend.kept_bytes <= status.bytes <= status.budget_bytes
    assert warm.loop.snapshot.cache.hits > 0
    assert warm.loop.snapshot.cache.evicted > 0
