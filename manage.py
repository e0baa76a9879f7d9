#!/usr/bin/env python
"""Entry point of every administrative command; puts `platform/` on the path."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
sys.path[:0] = [str(ROOT / "platform"), str(ROOT)]
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.config.settings")

from portal.config.commands import run  # noqa: E402  (the path must stand first)

if __name__ == "__main__":
    run(sys.argv)
