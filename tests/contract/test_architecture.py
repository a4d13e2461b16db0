"""The shape of the house, as tests: what lint cannot see."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hermitcrab import errors

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "hermitcrab"
PURE = (
    "core", "cache", "drafting", "sampling", "memory", "server", "simulate", "settings", "errors", "clock",
)  # fmt: skip


def pure_modules() -> list[str]:
    """Every module of the pure side, by dotted name."""
    names = []
    for package in PURE:
        path = SOURCE / package
        files = sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]
        for file in files:
            parts = file.relative_to(SOURCE.parent).with_suffix("").parts
            names.append(".".join(part for part in parts if part != "__init__"))
    return names


def test_every_pure_module_imports_where_torch_and_numpy_do_not_exist() -> None:
    script = (
        "import sys, importlib\n"
        "for name in ('torch', 'triton', 'numpy'): sys.modules[name] = None\n"
        f"for name in {pure_modules()!r}: importlib.import_module(name)\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


def test_importing_the_package_loads_nothing_else() -> None:
    script = "import sys, hermitcrab; print([m for m in sys.modules if m.startswith('hermitcrab')])"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "['hermitcrab']"


def test_only_settings_reads_the_environment() -> None:
    readers = [
        str(file.relative_to(SOURCE))
        for file in SOURCE.rglob("*.py")
        if re.search(r"os\.environ|os\.getenv|\bgetenv\(", file.read_text())
    ]
    assert readers in ([], ["settings/reading.py"])


def test_only_the_clock_reads_the_time() -> None:
    readers = [
        str(file.relative_to(SOURCE))
        for file in SOURCE.rglob("*.py")
        if re.search(r"time\.(monotonic|time|perf_counter)\(|datetime\.now\(", file.read_text())
    ]
    assert readers == ["clock.py"]


def test_the_error_tree_in_the_docstring_is_the_tree_in_the_code() -> None:
    drawn = set(re.findall(r"^[│├└─ ]*([A-Z]\w+)", errors.__doc__ or "", re.MULTILINE)) - {"Every"}
    coded = {
        name
        for name, item in vars(errors).items()
        if inspect.isclass(item) and issubclass(item, errors.HermitcrabError)
    }
    assert drawn == coded


@pytest.mark.parametrize("file", sorted(SOURCE.rglob("*.py")), ids=lambda file: str(file.relative_to(SOURCE)))
def test_every_module_says_in_its_first_line_what_it_is(file: Path) -> None:
    assert file.read_text().lstrip().startswith('"""')


def test_no_module_is_longer_than_500_lines() -> None:
    long = {
        str(file.relative_to(SOURCE)): count
        for file in SOURCE.rglob("*.py")
        if (count := len(file.read_text().splitlines())) > 500
    }
    assert long == {}
