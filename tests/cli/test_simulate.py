"""`hermitcrab simulate`: a load in, a table, a document and a picture out."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from hermitcrab.cli.main import main

SMALL = ("--context", "16384", "--slot-contexts", "4096x2", "--slot-grow", "512", "--grain", "16")


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "monday.jsonl"
    lines = [{"arrival_s": index * 0.5, "prompt_tokens": 600, "reply_tokens": 64} for index in range(8)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_a_trace_gives_a_table_of_three_ways_to_use_the_memory(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", "--trace", str(trace), *SMALL]) == 0
    shown = capsys.readouterr().out
    assert "trace monday.jsonl: 8 requests" in shown
    assert all(name in shown for name in ("equal sessions", "sized sessions", "ideal paged pool"))
    assert "costs: Qwen3.8-Flash-Next at 6 bits on one H200, not measured whole" in shown


def test_results_are_written_request_by_request(trace: Path, tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    assert main(["simulate", "--trace", str(trace), *SMALL, "--json", str(path)]) == 0
    document = json.loads(path.read_text())
    assert [outcome["name"] for outcome in document["outcomes"]] == [
        "equal sessions",
        "sized sessions",
        "ideal paged pool",
    ]
    assert all(len(outcome["served"]) == 8 for outcome in document["outcomes"])
    assert document["plan"]["listed"] == [4096, 4096]
    assert document["costs"]["row_bytes"] == 30_784
    assert document["suggestion"] is None


def test_a_suggestion_is_a_list_that_the_option_takes(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "results.json"
    options = ["--suggest", "--tries", "4", "--json", str(path)]
    assert main(["simulate", "--trace", str(trace), *SMALL, *options]) == 0
    document = json.loads(path.read_text())
    assert document["outcomes"][2]["name"] == "suggested sessions"
    assert f"--slot-contexts {document['suggestion']['slot_contexts']}" in capsys.readouterr().out
    assert document["outcomes"][2]["total"]["mean_s"] <= document["outcomes"][1]["total"]["mean_s"]


def test_the_picture_has_a_line_for_each_way_in_both_panels(trace: Path, tmp_path: Path) -> None:
    path = tmp_path / "monday.svg"
    assert main(["simulate", "--trace", str(trace), *SMALL, "--plot", str(path)]) == 0
    picture = ElementTree.fromstring(path.read_text())
    lines = [item for item in picture.iter("{http://www.w3.org/2000/svg}path") if item.get("fill") == "none"]
    assert len(lines) == 2 * 3
    assert "equal sessions: 16384" in "".join(picture.itertext())


def test_the_same_seed_gives_the_same_table(capsys: pytest.CaptureFixture[str]) -> None:
    def table(seed: str) -> str:
        options = ["--load", "chats", "--requests", "10", "--per-minute", "60", "--seed", seed]
        assert main(["simulate", *options, *SMALL]) == 0
        return capsys.readouterr().out

    assert table("3") == table("3") != table("4")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--trace", "nowhere.jsonl"], "nowhere.jsonl: cannot be read: No such file"),
        (["--trace", "nowhere.jsonl", "--seed", "1"], "--trace has the requests"),
        (["--costs", "nowhere.json"], "nowhere.json: cannot be read"),
        (["--slot-contexts", "16384,,"], "item 2 is empty"),
        (["--memory-gib", "1"], "more than the 1.00 GiB of --memory-gib"),
        (["--load", "games"], "'games' is not one of"),
        (["--requests", "3", *SMALL, "--plot", "nowhere/a.svg"], "--plot nowhere/a.svg: cannot be written"),
    ],
)
def test_what_cannot_be_simulated_is_one_sentence_and_status_2(
    options: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", *options]) == 2
    assert says in capsys.readouterr().err
