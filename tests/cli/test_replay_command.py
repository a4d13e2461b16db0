"""`hermitcrab replay`: how many decisions were the same, or the first that was not."""

import json
import sys
import threading
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "core"))

from lane_bench import Ear, ask

from hermitcrab.cli.main import main
from hermitcrab.core.api import Event, Finished
from hermitcrab.core.fake import FakeBackend
from hermitcrab.core.host import LaneHost
from hermitcrab.core.lanes import LaneRules
from hermitcrab.core.recorder import open_trail


class LastEar(Ear):
    """Knows when the reply has ended."""

    def __init__(self) -> None:
        super().__init__()
        self.has_ended = threading.Event()

    def put(self, event: Event) -> None:
        super().put(event)
        if isinstance(event, Finished):
            self.has_ended.set()


@pytest.fixture
def trail(tmp_path: Path) -> Path:
    """What a server leaves that has served one request, in two sessions."""
    path = tmp_path / "trail.jsonl"
    host = LaneHost(FakeBackend((64, 24)), LaneRules(grow_tokens=8), trail=open_trail(path))
    host.start()
    ear = LastEar()
    host.submit(ask("a", max_new_tokens=30), ear)
    assert ear.has_ended.wait(60)
    host.close(drain_s=0.0)
    return path


def decisions_of(path: Path) -> int:
    return sum(len(json.loads(line).get("did", ())) for line in path.read_text().splitlines())


def test_a_trail_that_replays_is_told_by_its_number_of_decisions(
    trail: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert decisions_of(trail) > 10
    assert main(["replay", str(trail)]) == 0
    assert capsys.readouterr().out == f"{decisions_of(trail)} decisions, all the same\n"


def test_a_line_that_breaks_off_is_said(trail: Path, capsys: pytest.CaptureFixture[str]) -> None:
    count = len(trail.read_text().splitlines())
    with trail.open("a") as file:
        file.write('{"act":"step","at_')
    assert main(["replay", str(trail)]) == 0
    assert f"line {count + 1} breaks off and was left out\n" in capsys.readouterr().out


def test_a_second_run_in_the_file_is_replayed_as_well(
    trail: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    decisions = decisions_of(trail)
    trail.write_text(trail.read_text() * 2)
    assert main(["replay", str(trail)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "2 runs of a server",
        f"{2 * decisions} decisions, all the same",
    ]


def test_a_difference_is_shown_from_both_sides_and_ends_with_status_1(
    trail: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trail.write_text(trail.read_text().replace('"source":1,"target":0', '"source":1,"target":7', 1))
    assert main(["replay", str(trail)]) == 1
    shown = capsys.readouterr().out.splitlines()
    assert ": the first difference, after " in shown[0]
    assert shown[1].startswith("  in the trail: ")
    assert shown[2].startswith("  in the replay: ")


@pytest.mark.parametrize(
    ("content", "says"),
    [(None, "cannot be read: No such file"), ("no trail\nat all\n", "line 1: not a line of")],
)
def test_a_file_that_is_no_trail_is_one_sentence_and_status_2(
    content: str | None, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "other.txt"
    if content is not None:
        path.write_text(content)
    assert main(["replay", str(path)]) == 2
    assert says in capsys.readouterr().err
