"""What requests of every dialect say in the same words, and how what is not supported is refused by name."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from hermitcrab.errors import RequestError
from hermitcrab.server.wire.body import RequestModel, refuse_not_yet

# refused on every route, each with the values that ask for nothing
NOT_YET: Mapping[str, tuple[object, ...]] = {
    "logprobs": (False,),
    "top_logprobs": (0,),
    "prompt_logprobs": (),
    "presence_penalty": (0, 0.0),
    "frequency_penalty": (0, 0.0),
    "repetition_penalty": (1, 1.0),
    "logit_bias": ({},),
    "response_format": ({"type": "text"},),
    "structured_outputs": (),
    "guided_json": (),
    "guided_regex": (),
    "guided_choice": (),
    "guided_grammar": (),
    "min_tokens": (0,),
    "stop_token_ids": ([],),
    "thinking_budget": (0,),
}


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a request asks of its reply besides the words: its end and its draw. None is not said."""

    stops: tuple[str, ...]
    most_tokens: int | None
    ignore_eos: bool
    temperature: float | None
    top_p: float | None
    top_k: int | None
    min_p: float | None
    seed: int | None


class GeneratingRequest(RequestModel):
    """What every route that makes a reply takes; `not_yet` has the fields refused, with harmless values."""

    not_yet: ClassVar[Mapping[str, tuple[object, ...]]] = NOT_YET

    model: str | None = None
    stream: bool | None = None
    seed: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    ignore_eos: bool | None = None

    logprobs: Any = None
    top_logprobs: Any = None
    prompt_logprobs: Any = None
    presence_penalty: Any = None
    frequency_penalty: Any = None
    repetition_penalty: Any = None
    logit_bias: Any = None
    response_format: Any = None
    structured_outputs: Any = None
    guided_json: Any = None
    guided_regex: Any = None
    guided_choice: Any = None
    guided_grammar: Any = None
    min_tokens: Any = None
    stop_token_ids: Any = None
    thinking_budget: Any = None

    def check(self) -> None:
        """Raises RequestError for a field that asks for something this server does not do yet."""
        refuse_not_yet(self, self.not_yet)

    @property
    def wants_stream(self) -> bool:
        return bool(self.stream)

    def wishes(self, *, stops: tuple[str, ...], most_tokens: int | None) -> Wishes:
        """The request's wishes; stop strings and the length limit have another name in each dialect."""
        return Wishes(
            stops=stops,
            most_tokens=most_tokens,
            ignore_eos=bool(self.ignore_eos),
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            min_p=self.min_p,
            seed=self.seed,
        )


def check_count(field: str, value: int | None, *, most: int | None = None) -> None:
    """Raises RequestError for a count that is given and below 1 or above `most`."""
    if value is not None and (value < 1 or (most is not None and value > most)):
        limit = "1 or more" if most is None else f"from 1 to {most}"
        raise RequestError(f"{field} must be {limit}, not {value}.", param=field)


def check_names(names: list[str]) -> None:
    """Raises RequestError when two of the offered tools have one name."""
    if len(set(names)) != len(names):
        raise RequestError("tools has two functions of the same name.", param="tools")
