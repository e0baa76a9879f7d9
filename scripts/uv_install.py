"""Install compiled requirements into the environment of this interpreter by uv, in seconds.

    .venv/bin/python scripts/uv_install.py requirements/portal.txt [options of uv pip install]

Ends with a status other than 0, and a line that says why, where pip has to do it. Needs uv and the
standard library.
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


def command(requirements: str, *more: str) -> list[str]:
    """The command line that installs them from where pip would. Raises OnlyForPip."""
    uv = uv_of(sys.executable)
    if uv is None:
        raise RequiresPip("uv is not installed")
    asked = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(asked, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        raise RequiresPip("its settings cannot be listed")
    options = arguments_of_uv(settings_of_pip(listed.stdout))
    return [*uv_pip(uv, "install", sys.executable), *options, *more, "-r", requirements]


if __name__ == "__main__":
    try:
        argv = command(*sys.argv[1:])
    except RequiresPip as error:
        sys.exit(f"left to pip: {error}")
    environ = {"UV_HTTP_TIMEOUT": "180", **os.environ}
    sys.exit(subprocess.run(argv, env=environ, check=False).returncode)
