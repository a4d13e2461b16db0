"""The real engine fails at each call, before or after its work: the others reply as they do alone.

Cache memory is NaN where nothing was written, so a stream that went on over a broken session would show it.
"""

import functools
from collections import Counter

import pytest
from engine_bench import Bench
from fault_bench import ENDING, FailingBackend, FaultHouse, Moment, OneFault, Place

from hermitcrab.core.api import Request
from hermitcrab.core.fake import CallKind
from hermitcrab.core.kept import CacheRules
from hermitcrab.core.lanes import LaneRules
from hermitcrab.errors import DeviceFailed, LaneMemory
from hermitcrab.models.qwen4_exp.model import Model
from hermitcrab.sampling.params import Sampling

# the prompt grid of the tiny models is 64 rows
GRID_ROWS = 64
SESSION_ROWS = (288, 176, 104, 104)
START = 1
SAMPLED = Sampling(temperature=0.8, seed=5)
SHARED = (START, *range(20, 83), START)


def rules(model: Model) -> LaneRules:
    """Memory for two states of one grid step, so that a third drops one."""
    costs = Bench(model, [8]).backend.facts().piece_costs
    assert costs is not None
    budget_bytes = 2 * (costs.rows(GRID_ROWS) + costs.end_bytes)
    return LaneRules(
        grow_tokens=8, drafts_always=True, cache=CacheRules(budget_bytes, frozenset({START}), gap_rows=0)
    )


# two outgrow their sessions together, a long prompt fills beside them, two share a prefix, the others queue
CROWD = (
    Request("grower", (*SHARED, 11), Sampling(), max_new_tokens=60),
    Request("rival", (*SHARED, 12), SAMPLED, max_new_tokens=50),
    Request("long", tuple((7 * place) % 400 + 2 for place in range(150)), SAMPLED, max_new_tokens=8),
    Request("queued", (*SHARED, 90, 91), Sampling(), max_new_tokens=6),
    Request("other", (START, *range(200, 263), START, 5), Sampling(), max_new_tokens=4),
    Request("third", (START, *range(300, 363), START, 5), Sampling(), max_new_tokens=4),
)
NEXT = (
    Request("next", tuple(place % 300 + 2 for place in range(200)), Sampling(), max_new_tokens=10),
    *(Request(f"small {seed}", (3, 4, 5), Sampling(0.9, seed=seed), max_new_tokens=12) for seed in range(3)),
)


def house(model: Model, fault: OneFault | None = None) -> FaultHouse:
    return FaultHouse(FailingBackend(Bench(model, SESSION_ROWS).backend, fault), rules(model))


@pytest.fixture(scope="module")
def model(models: dict[str, Model]) -> Model:
    return models["default"]


@pytest.fixture(scope="module")
def counts(model: Model) -> Counter[CallKind]:
    """The calls of each kind that the crowd makes when nothing fails."""
    clean = house(model)
    clean.serve(CROWD)
    return clean.backend.counts


@functools.cache
def _alone(model: Model, request: Request) -> list[int]:
    """Its tokens alone, undrafted, in a session that it never leaves, with nothing kept."""
    solo = FaultHouse(FailingBackend(Bench(model, [288]).backend), LaneRules(draft_depth=0))
    solo.serve([request])
    return solo.ears[request.id].tokens


def test_the_crowd_makes_every_kind_of_call(counts: Counter[CallKind]) -> None:
    assert set(counts) == set(CallKind)


def check_fault(model: Model, fault: OneFault, *, ends: bool) -> None:
    """Serve the crowd with a fault, then others in every session."""
    served = house(model, fault)
    served.serve(CROWD)
    assert served.backend.has_failed
    failed = served.failed(CROWD)
    assert failed == (served.backend.hit if ends else set())
    for request in CROWD:
        tokens, alone = served.ears[request.id].tokens, _alone(model, request)
        assert tokens == (alone[: len(tokens)] if request.id in failed else alone)
    served.serve(NEXT)
    assert [served.ears[request.id].tokens for request in NEXT] == [_alone(model, item) for item in NEXT]
    assert served.is_empty


@pytest.mark.parametrize("moment", Moment)
@pytest.mark.parametrize("kind", CallKind)
def test_a_failed_call_of_the_engine_ends_those_it_was_for_and_nobody_else(
    model: Model, counts: Counter[CallKind], kind: CallKind, moment: Moment
) -> None:
    error = RuntimeError("CUDA error: an illegal memory access")
    check_fault(model, OneFault(kind, Place.MIDDLE.nth(counts[kind]), moment, error), ends=kind in ENDING)


@pytest.mark.slow
@pytest.mark.parametrize("moment", Moment)
@pytest.mark.parametrize("place", [Place.FIRST, Place.LAST])
@pytest.mark.parametrize("kind", CallKind)
def test_a_failed_call_early_or_late_ends_those_it_was_for_and_nobody_else(
    model: Model, counts: Counter[CallKind], kind: CallKind, place: Place, moment: Moment
) -> None:
    fault = OneFault(kind, place.nth(counts[kind]), moment, DeviceFailed("the device failed"))
    check_fault(model, fault, ends=kind in ENDING)


@pytest.mark.parametrize("place", Place)
def test_no_memory_for_a_move_of_the_engine_ends_nobody(
    model: Model, counts: Counter[CallKind], place: Place
) -> None:
    fault = OneFault(
        CallKind.MOVE, place.nth(counts[CallKind.MOVE]), Moment.BEFORE, LaneMemory("no memory now")
    )
    check_fault(model, fault, ends=False)
