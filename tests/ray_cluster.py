"""A real Ray cluster on this machine: one head with a token, in a folder.

Ray lies in an environment of its own below .cache, made at the first use.
"""

import os
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx

from portal.config.setup.lock import file_lock
from tests.ports import free_ports
from tests.processes import ROOT, Program, wait_for

RAY = "ray[default]==2.60.0"
_ENVIRONMENT = ROOT / ".cache" / "ray-cluster"
_STARTS_WITHIN_S = 180


@dataclass
class RayCluster:
    """A cluster of one machine: where its dashboard is, and the file with its token."""

    address: str
    token_file: Path
    python: Path


def ray_python() -> Path:
    """Return the interpreter with Ray."""
    python = _ENVIRONMENT / "bin" / "python"
    if not (_ENVIRONMENT / "ready").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(_ENVIRONMENT)], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", RAY]
        subprocess.run(pip, check=True, timeout=1200)
        (_ENVIRONMENT / "ready").touch()
    return python


@contextmanager
def running_ray(folder: Path, *, cpus: int) -> Iterator[RayCluster]:
    """Run a cluster with so many CPUs, and end it afterwards.

    There is one at a time: heads of two processes of tests would disturb each other.
    """
    _ENVIRONMENT.parent.mkdir(exist_ok=True)
    with (
        file_lock(_ENVIRONMENT.with_name("ray-cluster.lock")),
        # Ray's Unix sockets lie there, whose paths have at most 107 characters.
        tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as short,
    ):
        yield from _running(folder, Path(short), cpus)


def _running(folder: Path, short: Path, cpus: int) -> Iterator[RayCluster]:
    python = ray_python()
    folder.mkdir(mode=0o700)
    token_file = folder / "token"
    token_file.write_text(secrets.token_hex(32))
    # No HOME and no PYTHONPATH of ours: jobs of the cluster get its variables.
    env = {
        "PATH": f"{python.parent}:{os.environ['PATH']}",
        "HOME": str(folder),
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": token_file.read_text(),
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    port, dashboard, agent, client = free_ports(4)
    command = [
        *(str(python), "-m", "ray.scripts.scripts", "start", "--block", "--head"),
        *(f"--port={port}", f"--dashboard-port={dashboard}", "--dashboard-host=127.0.0.1"),
        *(f"--dashboard-agent-listen-port={agent}", f"--ray-client-server-port={client}"),
        *("--node-ip-address=127.0.0.1", f"--num-cpus={cpus}", f"--temp-dir={short}"),
        *("--object-store-memory=100000000", "--min-worker-port=0", "--max-worker-port=0"),
    ]
    program = Program(command, env=env, output=folder / "ray.out")
    cluster = RayCluster(f"http://127.0.0.1:{dashboard}", token_file, python)
    headers = {"Authorization": f"Bearer {env['RAY_AUTH_TOKEN']}"}

    def answers() -> bool:
        try:
            path = f"{cluster.address}/api/v0/nodes"
            answer = httpx.get(path, headers=headers, timeout=10)
            return answer.is_success and "ALIVE" in answer.text
        except httpx.HTTPError:
            return False

    try:
        wait_for(answers, "Ray", within_s=_STARTS_WITHIN_S)
        yield cluster
    finally:
        program.signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            program.wait(20)
        program.end()
