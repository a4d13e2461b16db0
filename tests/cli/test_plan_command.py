"""`hermitcrab plan`: the table, the file, the status."""

import json
from pathlib import Path

import pytest

from hermitcrab.cli.main import main

FLAGSHIP = str(Path(__file__).parents[1] / "memory" / "flagship")


def test_the_built_in_model_is_planned_for_where_none_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--limit-gb", "16"]) == 0
    shown = capsys.readouterr().out
    assert "CPU engine, float32 weights and states" in shown
    assert "1 x 32768 tokens" in shown
    assert "It fits." in shown


def test_a_plan_that_does_not_fit_has_status_1_and_says_what_would(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["plan", "--limit-gb", "4", "--slot-contexts", "32768x60"]) == 1
    shown = capsys.readouterr().out
    assert "It does not fit." in shown
    assert "The largest list of this shape that fits: --slot-contexts" in shown


def test_the_planned_engines_plan_says_that_it_is_planned(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["plan", FLAGSHIP, "--engine", "packed", "--format", "6bit-g32"]
    assert main([*arguments, "--device-gb", "141", "--limit-gb", "138"]) == 0
    shown = capsys.readouterr().out
    assert "planned GPU engine, packed weights" in shown
    assert "not built yet" in shown
    assert "112.382" in shown
    assert "44.800" in shown


def test_the_file_has_the_numbers_of_the_table(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    assert main(["plan", "--limit-gb", "16", "--cache-gb", "1", "--json", str(path)]) == 0
    plan = json.loads(path.read_text())
    assert plan["fits"]
    assert plan["cap_bytes"] == 16_000_000_000
    sessions = sum(item["count"] * item["bytes_each"] for item in plan["sessions"])
    assert plan["needed_bytes"] == sum(line["bytes"] for line in plan["lines"]) + sessions


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--format", "5bit"], "--format 5bit: must be bfloat16 or one of"),
        (["--slot-contexts", "0"], "must be at least 1"),
        (["--limit-gb", "0"], "limit-gb"),
        (
            ["--json", "/nowhere/plan.json", "--limit-gb", "16"],
            "--json /nowhere/plan.json: cannot be written",
        ),
        (["no-such-directory"], "no-such-directory"),
    ],
)
def test_what_cannot_be_planned_is_one_sentence_and_status_2(
    capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert main(["plan", *arguments]) == 2
    assert words in capsys.readouterr().err
