"""Install compiled requirements into this interpreter's environment with uv, in seconds.

    .venv/bin/python scripts/uv_install.py requirements/portal.txt [options of uv pip install]

Exits with a status other than 0 and prints the reason if pip has to be used instead. Needs only uv
and the standard library.
"""

import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from workers.node_agent.uv_install import (
    RequiresPip,
    arguments_of_uv,
    settings_of_pip,
    uv_of,
    uv_pip,
)


def command(requirements: str, *extra: str) -> list[str]:
    """Return the uv command that uses the same sources as pip. Raises RequiresPip."""
    uv = uv_of(sys.executable)
    if uv is None:
        raise RequiresPip("uv is not installed")
    list_settings = [sys.executable, "-m", "pip", "config", "list"]
    done = subprocess.run(list_settings, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RequiresPip("the settings of pip cannot be listed")
    options = arguments_of_uv(settings_of_pip(done.stdout))
    return [*uv_pip(uv, "install", sys.executable), *options, *extra, "-r", requirements]


if __name__ == "__main__":
    try:
        argv = command(*sys.argv[1:])
    except RequiresPip as error:
        sys.exit(f"pip is needed: {error}")
    environ = {"UV_HTTP_TIMEOUT": "180", **os.environ}
    sys.exit(subprocess.run(argv, env=environ, check=False).returncode)
