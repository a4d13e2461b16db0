"""A test that proves the tests: without any one measure of exactness, checks of `parity --quick` fail.

On the built-in model in float32. Where bits happen to survive on some machine, its measure could not be shown
there, and the test fails rather than passes: see docs/exactness.md for what was seen where.
"""

from dataclasses import replace

import pytest

from hermitcrab.assemble import find_model
from hermitcrab.clock import WallClock
from hermitcrab.core.load_check import CheckState
from hermitcrab.kernels.measures import Measures, ProductPath
from hermitcrab.receipts.cases import QUICK
from hermitcrab.receipts.parity import TOPICS, Bench, open_bench
from hermitcrab.receipts.record import Outcome, Verdict
from hermitcrab.receipts.traffic import Weather
from hermitcrab.settings import ModelSettings

EXACT = Measures()

# the parts of a quick run, with its smallest crowd only
SCALE = replace(QUICK, streams=QUICK.streams[:1])

# each measure's plain form, and the part of a quick run that must see it
MUTATIONS = {
    "products": (replace(EXACT, products=ProductPath.PLAIN), "concurrency"),
    "activations": (replace(EXACT, activations=False), "concurrency"),
    "attention": (replace(EXACT, attention=False), "concurrency"),
    "recurrence": (replace(EXACT, recurrence=False), "windows"),
    "prompt_grid": (replace(EXACT, prompt_grid=False), "prompts"),
}

# those whose plain form changes windows or shared rounds; the grid is a matter of prompts
SEEN_AT_LOAD = ("products", "activations", "attention", "recurrence")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def quick_bench(measures: Measures, *, load_check: bool) -> Bench:
    settings = ModelSettings(threads=1, load_check=load_check)
    return open_bench(
        find_model(settings), SCALE, WallClock(), lambda stage, done, total: None, measures=measures
    )


def first_failure(bench: Bench, topic: str) -> Outcome | None:
    """The topic's first outcome that fails a run; the checks behind it are not made."""
    outcomes = TOPICS[topic](bench, Weather(seed=1, minutes=None))
    return next((outcome for outcome in outcomes if outcome.is_failure), None)


def test_every_measure_has_a_mutation() -> None:
    assert set(MUTATIONS) == set(Measures.__dataclass_fields__)


@pytest.mark.parametrize("measure", MUTATIONS)
def test_parity_fails_without_the_measure(measure: str) -> None:
    measures, topic = MUTATIONS[measure]
    failure = first_failure(quick_bench(measures, load_check=False), topic)
    assert failure is not None
    assert failure.verdict is Verdict.DIFFERENT


@pytest.mark.parametrize("measure", SEEN_AT_LOAD)
def test_the_load_check_switches_off_what_lacks_the_measure(measure: str) -> None:
    measures, _ = MUTATIONS[measure]
    assert quick_bench(measures, load_check=True).load_check.state is CheckState.REDUCED


@pytest.mark.parametrize("topic", sorted({topic for _, topic in MUTATIONS.values()}))
def test_with_every_measure_the_same_checks_pass(topic: str) -> None:
    assert first_failure(quick_bench(EXACT, load_check=False), topic) is None


def test_what_the_load_check_leaves_on_is_exact_without_the_measure() -> None:
    bench = quick_bench(MUTATIONS["recurrence"][0], load_check=True)
    assert bench.load_check.off_widths
    assert not bench.load_check.is_sharing_off
    assert first_failure(bench, "concurrency") is None
