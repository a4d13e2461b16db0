"""What a request asks of the draw, validated; the same values on every path a token can take."""

from dataclasses import dataclass

from hermitcrab.errors import RequestError

SEED_LIMIT = 1 << 63

# OpenAI's ranges; the repetition penalty has none that is agreed on
MOST_PENALTY = 2.0
MOST_BIAS = 100.0
MOST_REPETITION = 100.0


@dataclass(frozen=True, slots=True)
class Sampling:
    """How one reply's tokens are drawn; a token is a function of its logits, its position and these.

    `temperature` 0 is arg-max (ties to the lower id) whatever the rest says. `top_k` 0 and `top_p` 1 and
    `min_p` 0 switch their cut off. `seed` is below 2**63.

    Raises RequestError, naming the field, for a value outside its range.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        # NaN fails every comparison, so each test is written as "is it inside"
        if not 0.0 <= self.temperature <= 100.0:
            raise RequestError(
                f"temperature must be from 0 to 100, not {self.temperature}", param="temperature"
            )
        if not 0 <= self.top_k < SEED_LIMIT:
            raise RequestError(f"top_k must be 0 (off) or a positive count, not {self.top_k}", param="top_k")
        if not 0.0 < self.top_p <= 1.0:
            raise RequestError(f"top_p must be above 0 and at most 1, not {self.top_p}", param="top_p")
        if not 0.0 <= self.min_p <= 1.0:
            raise RequestError(f"min_p must be from 0 to 1, not {self.min_p}", param="min_p")
        if not 0 <= self.seed < SEED_LIMIT:
            raise RequestError(f"seed must be from 0 to 2**63 - 1, not {self.seed}", param="seed")

    @property
    def is_greedy(self) -> bool:
        """True when the draw is the arg-max and the seed has no part in it."""
        return self.temperature == 0.0


@dataclass(frozen=True, slots=True)
class Penalties:
    """How a reply's earlier tokens and the request's biases change its logits; the rule is in edits.py.

    `presence` and `frequency` (0: off) look at the reply, `repetition` (1: off) at the prompt too. `bias` has
    (token, addend) pairs, each token once.

    Raises RequestError, naming the field, for a value outside its range.
    """

    presence: float = 0.0
    frequency: float = 0.0
    repetition: float = 1.0
    bias: tuple[tuple[int, float], ...] = ()

    def __post_init__(self) -> None:
        for name, value in (("presence_penalty", self.presence), ("frequency_penalty", self.frequency)):
            if not -MOST_PENALTY <= value <= MOST_PENALTY:
                raise RequestError(f"{name} must be from -2 to 2, not {value}", param=name)
        if not 1.0 / MOST_REPETITION <= self.repetition <= MOST_REPETITION:
            raise RequestError(
                f"repetition_penalty must be from 0.01 to 100, not {self.repetition}",
                param="repetition_penalty",
            )
        if len({token for token, _ in self.bias}) != len(self.bias):
            raise RequestError("logit_bias names a token twice", param="logit_bias")
        for token, addend in self.bias:
            if not -MOST_BIAS <= addend <= MOST_BIAS:
                raise RequestError(
                    f"logit_bias must be from -100 to 100, not {addend} for token {token}", param="logit_bias"
                )

    @property
    def looks_back(self) -> bool:
        """True when earlier tokens change a logit."""
        return self.presence != 0.0 or self.frequency != 0.0 or self.repetition != 1.0

    @property
    def are_off(self) -> bool:
        """True when no logit is changed."""
        return not self.looks_back and not self.bias


NO_PENALTIES = Penalties()
