"""The plan of a model nobody here has: what it lists, whether it fits, what it suggests."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from hermitcrab.assemble import PlanRequest, choose_sessions, find_model, parse_format, plan_memory
from hermitcrab.core.slot_list import parse_slot_contexts
from hermitcrab.errors import BudgetError, SettingError
from hermitcrab.memory.budget import MARGIN_BYTES
from hermitcrab.memory.plan import MemoryPlan
from hermitcrab.models.qwen4_exp.fields import read_json
from hermitcrab.models.qwen4_exp.tiny import write_hollow
from hermitcrab.settings import ModelSettings, SessionSettings

GB = 10**9
FLAGSHIP = Path(__file__).parent / "flagship"
LISTED = "65536,32768x3,16384x11"

PACKED = PlanRequest(
    path=str(FLAGSHIP),
    context_tokens=None,
    slot_contexts=LISTED,
    dtype="float32",
    is_packed=True,
    has_weights=False,
    stored_format=parse_format("6bit-g32"),
    device_bytes=256 * GB,
    limit_bytes=None,
    cache_bytes=0,
    draft_depth=None,
)


def amounts(plan: MemoryPlan) -> dict[str, int]:
    return {line.name: line.bytes for line in plan.lines}


def test_the_parts_of_a_plan_are_its_sum() -> None:
    plan = plan_memory(replace(PACKED, cache_bytes=5 * GB))
    found = amounts(plan)
    assert found["prompt cache"] == 5 * GB
    assert found["margin"] == MARGIN_BYTES
    sessions = sum(item.count * item.bytes_each for item in plan.sessions)
    assert plan.needed_bytes == sum(found.values()) + sessions
    assert plan.left_bytes == plan.ledger.cap_bytes - plan.needed_bytes


def test_the_list_of_the_thread_fits_a_256_gb_machine_by_default() -> None:
    plan = plan_memory(PACKED)
    assert plan.refusal is None
    assert plan.ledger.cap_bytes == 256 * GB * 70 // 100


def test_on_141_gb_it_fits_with_the_limit_raised_and_not_by_default() -> None:
    machine = replace(PACKED, device_bytes=141 * GB)
    assert plan_memory(replace(machine, limit_bytes=138 * GB)).refusal is None
    refused = plan_memory(machine)
    assert refused.refusal is not None
    assert "Raise --load-limit-gb, up to the device's 131.32 GiB" in refused.suggestions[0]


def test_the_15_sessions_of_the_thread_take_what_it_says() -> None:
    whole, *listed = plan_memory(PACKED).sessions
    assert sum(item.total_bytes for item in listed) == pytest.approx(11.6 * (1 << 30), rel=0.02)
    assert (whole.tokens, whole.count) == (262_144, 1)


def test_a_list_that_does_not_fit_is_answered_with_the_largest_that_does() -> None:
    tight = replace(PACKED, device_bytes=141 * GB, limit_bytes=130 * GB)
    (shrunk, *_) = plan_memory(tight).suggestions
    listed = re.findall(r"--slot-contexts (\S+)", shrunk)[0]
    assert plan_memory(replace(tight, slot_contexts=listed)).refusal is None
    sizes = parse_slot_contexts(listed, sessions_allowed=63, context_tokens=262_144)
    assert len(sizes) == 15
    larger = ",".join(str(size + size // 100) for size in sizes)
    assert plan_memory(replace(tight, slot_contexts=larger)).refusal is not None


def test_what_a_plan_suggests_adding_fits_and_one_more_does_not() -> None:
    machine = replace(PACKED, device_bytes=141 * GB, limit_bytes=138 * GB)
    (more, _) = plan_memory(machine).suggestions
    listed = re.findall(r"--slot-contexts (\S+)", more)[0]
    assert plan_memory(replace(machine, slot_contexts=listed)).refusal is None
    assert plan_memory(replace(machine, slot_contexts=f"{listed},16384")).refusal is not None


def test_a_plan_never_suggests_more_sessions_than_a_round_has_rows() -> None:
    (more, _) = plan_memory(replace(PACKED, device_bytes=4000 * GB)).suggestions
    listed = re.findall(r"--slot-contexts (\S+)", more)[0]
    assert len(parse_slot_contexts(listed, sessions_allowed=63, context_tokens=262_144)) == 63


def test_a_prompt_cache_may_grow_by_what_the_plan_says_and_no_more() -> None:
    (*_, words) = plan_memory(PACKED).suggestions
    more = float(re.findall(r"could take ([0-9.]+) GB more", words)[0])
    assert plan_memory(replace(PACKED, cache_bytes=int((more - 0.1) * GB))).refusal is None
    assert plan_memory(replace(PACKED, cache_bytes=int((more + 0.1) * GB))).refusal is not None


def test_the_cpu_engine_keeps_dequantized_weights_and_copies_while_it_loads() -> None:
    plan = plan_memory(replace(PACKED, is_packed=False, dtype="bfloat16", device_bytes=1000 * GB))
    found = amounts(plan)
    assert found["weights"] == pytest.approx(256.7 * GB, rel=0.02)
    assert found["loading, beyond the cache"] > 70 * GB
    assert not plan.is_planned


def test_what_loading_takes_is_the_prompt_caches_later() -> None:
    request = replace(PACKED, is_packed=False, dtype="bfloat16", device_bytes=1000 * GB)
    alone, beside = (plan_memory(replace(request, cache_bytes=size)) for size in (0, 20 * GB))
    assert alone.needed_bytes == beside.needed_bytes


def test_a_machine_that_no_limit_makes_large_enough_is_told_so() -> None:
    plan = plan_memory(replace(PACKED, is_packed=False, dtype="bfloat16"))
    assert plan.refusal is not None
    assert "no limit helps" in plan.suggestions[0]
    assert len(plan.suggestions) == 1


@pytest.mark.parametrize("text", ["6bit", "7bit-g32", "float64", ""])
def test_a_format_that_nobody_stores_is_refused_with_those_that_are(text: str) -> None:
    with pytest.raises(SettingError, match="6bit-g32"):
        parse_format(text)


def test_a_context_beyond_the_models_positions_is_refused() -> None:
    with pytest.raises(SettingError, match="positions end at 262144"):
        plan_memory(replace(PACKED, context_tokens=300_000))


@pytest.fixture
def hollow(tmp_path: Path) -> Path:
    """The whole 6-bit checkpoint's headers over 157 GB of nothing: no test could read it."""
    try:
        write_hollow(tmp_path, read_json(FLAGSHIP / "config.json"), bits=6, group_size=32)
    except OSError as error:
        pytest.skip(f"files with holes of this size cannot be made here: {error}")
    return tmp_path


def test_headers_alone_give_the_plan_that_the_format_gives(hollow: Path) -> None:
    assumed = plan_memory(PACKED)
    found = plan_memory(replace(PACKED, path=str(hollow), has_weights=True))
    assert found.needed_bytes == pytest.approx(assumed.needed_bytes, rel=0.0001)


def test_a_server_refuses_the_real_checkpoint_before_any_weight_is_read(hollow: Path) -> None:
    model = find_model(ModelSettings(path=str(hollow)))
    with pytest.raises(BudgetError) as caught:
        choose_sessions(model, SessionSettings(slot_contexts=LISTED, load_limit_gb=64.0))
    message = str(caught.value)
    for words in (
        "The sessions need",
        "there is room for 0.00 GiB",
        "1 x 262144 tokens",
        "11 x 16384 tokens",
        "work buffers of a prompt pass and a round",
        "--load-limit-gb",
        "- loading",
        "ready: weights",
    ):
        assert words in message
