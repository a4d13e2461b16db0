"""A receipt as a table for people and as JSON for machines."""

import json
import math
from pathlib import Path

from rich.console import Console

from hermitcrab.receipts.origin import (
    Build,
    CheckpointHash,
    Machine,
    hash_checkpoint,
    this_build,
    this_machine,
)
from hermitcrab.receipts.record import Difference, Outcome, Shown, Side, Verdict, not_available
from hermitcrab.receipts.report import Receipt, difference_lines, outcome_table, receipt_json

DIFFERENT = Outcome(
    "3 at once",
    Verdict.DIFFERENT,
    "1",
    "47 tok/s",
    rows_compared=72,
    seconds=1.25,
    replies=(Shown("request 0", 24, "ab" * 32, False),),
    differences=(
        Difference("request 0", 9, "another token", Side(5, ((5, 1.5), (7, 1.4))), Side(7, ((7, math.nan),))),
        Difference("request 2", 3, "another token", Side(5), Side(None)),
    ),
)
EQUAL = Outcome("16 at once", Verdict.EQUAL, "1", replies=DIFFERENT.replies)


def receipt(*outcomes: Outcome) -> Receipt:
    return Receipt(
        1_700_000_000,
        12.5,
        Build("0.1.0", "c0ffee", False, "12" * 32, "2.13.0", "3.11.7"),
        Machine("Linux", "a CPU", 2, 0.5),
        CheckpointHash("builtin", "34" * 32, True),
        1,
        {"seed": 1},
        outcomes,
    )


def test_a_receipt_passes_unless_something_failed() -> None:
    missing = not_available("lone driver", "there is none", receipt="5")
    assert receipt(EQUAL, missing).has_passed
    assert not receipt(EQUAL, DIFFERENT).has_passed


def test_the_json_tells_what_ran_on_what_and_each_replys_digest() -> None:
    body = json.loads(receipt_json(receipt(EQUAL)))
    assert (body["has_passed"], body["threads"], body["options"]) == (True, 1, {"seed": 1})
    assert body["build"]["commit"] == "c0ffee"
    assert body["machine"]["cpu"] == "a CPU"
    assert body["checkpoint"]["sha256"] == "34" * 32
    assert body["outcomes"][0]["replies"][0]["sha256"] == "ab" * 32


def test_the_json_keeps_every_bit_of_a_logit_and_is_json_even_with_nan() -> None:
    body = json.loads(receipt_json(receipt(DIFFERENT)))
    found = body["outcomes"][0]["differences"][0]
    assert found["alone"] == {"token": 5, "logits": [[5, "1.5"], [7, "1.4"]]}
    assert found["other"] == {"token": 7, "logits": [[7, "nan"]]}


def test_the_first_difference_of_a_check_is_told_with_both_sides() -> None:
    assert difference_lines([EQUAL, DIFFERENT]) == [
        "3 at once: 'request 0' differs at reply token 9: another token (and 1 more replies)",
        "  alone: token 5; logits 5: 1.5, 7: 1.4",
        "  here: token 7; logits 7: nan",
    ]


def test_the_table_has_a_line_a_check_with_its_verdict() -> None:
    console = Console(width=140, record=True, file=None, quiet=False, highlight=False)
    with console.capture() as shown:
        console.print(
            outcome_table([EQUAL, DIFFERENT, not_available("lone driver", "none yet", receipt="5")])
        )
    lines = shown.get().splitlines()
    assert any("16 at once" in line and "equal" in line for line in lines)
    assert any("3 at once" in line and "different" in line and "47 tok/s" in line for line in lines)
    assert any("lone driver" in line and "not available" in line and "none yet" in line for line in lines)


def test_the_build_and_the_machine_are_named() -> None:
    build, machine = this_build(), this_machine()
    assert len(build.sources_sha256) == 64
    assert build.torch.startswith("2.")
    assert machine.cores >= 1
    assert machine.cpu


def test_a_checkpoints_hash_follows_its_bytes_and_names(tmp_path: Path) -> None:
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(b"weights")
    first = hash_checkpoint("a model", tmp_path)
    assert (first.model, first.is_whole) == ("a model", True)
    assert hash_checkpoint("a model", tmp_path) == first
    weights.write_bytes(b"weighty")
    second = hash_checkpoint("a model", tmp_path)
    assert second.sha256 != first.sha256
    (tmp_path / "config.json").write_text("{}")
    assert hash_checkpoint("a model", tmp_path).sha256 != second.sha256
