"""The lanes over a tiny real model under every rule: drafted, crowded and moved replies are the plain."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from engine_bench import Bench

from hermitcrab.clock import ScriptedClock
from hermitcrab.core.api import Event, Failed, Finished, FinishReason, Request, Tokens
from hermitcrab.core.lanes import LaneRules
from hermitcrab.core.loop import HostLoop
from hermitcrab.core.thinking import Thinking
from hermitcrab.models.qwen4_exp.model import Model
from hermitcrab.sampling.edits import mask_of
from hermitcrab.sampling.logprobs import TokenLogprobs
from hermitcrab.sampling.params import Penalties, Sampling

VOCAB_TOKENS = 512
OPEN, CLOSE, BREAK, EOS = 500, 501, 502, 503
SAMPLED = Sampling(temperature=0.9, top_k=40, top_p=0.95, seed=3)


class Climbing:
    """A grammar of tokens that rise by 1 to 60 each, up to 400, and then end."""

    def __init__(self) -> None:
        self._last = 0

    def allowed(self, ahead: Sequence[int]) -> bytes | None:
        last = self._last
        for token in ahead:
            if not last < token <= last + 60:
                return None
            last = token
        tokens = [EOS] if last > 400 else range(last + 1, last + 61)
        return mask_of(tokens, vocab_tokens=VOCAB_TOKENS)

    def advance(self, token: int) -> None:
        self._last = token


@dataclass
class Told:
    """A sink that keeps what a reply said."""

    tokens: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    finished: Finished | None = None

    def put(self, event: Event) -> None:
        match event:
            case Tokens(ids, logprobs):
                self.tokens += ids
                self.logprobs += logprobs
            case Finished():
                self.finished = event
            case Failed(error=error):
                raise error


def requests(sampling: Sampling) -> list[Request]:
    """A request under each rule, new ones at every call: a grammar is used up by a reply."""
    prompt = tuple(range(30, 60))
    plain = Request("plain", prompt, sampling, max_new_tokens=40, top_logprobs=4)
    strong = Penalties(presence=1.0, frequency=0.5, repetition=1.2, bias=((7, 3.0), (EOS, 2.0)))
    thinks = Thinking(True, OPEN, (CLOSE, BREAK), 9)
    return [
        plain,
        replace(plain, id="penalties", penalties=strong),
        replace(plain, id="fewest", eos_ids=frozenset(range(256)), min_tokens=20),
        replace(plain, id="thinking", thinking=thinks),
        replace(plain, id="grammar", eos_ids=frozenset({EOS}), grammar=Climbing()),
        replace(
            plain,
            id="all",
            eos_ids=frozenset({EOS}),
            grammar=Climbing(),
            thinking=thinks,
            penalties=strong,
            min_tokens=12,
        ),
    ]


def replies(
    model: Model, asked: Sequence[Request], session_rows: Sequence[int], rules: LaneRules
) -> dict[str, Told]:
    """All requests at once on a fresh backend."""
    loop = HostLoop(Bench(model, session_rows).backend, rules, ScriptedClock())
    sinks = {request.id: Told() for request in asked}
    for request in asked:
        loop.submit(request, sinks[request.id])
    for _ in range(2000):
        if not loop.has_requests:
            return sinks
        loop.step()
    raise AssertionError("requests are left")


def said(told: Told) -> tuple[list[int], list[TokenLogprobs], FinishReason, str]:
    assert told.finished is not None
    return told.tokens, told.logprobs, told.finished.reason, told.finished.usage.tokens_sha256


@pytest.mark.parametrize("sampling", [Sampling(), SAMPLED], ids=["greedy", "sampled"])
def test_replies_under_rules_are_the_plain_ones_drafted_crowded_and_moved(
    models: dict[str, Model], sampling: Sampling
) -> None:
    model = models["default"]
    plain = {
        request.id: said(replies(model, [request], [192], LaneRules(draft_depth=0))[request.id])
        for request in requests(sampling)
    }
    crowd = replies(model, requests(sampling), [192, *[64] * 4], LaneRules(grow_tokens=16))
    assert {name: said(told) for name, told in crowd.items()} == plain
    ends = [told.finished.usage for told in crowd.values() if told.finished is not None]
    assert sum(usage.moves for usage in ends) > 0
    assert sum(usage.drafted for usage in ends) > 0
    assert all(logprobs for _, logprobs, _, _ in plain.values())


def test_each_rule_has_its_effect(models: dict[str, Model]) -> None:
    told = replies(models["default"], requests(SAMPLED), [192] * 6, LaneRules())
    grammar = told["grammar"].tokens
    assert all(0 < later - earlier <= 60 for earlier, later in zip([0, *grammar], grammar, strict=False))
    assert told["grammar"].finished is not None
    assert told["grammar"].finished.reason is FinishReason.STOP
    assert told["thinking"].tokens[8:10] == [CLOSE, BREAK]
    assert len(told["fewest"].tokens) >= 20
    assert all(token >= 256 for token in told["fewest"].tokens)
    assert told["penalties"].tokens != told["plain"].tokens
    assert all(len(item.top) == 4 for reply in told.values() for item in reply.logprobs)
