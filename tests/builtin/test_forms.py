"""The built-in model under rules: JSON that fits, texts from a list; the same drafted, crowded, and plain."""

import json
from dataclasses import dataclass, field

import pytest

from hermitcrab.clock import ScriptedClock
from hermitcrab.core.api import Event, Failed, Finished, Request, Tokens, Usage
from hermitcrab.core.lanes import LaneRules
from hermitcrab.core.loop import HostLoop
from hermitcrab.engine.build import build_backend
from hermitcrab.models.qwen4_exp.checkpoint import Checkpoint
from hermitcrab.sampling.logprobs import TokenLogprobs
from hermitcrab.sampling.params import Penalties, Sampling
from hermitcrab.server.text.chat import ChatText
from hermitcrab.server.text.grammar import choice_form, json_form

SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 12},
        "capital": {"type": "boolean"},
        "rank": {"type": "integer", "minimum": 1, "maximum": 99},
    },
    "required": ["city", "capital", "rank"],
    "additionalProperties": False,
}
SESSION_ROWS = 256


@dataclass
class Told:
    """A sink that keeps what a reply said."""

    ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    usage: Usage | None = None

    def put(self, event: Event) -> None:
        match event:
            case Tokens(ids, logprobs):
                self.ids += ids
                self.logprobs += logprobs
            case Finished(usage=usage):
                self.usage = usage
            case Failed(error=error):
                raise error


def requests(text: ChatText, sampling: Sampling) -> list[Request]:
    """A request with each form, new at every call: a grammar is used up by a reply."""
    prompt = text.chat_prompt(
        [{"role": "user", "content": "What is the capital of France?"}], [], {"enable_thinking": False}
    )
    forms = {
        "json": json_form(SCHEMA, "form"),
        "choice": choice_form(["Paris", "Rome", "Oslo is not in France"], "form"),
        "plain": None,
    }
    return [
        Request(
            name,
            prompt.ids,
            sampling,
            max_new_tokens=120,
            eos_ids=text.eos_ids,
            penalties=Penalties(presence=0.3, repetition=1.1),
            grammar=None if form is None else text.grammar(form, ignore_eos=False),
            top_logprobs=2,
        )
        for name, form in forms.items()
    ]


def run(checkpoint: Checkpoint, asked: list[Request], *, draft_depth: int | None) -> dict[str, Told]:
    """All requests at once on a fresh engine."""
    backend = build_backend(
        checkpoint,
        dtype="float32",
        session_rows=[SESSION_ROWS] * len(asked),
        draft_depth=draft_depth,
        threads=1,
    )
    loop = HostLoop(backend, LaneRules(), ScriptedClock())
    sinks = {request.id: Told() for request in asked}
    for request in asked:
        loop.submit(request, sinks[request.id])
    while loop.has_requests:
        loop.step()
    return sinks


@pytest.mark.parametrize(
    "sampling", [Sampling(), Sampling(temperature=1.0, top_k=20, seed=6)], ids=["greedy", "sampled"]
)
def test_forms_are_kept_and_the_same_drafted_beside_others_and_alone(
    checkpoint: Checkpoint, text: ChatText, sampling: Sampling
) -> None:
    crowd = run(checkpoint, requests(text, sampling), draft_depth=None)
    alone: dict[str, Told] = {}
    for request in requests(text, sampling):
        alone |= run(checkpoint, [request], draft_depth=0)
    assert {name: (told.ids, told.logprobs) for name, told in crowd.items()} == {
        name: (told.ids, told.logprobs) for name, told in alone.items()
    }
    said = json.loads(text.text_of(crowd["json"].ids))
    assert set(said) == {"city", "capital", "rank"}
    assert 1 <= said["rank"] <= 99
    assert text.text_of(crowd["choice"].ids) in ("Paris", "Rome", "Oslo is not in France")
    assert crowd["json"].usage is not None
    assert crowd["json"].usage.drafted > 0
