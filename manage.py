#!/usr/bin/env python
"""Entry point of every administrative command; puts `platform/` on the path."""

import gc
import os
import sys
from pathlib import Path

# Collecting garbage among the modules that load at start takes time and finds nothing.
gc.set_threshold(100_000, 10, 10)
ROOT = Path(__file__).resolve().parent
sys.path[:0] = [str(ROOT / "platform"), str(ROOT)]
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.config.settings")

if sys.version_info < (3, 11):  # noqa: UP036  (the message is for users of an old Python)
    sys.exit("slipway: this Python is older than 3.11; run make up, which finds or asks for one.")
try:
    from portal.config.commands import run
except ModuleNotFoundError as error:
    if (error.name or "").startswith("portal"):
        raise
    sys.exit(
        f"slipway: {error.name} is not installed for this Python; run make setup, then "
        ".venv/bin/python manage.py …"
    )

if __name__ == "__main__":
    run(sys.argv)
