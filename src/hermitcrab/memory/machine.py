"""How much memory this machine gives to a program, by its kernel's own words."""

import os
from pathlib import Path

_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


def physical_bytes(cgroup_limit: Path = _CGROUP_LIMIT) -> int:
    """Installed memory, or the container's limit where that is lower."""
    installed = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        words = cgroup_limit.read_text().strip()
    except OSError:
        return installed
    return min(installed, int(words)) if words.isdigit() else installed
