"""The command line is tested against the served model of tests/server."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "server"))
