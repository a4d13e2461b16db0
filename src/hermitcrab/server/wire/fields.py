"""What requests of every dialect say in the same words, and how what is not supported is refused by name."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, WithJsonSchema

from hermitcrab.core.api import Priority
from hermitcrab.errors import RequestError
from hermitcrab.sampling.params import MOST_PENALTY, MOST_REPETITION, NO_PENALTIES, SEED_LIMIT, Penalties
from hermitcrab.server.text.grammar import Form
from hermitcrab.server.wire.body import RequestModel, refuse_not_yet

# refused on every route, each with the values that ask for nothing
NOT_YET: Mapping[str, tuple[object, ...]] = {
    "logprobs": (False,),
    "top_logprobs": (0,),
    "prompt_logprobs": (),
    "response_format": ({"type": "text"},),
    "structured_outputs": (),
    "guided_json": (),
    "guided_regex": (),
    "guided_choice": (),
    "guided_grammar": (),
}

MAX_STOP_TOKENS = 64
MAX_BIASES = 1024


def _token_ids(value: Any) -> Any:
    if value is None:
        return None
    if not isinstance(value, list) or not all(type(item) is int and item >= 0 for item in value):
        raise ValueError("must be a list of token ids")
    if len(value) > MAX_STOP_TOKENS:
        raise ValueError(f"may hold {MAX_STOP_TOKENS} ids at most")
    return tuple(value)


def _biases(value: Any) -> Any:
    """JSON keys are strings: token ids in digits."""
    if value is None:
        return None
    if not isinstance(value, dict) or not all(_is_id(key) for key in value):
        raise ValueError("must be an object whose keys are token ids")
    if len(value) > MAX_BIASES:
        raise ValueError(f"may hold {MAX_BIASES} tokens at most")
    if not all(type(bias) in (int, float) for bias in value.values()):
        raise ValueError("each bias must be a number")
    return {int(key): bias for key, bias in value.items()}


def _is_id(key: str) -> bool:
    # one spelling each, so that no token is named twice
    return key.isascii() and key.isdigit() and len(key) < 10 and key == str(int(key))


def within(low: float, high: float | None = None) -> Any:
    """Part of a field's annotation: its range, for the schema; it is checked where it is used."""
    bounds: dict[str, Any] = {"minimum": low}
    return Field(json_schema_extra=bounds if high is None else {**bounds, "maximum": high})


TokenIds = Annotated[
    tuple[int, ...] | None,
    BeforeValidator(_token_ids),
    WithJsonSchema(
        {"type": ["array", "null"], "items": {"type": "integer", "minimum": 0}, "maxItems": MAX_STOP_TOKENS}
    ),
]
Biases = Annotated[
    dict[int, float] | None,
    BeforeValidator(_biases),
    WithJsonSchema(
        {
            "type": ["object", "null"],
            "propertyNames": {"pattern": "^(0|[1-9][0-9]{0,8})$"},
            "additionalProperties": {"type": "number", "minimum": -100, "maximum": 100},
            "maxProperties": MAX_BIASES,
        }
    ),
]


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
    stop_token_ids: frozenset[int] = frozenset()
    min_tokens: int = 0
    penalties: Penalties = NO_PENALTIES
    thinking_budget: int | None = None
    top_logprobs: int | None = None
    form: Form | None = None
    priority: Priority = Priority.FOREGROUND


class GeneratingRequest(RequestModel):
    """What every route that makes a reply takes; `not_yet` has the fields refused, with harmless values."""

    not_yet: ClassVar[Mapping[str, tuple[object, ...]]] = NOT_YET

    model: str | None = None
    stream: bool | None = None
    seed: Annotated[int | None, within(0, SEED_LIMIT - 1)] = None
    temperature: Annotated[float | None, within(0, 100)] = None
    top_p: Annotated[float | None, within(0.001, 1)] = None
    top_k: Annotated[int | None, within(-1)] = None
    min_p: Annotated[float | None, within(0, 1)] = None
    ignore_eos: bool | None = None
    stop_token_ids: TokenIds = None
    min_tokens: Annotated[int | None, Field(ge=0)] = None
    presence_penalty: Annotated[float | None, within(-MOST_PENALTY, MOST_PENALTY)] = None
    frequency_penalty: Annotated[float | None, within(-MOST_PENALTY, MOST_PENALTY)] = None
    repetition_penalty: Annotated[float | None, within(1 / MOST_REPETITION, MOST_REPETITION)] = None
    logit_bias: Biases = None
    thinking_budget: Annotated[int | None, Field(ge=0)] = None

    logprobs: Any = None
    top_logprobs: Any = None
    prompt_logprobs: Any = None
    response_format: Any = None
    structured_outputs: Any = None
    guided_json: Any = None
    guided_regex: Any = None
    guided_choice: Any = None
    guided_grammar: Any = None

    def check(self) -> None:
        """Raises RequestError for a field that asks for something this server does not do yet."""
        refuse_not_yet(self, self.not_yet)

    @property
    def wants_stream(self) -> bool:
        return bool(self.stream)

    def wishes(self, *, stops: tuple[str, ...], most_tokens: int | None) -> Wishes:
        """The request's wishes; stop strings and the length limit have another name in each dialect.

        Raises RequestError for a penalty out of range, and for fewest tokens above the most.
        """
        if most_tokens is not None and (self.min_tokens or 0) > most_tokens:
            raise RequestError(
                f"min_tokens is {self.min_tokens} and the most tokens are {most_tokens}.", param="min_tokens"
            )
        return Wishes(
            stops=stops,
            most_tokens=most_tokens,
            ignore_eos=bool(self.ignore_eos),
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            min_p=self.min_p,
            seed=self.seed,
            stop_token_ids=frozenset(self.stop_token_ids or ()),
            min_tokens=self.min_tokens or 0,
            penalties=Penalties(
                presence=self.presence_penalty or 0.0,
                frequency=self.frequency_penalty or 0.0,
                repetition=1.0 if self.repetition_penalty is None else self.repetition_penalty,
                bias=tuple(sorted((self.logit_bias or {}).items())),
            ),
            thinking_budget=self.thinking_budget,
            top_logprobs=self.alternatives,
            form=self.form,
            priority=self.urgency,
        )

    @property
    def form(self) -> Form | None:
        """What the reply must be. Raises RequestError for what no reply can be."""
        return None

    @property
    def urgency(self) -> Priority:
        """Where the request stands in the queue."""
        return Priority.FOREGROUND

    @property
    def alternatives(self) -> int | None:
        """How many tokens to show beside each reply token, with log probabilities; None for none at all."""
        return None


def check_count(field: str, value: int | None, *, most: int | None = None) -> None:
    """Raises RequestError for a count that is given and below 1 or above `most`."""
    if value is not None and (value < 1 or (most is not None and value > most)):
        limit = "1 or more" if most is None else f"from 1 to {most}"
        raise RequestError(f"{field} must be {limit}, not {value}.", param=field)


def check_names(names: list[str]) -> None:
    """Raises RequestError when two of the offered tools have one name."""
    if len(set(names)) != len(names):
        raise RequestError("tools has two functions of the same name.", param="tools")
