"""The program: help without loading anything, errors as one sentence and status 2."""

import subprocess
import sys

import pytest

import hermitcrab
from hermitcrab.cli.main import main


def test_it_tells_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == f"hermitcrab, version {hermitcrab.__version__}"


def test_its_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(f"  {name} " in shown for name in ("serve", "chat", "info", "settings"))


def test_its_help_loads_neither_a_server_nor_an_engine() -> None:
    script = (
        "import sys\n"
        "from hermitcrab.cli.main import main\n"
        "main(['--help'])\n"
        "print([name for name in ('torch', 'fastapi', 'rich', 'httpx') if name in sys.modules])\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines()[-1] == "[]"


def test_without_a_command_it_shows_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "Commands:" in capsys.readouterr().err


def test_it_runs_as_a_module() -> None:
    command = [sys.executable, "-m", "hermitcrab", "--version"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout.split()[0]) == (0, "hermitcrab,")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["chat", "--urll", "x"], "No such option '--urll'"),
        (["sevre"], "No such command 'sevre'"),
        (["chat", "extra"], "extra"),
        (["chat", "--config", "nowhere.toml"], "--config nowhere.toml: cannot be read"),
        (["chat", "--url", "http://127.0.0.1:1"], "no server answers at http://127.0.0.1:1; start one with"),
        (["chat", "--url", "ftp://x"], "must begin with http:// or https://"),
        (["chat", "--url", "http://[::1"], "not an address"),
        (["chat", "--url", " "], "--url: ' ' is not allowed here"),
    ],
)
def test_a_wrong_command_line_is_one_sentence_and_status_2(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("hermitcrab: ")
    assert says in line


def test_the_help_of_a_command_has_default_and_environment_of_each_option(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["chat", "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert (
        "Address of the running server. Default: http://127.0.0.1:8080. Environment: HERMITCRAB_URL." in shown
    )
    assert "--think / --no-think" in shown
