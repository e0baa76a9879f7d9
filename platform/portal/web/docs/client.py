"""Wheel of the SDK and command line, which the portal serves among its static files.

Everybody may fetch it, because pip cannot sign in.
"""

from pathlib import Path

from django.conf import settings

import slipway

WHEEL_NAME = f"slipway-{slipway.__version__}-py3-none-any.whl"
_FOLDER = "client"


def wheel_folder() -> Path:
    """Return the folder that the preparation writes the wheel to."""
    return Path(settings.STATIC_ROOT) / _FOLDER


def add_static_headers(headers: dict[str, str], _path: str, url: str) -> None:
    """Let no cache keep the wheel: its content changes with the code, its address does not."""
    if url.startswith(f"{settings.STATIC_URL}{_FOLDER}/"):
        headers["Cache-Control"] = "no-cache"
