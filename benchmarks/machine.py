"""What a measurement ran on, for its receipt."""

import os
import platform
from pathlib import Path

import torch

import hermitcrab


def machine() -> dict[str, object]:
    """Processor, cores and versions."""
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "hermitcrab": hermitcrab.__version__,
    }


def processor() -> str:
    """The processor's name, where the system tells it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
