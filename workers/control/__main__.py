"""`python -m workers.control`: run the portal's background tasks until SIGTERM."""

import gc
import importlib
import os
import sys
from pathlib import Path

# Collecting garbage among the modules that load at start takes time and finds nothing.
gc.set_threshold(100_000, 10, 10)
ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "platform"), str(ROOT)]
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.config.settings")

import django  # noqa: E402  (the path comes first)

from portal.config.entry import exit_on_invalid_settings  # noqa: E402

if __name__ == "__main__":
    exit_on_invalid_settings()
    os.environ.setdefault("CELERY_SKIP_CHECKS", "1")  # the gate runs `manage.py check`
    django.setup()
    # Imported late, because it needs validated settings and loaded models.
    sys.exit(importlib.import_module("workers.control.worker").main())
