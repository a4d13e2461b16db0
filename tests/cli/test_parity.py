"""`hermitcrab parity`: what it prints and writes, and its exit status."""

import json
from pathlib import Path

import pytest
from served import listening, serving
from small_model import write_model_text

from hermitcrab.cli.main import main
from hermitcrab.clock import ScriptedClock
from hermitcrab.core.fake import Call
from hermitcrab.models.qwen4_exp.tiny import write_tiny
from hermitcrab.server.text.load import load_chat_text


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model with a tokenizer of its own."""
    directory = tmp_path_factory.mktemp("tiny")
    write_tiny(directory, seed=3)
    write_model_text(directory)
    return directory


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_quick_run_passes_prints_a_table_and_writes_its_receipt(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = tmp_path / "receipt.json"
    assert (
        main(["parity", str(model), "--quick", "--threads", "1", "--drafts", "3", "--json", str(written)])
        == 0
    )
    shown = capsys.readouterr().out
    assert "equal in all" in shown
    body = json.loads(written.read_text())
    assert body["has_passed"] is True
    assert (body["threads"], body["options"]["is_quick"], body["checkpoint"]["model"]) == (
        1,
        True,
        model.name,
    )
    by_receipt = {outcome["receipt"]: outcome["verdict"] for outcome in body["outcomes"]}
    assert {by_receipt[number] for number in ("1", "3", "4", "6")} == {"equal"}
    assert {by_receipt[number] for number in ("2", "5", "7")} == {"not available"}
    compared = [outcome for outcome in body["outcomes"] if outcome["replies"]]
    assert all(outcome["rows_compared"] for outcome in compared)


def test_a_server_whose_replies_differ_in_company_ends_with_status_1_and_says_where(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    failures = iter([RuntimeError("no room for two")])

    def fail_once_in_company(call: Call) -> None:
        if len(call.slots) > 1 and (error := next(failures, None)) is not None:
            raise error

    text = load_chat_text(model, ScriptedClock())
    with (
        serving(text, session_rows=(512,) * 4, on_call=fail_once_in_company) as served,
        listening(served.app) as port,
    ):
        status = main(["parity", "--quick", "--url", f"http://127.0.0.1:{port}"])
    assert status == 1
    shown = capsys.readouterr().out
    assert "1 of " in shown
    assert "no room for two" in shown


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--url", "http://127.0.0.1:9"], "no status from http://127.0.0.1:9"),
        (["--json", "no/such/directory/file.json"], "its directory does not exist"),
        (["--seed", "x"], "--seed: 'x' is not allowed here"),
        (["no/such/model"], "no/such/model"),
    ],
)
def test_what_cannot_be_checked_is_one_sentence_and_status_2(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["parity", *arguments]) == 2
    assert says in capsys.readouterr().err
