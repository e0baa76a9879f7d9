"""The image of nodes for tests: `deploy/images/node.Dockerfile`, with no packages for jobs.

Packages are built into wheels first, so the engine needs no package index.
"""

import hashlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.processes import ROOT

IMAGE = "slipway-test-node-agent"
_BUILDER = "slipway-test-node-builder"
_AGENT_PACKAGES = re.compile(r"(docker|nvidia-ml-py|requests|urllib3|uv|websockets)==")
_NEEDED = ("charset-normalizer", "idna", "certifi")
_PATIENCE_S = 900


class Docker:
    """The `docker` command at one engine."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket

    def __call__(self, *arguments: str) -> str:
        """Return what a command prints. Fails with its output."""
        done = subprocess.run(
            ["docker", "--host", f"unix://{self.socket}", *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=_PATIENCE_S,
            env={"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/", "DOCKER_BUILDKIT": "0"},
        )
        assert done.returncode == 0, f"{arguments}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        return done.stdout

    def inspect(self, container: str) -> dict[str, Any]:
        """Return the description of a container."""
        details: dict[str, Any] = json.loads(self("inspect", container))[0]
        return details


def build_node_image(docker: Docker, base: str, scratch: Path) -> str:
    """Build the image and return its name. The second time takes seconds."""
    context = scratch / "context"
    (context / "requirements").mkdir(parents=True)
    for name in ("slipway", "portal", "jobs"):
        # Jobs of these tests need no package.
        text = "" if name == "jobs" else (ROOT / f"requirements/{name}.txt").read_text("utf-8")
        (context / f"requirements/{name}.txt").write_text(text, "utf-8")
    for folder in ("platform/slipway", "workers"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / folder, context / folder, ignore=ignored)
    builder = _build_builder(docker, base, scratch)
    docker(
        *("build", "--quiet", "--tag", IMAGE),
        *("--file", str(ROOT / "deploy/images/node.Dockerfile")),
        *("--build-arg", f"BASE={base}", "--build-arg", f"BUILD_BASE={builder}", str(context)),
    )
    return IMAGE


def _build_builder(docker: Docker, base: str, scratch: Path) -> str:
    """Return an image with the wheels of the agent, and settings by which pip finds them."""
    lines = (ROOT / "requirements/portal.txt").read_text("utf-8").splitlines()
    needed = tuple(f"{name}==" for name in _NEEDED)
    pins = [line for line in lines if _AGENT_PACKAGES.match(line) or line.startswith(needed)]
    own = (ROOT / "requirements/slipway.txt").read_text("utf-8").splitlines()
    pins = sorted({*pins, *(line for line in own if re.match(r"[A-Za-z0-9]", line))})
    digest = hashlib.sha256("\n".join(pins).encode()).hexdigest()[:16]
    tag = f"{_BUILDER}:{digest}"
    if docker("images", "--quiet", tag).strip():
        return tag
    context = scratch / "builder"
    context.mkdir()
    wheel = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps")
    subprocess.run(
        [*wheel, "--wheel-dir", str(context / "wheels"), *pins], check=True, timeout=_PATIENCE_S
    )
    (context / "Dockerfile").write_text(
        f"FROM {base}\nCOPY wheels /wheels\nENV PIP_FIND_LINKS=/wheels PIP_NO_INDEX=1\n", "utf-8"
    )
    docker("build", "--quiet", "--tag", tag, str(context))
    return tag
