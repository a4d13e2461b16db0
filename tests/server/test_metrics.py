"""GET /metrics: every number is exact against a load that is known."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families
from served import ENDLESS, MODEL, RANDOM, Gate, Served, SlowRounds, asking, is_idle, serving

import hermitcrab
from hermitcrab.clock import ScriptedClock
from hermitcrab.core.fake import Call, CallKind
from hermitcrab.errors import DeviceFailed
from hermitcrab.server.options import ServerOptions
from hermitcrab.server.text.chat import ChatText

OPERATIONS = Path(__file__).parents[2] / "docs" / "operations.md"

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def families(served: Served) -> list[Metric]:
    response = served.send("GET", "/metrics")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    return list(text_string_to_metric_families(response.text))


class Metrics:
    """One answer of /metrics, to be asked by name without the prefix, and labels."""

    def __init__(self, served: Served) -> None:
        self._samples: Samples = {
            (sample.name.removeprefix("hermitcrab_"), tuple(sorted(sample.labels.items()))): sample.value
            for family in families(served)
            for sample in family.samples
        }

    def __call__(self, name: str, **labels: str) -> float:
        return self._samples[name, tuple(sorted(labels.items()))]


@pytest.fixture(scope="module")
def served(text: ChatText) -> Iterator[Served]:
    options = ServerOptions(MODEL, session_bytes=123_456)
    with serving(text, session_rows=(512, 64, 256, 64), grow_tokens=16, options=options) as made:
        yield made


def test_a_server_that_did_nothing_shows_every_metric_at_rest(served: Served) -> None:
    told = Metrics(served)
    assert told("info", version=hermitcrab.__version__, model=MODEL) == 1
    for state in ("queued", "filling", "live", "paused"):
        assert told("requests", state=state) == 0
    for outcome in ("stop", "length", "cancelled", "failed"):
        assert told("requests_ended_total", outcome=outcome) == 0
    for name in ("queue", "first_token", "token", "pause"):
        assert told(f"{name}_seconds_count") == 0
    assert told("draining") == 0
    assert told("session_bytes") == 123_456


def test_sessions_are_told_by_size(served: Served) -> None:
    told = Metrics(served)
    for capacity_rows, count in (("64", 2), ("256", 1), ("512", 1)):
        assert told("sessions", capacity_rows=capacity_rows) == count
        assert told("sessions_used", capacity_rows=capacity_rows) == 0
        assert told("session_rows", capacity_rows=capacity_rows) == count * int(capacity_rows)
        assert told("session_rows_used", capacity_rows=capacity_rows) == 0


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc to read the process's memory from")
def test_the_process_tells_its_memory(served: Served) -> None:
    assert Metrics(served)("process_resident_memory_bytes") > 1 << 20


def test_openmetrics_is_spoken_where_it_is_asked_for(served: Served) -> None:
    headers = {"Accept": "application/openmetrics-text; version=1.0.0"}
    response = served.send("GET", "/metrics", headers=headers)
    assert response.headers["content-type"].startswith("application/openmetrics-text")
    assert "hermitcrab_moves" in {family.name for family in parse_openmetrics(response.text)}


def test_counters_are_exact_after_a_load_of_every_outcome(text: ChatText) -> None:
    def fail_on_a_long_prompt(call: Call) -> None:
        if call.kind is CallKind.PREFILL and max(call.rows) > 200:
            raise DeviceFailed("the device is on fire")

    with serving(
        text, session_rows=(1024, 128, 128), grow_tokens=16, on_call=fail_on_a_long_prompt
    ) as served:
        stopped = [served.chat("hi").json() for _ in range(3)]
        # outgrows a session of 128 rows, twice
        cut = [served.chat(RANDOM, max_tokens=300, ignore_eos=True).json() for _ in range(2)]
        assert served.chat("x " * 400).status_code == 500
        assert served.chat("hi", temperature="hot").status_code == 400
        assert served.chat("hi", model="nobody").status_code == 404
        told = Metrics(served)
    whole = [*stopped, *cut]
    assert told("requests_ended_total", outcome="stop") == 3
    assert told("requests_ended_total", outcome="length") == 2
    assert told("requests_ended_total", outcome="failed") == 1
    assert told("requests_ended_total", outcome="cancelled") == 0
    assert told("prompt_tokens_total") == sum(reply["usage"]["prompt_tokens"] for reply in whole)
    assert told("reply_tokens_total") == sum(reply["usage"]["completion_tokens"] for reply in whole)
    assert told("rounds_total") == sum(reply["hermitcrab"]["rounds"] for reply in whole)
    for key in ("drafted", "accepted"):
        by_source = [told(f"{key}_tokens_total", source=source) for source in ("head", "copy")]
        assert sum(by_source) == sum(reply["hermitcrab"][key] for reply in whole)
    assert told("moves_total") == sum(reply["hermitcrab"]["moves"] for reply in whole) == 2
    assert told("pauses_total") == 0
    # the failed one had a session, and never a token
    assert told("queue_seconds_count") == 6
    assert told("first_token_seconds_count") == told("token_seconds_count") == 5
    for status, count in (("200", 5), ("400", 1), ("404", 1), ("500", 1)):
        assert told("http_responses_total", status=status) == count


def test_gauges_show_who_runs_and_who_waits(text: ChatText) -> None:
    with serving(text, session_rows=(4096, 4096), on_call=SlowRounds()) as served:
        with asking(served, 5, ENDLESS):
            served.wait_until(lambda status: len(status.streams) == 5)
            served.wait_until(lambda status: all(session.used_rows for session in status.sessions))
            told = Metrics(served)
            for stream in served.status().streams:
                served.host.cancel(stream.request_id)
        served.wait_until(is_idle)
        rest = Metrics(served)
    assert told("requests", state="live") + told("requests", state="filling") == 2
    assert told("requests", state="queued") == 3
    assert told("sessions_used", capacity_rows="4096") == 2
    assert 0 < told("session_rows_used", capacity_rows="4096") < 8192
    assert rest("sessions_used", capacity_rows="4096") == rest("requests", state="queued") == 0
    assert rest("requests_ended_total", outcome="cancelled") == 5
    assert rest("queue_seconds_count") == 2


def test_a_pause_is_seen_while_it_lasts_and_counted_after_it(text: ChatText) -> None:
    with serving(text, session_rows=(4096, 64, 64), grow_tokens=16, on_call=SlowRounds(0.005)) as served:
        with asking(served, 3, ENDLESS, max_tokens=1000):
            served.wait_until(lambda status: any(stream.state == "paused" for stream in status.streams))
            told = Metrics(served)
        served.wait_until(is_idle)
        rest = Metrics(served)
    assert told("requests", state="paused") >= 1
    assert told("pauses_total") >= 1
    # two of the three start in small sessions, and the large one is taken
    assert rest("pause_seconds_count") == rest("pauses_total") == rest("moves_total") == 2
    assert rest("requests_ended_total", outcome="length") == 3


def test_buckets_are_cumulative_and_end_with_all(text: ChatText) -> None:
    with serving(text, clock=ScriptedClock()) as served:
        served.chat("hi")
        served.chat("hi")
        (family,) = (item for item in families(served) if item.name == "hermitcrab_first_token_seconds")
    buckets = [sample for sample in family.samples if sample.name.endswith("_bucket")]
    counts = [sample.value for sample in buckets]
    assert counts == sorted(counts)
    assert (buckets[-1].labels["le"], counts[-1]) == ("+Inf", 2)


def test_two_servers_in_one_process_count_for_themselves(text: ChatText) -> None:
    with serving(text) as busy, serving(text) as idle:
        busy.chat("hi")
        assert Metrics(busy)("requests_ended_total", outcome="stop") == 1
        assert Metrics(idle)("requests_ended_total", outcome="stop") == 0


def test_metrics_ask_for_the_key_and_refusals_are_counted(text: ChatText) -> None:
    with serving(text, options=ServerOptions(MODEL, api_key="secret")) as served:
        assert served.send("GET", "/metrics").status_code == 401
        response = served.send("GET", "/metrics", headers={"Authorization": "Bearer secret"})
        assert 'hermitcrab_http_responses_total{status="401"} 1.0' in response.text


def test_metrics_do_not_wait_for_the_engine(text: ChatText) -> None:
    gate = Gate(CallKind.PREFILL)
    with serving(text, on_call=gate) as served, asking(served, 1):
        assert gate.is_reached.wait(5)
        # in the snapshot from before its pass
        assert Metrics(served)("requests", state="queued") == 1
        gate.open()


def test_every_metric_is_explained_in_the_operations_page(served: Served) -> None:
    told = {family.name for family in families(served) if family.name.startswith("hermitcrab_")}
    explained = set(
        re.findall(
            r"^\| `(hermitcrab_\w+?)(?:_total)?(?:\{\w+(?:, \w+)*\})?` \|", OPERATIONS.read_text(), re.M
        )
    )
    assert told == explained
