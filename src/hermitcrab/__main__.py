"""`python -m hermitcrab` is the `hermitcrab` program."""

import sys

from hermitcrab.cli.main import main

sys.exit(main())
