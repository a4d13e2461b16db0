"""Where a receipt comes from: the build by version, commit and hash, the machine, the checkpoint."""

import hashlib
import os
import platform
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

import hermitcrab

# larger checkpoints are hashed by their headers and sizes, since reading them takes as long as the checks
WHOLE_HASH_BYTES = 4 << 30

_HEADER_BYTES = 1 << 20
_GIT_TIMEOUT_S = 10


@dataclass(frozen=True, slots=True)
class Build:
    """What ran. `commit` is None outside a checkout; `sources_sha256` is of the package's Python files."""

    version: str
    commit: str | None
    has_local_changes: bool | None
    sources_sha256: str
    torch: str
    python: str


@dataclass(frozen=True, slots=True)
class Machine:
    """Where it ran; `load_average` is over the last minute, as the run began."""

    platform: str
    cpu: str
    cores: int
    load_average: float


@dataclass(frozen=True, slots=True)
class CheckpointHash:
    """The model's files; `is_whole` is False where a file's first bytes and its size stand for it."""

    model: str
    sha256: str
    is_whole: bool


def this_build() -> Build:
    """The build of this process."""
    package = Path(str(files("hermitcrab")))
    commit = _git(package, "rev-parse", "HEAD")
    changes = None if commit is None else _git(package, "status", "--porcelain", "--", ".")
    return Build(
        version=hermitcrab.__version__,
        commit=commit,
        has_local_changes=None if changes is None else bool(changes),
        sources_sha256=_hash_files(package, sorted(package.rglob("*.py")), most_bytes=None),
        torch=version("torch"),
        python=platform.python_version(),
    )


def this_machine() -> Machine:
    """The machine of this process."""
    return Machine(platform.platform(), _cpu_model(), os.cpu_count() or 1, round(os.getloadavg()[0], 2))


def hash_checkpoint(name: str, directory: Path) -> CheckpointHash:
    """The hash of a model directory's weights and configuration."""
    paths = sorted((*directory.glob("*.safetensors"), *directory.glob("*.json")))
    is_whole = sum(path.stat().st_size for path in paths) <= WHOLE_HASH_BYTES
    most_bytes = None if is_whole else _HEADER_BYTES
    return CheckpointHash(name, _hash_files(directory, paths, most_bytes=most_bytes), is_whole)


def _hash_files(root: Path, paths: Iterable[Path], *, most_bytes: int | None) -> str:
    whole = hashlib.sha256()
    for path in paths:
        whole.update(f"{path.relative_to(root).as_posix()} {path.stat().st_size}\n".encode())
        with path.open("rb") as file:
            if most_bytes is None:
                whole.update(hashlib.file_digest(file, "sha256").digest())
            else:
                whole.update(file.read(most_bytes))
    return whole.hexdigest()


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _git(directory: Path, *arguments: str) -> str | None:
    """What git says about the directory; None where there is no git or no repository."""
    command = ["git", "-C", str(directory), *arguments]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=_GIT_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return ended.stdout.strip()
