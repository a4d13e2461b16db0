"""What a request may ask of the draw."""

import math

import pytest

from hermitcrab.errors import RequestError
from hermitcrab.sampling.params import SEED_LIMIT, Sampling


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1),
        ("temperature", 100.1),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("top_k", -1),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("top_p", math.nan),
        ("min_p", -0.1),
        ("min_p", 1.1),
        ("min_p", math.nan),
        ("seed", -1),
        ("seed", SEED_LIMIT),
    ],
)
def test_a_value_outside_its_range_is_refused_by_name(field: str, value: float) -> None:
    with pytest.raises(RequestError) as caught:
        Sampling(**{field: value})  # type: ignore[arg-type]  # wrong on purpose
    assert caught.value.param == field
    assert field in str(caught.value)


def test_the_ends_of_every_range_are_allowed() -> None:
    Sampling(temperature=100.0, top_k=0, top_p=1.0, min_p=1.0, seed=SEED_LIMIT - 1)
    Sampling(temperature=0.0, top_k=SEED_LIMIT - 1, top_p=5e-324, min_p=0.0, seed=0)


def test_only_temperature_zero_is_greedy() -> None:
    assert Sampling(temperature=0.0, top_p=0.5, seed=9).is_greedy
    assert not Sampling(temperature=5e-324).is_greedy
