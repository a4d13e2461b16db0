"""What goes into a simulation: costs, loads, trails as loads; files that are none say what is wrong."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from sim_bench import COSTS

from hermitcrab.clock import ScriptedClock
from hermitcrab.core.api import Event, Request
from hermitcrab.core.fake import FakeBackend
from hermitcrab.core.lanes import LaneRules
from hermitcrab.core.recorder import Recorder, open_trail
from hermitcrab.core.recording import RecordedLoop
from hermitcrab.errors import TrailError
from hermitcrab.sampling.params import Sampling
from hermitcrab.simulate.costs import H200_COSTS, DraftGain, RoundCost, read_costs
from hermitcrab.simulate.load import LOADS, Arrival, draw_load, read_load


class Ear:
    """A sink that nobody listens at."""

    def put(self, event: Event) -> None:
        pass


@pytest.mark.parametrize(("streams", "ms"), [(1, 10.0), (6, 15.0), (11, 20.0), (21, 30.0)])
def test_rounds_cost_what_the_lines_between_and_beyond_the_table_say(streams: int, ms: float) -> None:
    assert COSTS.token_ms(streams) == pytest.approx(ms)


def test_without_measured_windows_a_draft_costs_as_a_stream_does() -> None:
    assert COSTS.round_ms(streams=2, rows=6) == pytest.approx(15.0)


def test_measured_windows_stand_between_widths() -> None:
    costs = replace(COSTS, rounds=(*COSTS.rounds, RoundCost(1, 3, 14.0)))
    assert costs.round_ms(streams=1, rows=2) == pytest.approx(12.0)


def test_drafts_are_made_where_they_pay() -> None:
    costs = replace(COSTS, drafting=DraftGain(window_rows=3, tokens=2.0))
    # 12 ms for 2 tokens; at 11 streams 42 ms for 2 are no gain over 20 for 1
    assert costs.token_ms(1) == pytest.approx(6.0)
    assert costs.token_ms(11) == pytest.approx(20.0)


def test_the_default_says_where_it_comes_from_and_goes_through_its_points() -> None:
    assert "one H200, not measured whole" in H200_COSTS.source
    assert [H200_COSTS.token_ms(streams) for streams in (1, 8, 16)] == [11.5, 29.5, 52.5]


def test_a_table_comes_back_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "costs.json"
    path.write_text(json.dumps(asdict(H200_COSTS)))
    assert read_costs(path) == H200_COSTS


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"rounds": []}, "at least one round"),
        ({"rounds": [{"streams": 4, "rows": 2, "ms": 1.0}]}, "at least a row for each stream"),
        ({"prompt_row_ms": -1.0}, "below 0 are not allowed"),
        ({"row_bytes": "much"}, "'much' is no int"),
        ({"speed": 1}, "Costs has no speed"),
        ({"drafting": {"window_rows": 2, "tokens": 3.0}}, "at most one a row"),
    ],
)
def test_a_table_that_no_device_has_is_refused(tmp_path: Path, change: dict, says: str) -> None:
    path = tmp_path / "costs.json"
    path.write_text(json.dumps(asdict(H200_COSTS) | change))
    with pytest.raises(TrailError, match=says):
        read_costs(path)


def test_a_trace_is_read_in_order_of_time(tmp_path: Path) -> None:
    path = tmp_path / "load.jsonl"
    path.write_text(
        '{"arrival_s": 2, "prompt_tokens": 5, "reply_tokens": 6}\n\n'
        '{"arrival_s": 0.5, "prompt_tokens": 7, "reply_tokens": 8, "max_tokens": 9}\n'
    )
    assert read_load(path) == (Arrival(0.5, 7, 8, 9), Arrival(2.0, 5, 6))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "no requests in it"),
        ("{", "line 1 is no JSON object"),
        ("{\n{}", "line 1 is no JSON object"),
        ('{"trail": 1}', "a trail of another version: KeyError: 'at_us'"),
        ('{"arrival_s": 0, "prompt_tokens": 5}', "line 1: Arrival needs reply_tokens"),
        ('{"arrival_s": -1, "prompt_tokens": 5, "reply_tokens": 1}', "line 1: a time below 0"),
        (
            '{"arrival_s": 0, "prompt_tokens": 5, "reply_tokens": 0}',
            "line 1: a time below 0, or a count below 1",
        ),
    ],
)
def test_a_file_that_is_no_trace_is_refused_with_its_line(tmp_path: Path, content: str, says: str) -> None:
    path = tmp_path / "load.jsonl"
    path.write_text(content)
    with pytest.raises(TrailError, match=says):
        read_load(path)


def test_a_trail_is_a_load_of_the_requests_that_had_a_token(tmp_path: Path) -> None:
    path, clock = tmp_path / "trail.jsonl", ScriptedClock(500.0)
    backend = FakeBackend((64,), on_call=lambda call: clock.advance(0.5))
    loop = RecordedLoop(backend, LaneRules(), Recorder(open_trail(path), clock), ())
    requests = {
        name: Request(name, (1,) * prompt_tokens, Sampling(), max_new_tokens=reply_tokens)
        for name, prompt_tokens, reply_tokens in (("a", 9, 7), ("b", 5, 30), ("c", 3, 2))
    }
    loop.submit(requests["a"], Ear())
    clock.advance(3.0)
    loop.submit(requests["b"], Ear())
    loop.submit(requests["c"], Ear())
    loop.cancel("c")
    while loop.has_requests:
        loop.step()
    with path.open("a") as file:
        file.write('{"act":"st')
    assert read_load(path) == (Arrival(0.0, 9, 7, 7), Arrival(3.0, 5, 30, 30))


@pytest.mark.parametrize("read", [read_load, read_costs])
def test_a_file_that_is_not_there_is_named(tmp_path: Path, read: object) -> None:
    with pytest.raises(TrailError, match="nowhere: cannot be read: No such file"):
        read(tmp_path / "nowhere")  # type: ignore[operator]  # one of the two above


@pytest.mark.parametrize("name", LOADS)
def test_the_same_seed_draws_the_same_load_and_another_one_does_not(name: str) -> None:
    one, same, other = (draw_load(name, count=50, per_minute=10, seed=seed) for seed in (1, 1, 2))
    assert one == same
    assert one != other


def test_a_load_comes_at_about_its_rate() -> None:
    last_s = draw_load("chats", count=2000, per_minute=30, seed=0)[-1].arrival_s
    assert last_s == pytest.approx(2000 * 2.0, rel=0.1)
