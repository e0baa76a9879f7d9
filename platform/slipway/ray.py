"""Ray on the ranks of a job: one cluster for each attempt, with a Ray node in each task.

    >>> import ray
    >>> import slipway.ray

    >>> slipway.ray.init()  # instead of ray.init()
    >>> ray.get([square.remote(x) for x in range(100)])

On a laptop and in a job of one rank it is `ray.init()`. Standard library only, apart from Ray.
"""

import atexit
import importlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

__all__ = ["init"]

_POLL_S = 0.2
_STOP_PATIENCE_S = 15.0
# One failed attempt to connect may be a full queue of the head under load.
_FAILURES_UNTIL_GONE = 5
Address = tuple[str, int]


def init(*, wait_s: float = 300.0, **options: Any) -> Any:
    """Start Ray on all ranks of this job and connect rank 0 to it. Returns what `ray.init` does.

    `options` are those of `ray.init`. Rank 0 goes on once the nodes of all tasks have joined. On
    the other ranks the call does not return: they serve as nodes until rank 0 has ended, and then
    exit with status 0. Raises RuntimeError if the cluster is not complete after `wait_s` seconds.
    """
    hosts = os.environ.get("SLIPWAY_HOSTS", "")
    if not hosts:
        return _ray().init(**options)
    host, _, port = hosts.split(",")[0].rpartition(":")
    head = (host.strip("[]"), int(port))
    if int(os.environ["RANK"]) > 0:
        _serve(head, wait_s)
    return _lead(head, wait_s, options)


def _ray() -> Any:
    return importlib.import_module("ray")


def _lead(head: Address, wait_s: float, options: dict[str, Any]) -> Any:
    node = _start("--head", f"--port={head[1]}", "--include-dashboard=false")
    atexit.register(_stop, node)
    deadline = time.monotonic() + wait_s
    while not _answers(head):
        if node.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError("Ray's head did not start. Its output is in the log of rank 0.")
        time.sleep(_POLL_S)
    ray = _ray()
    context = ray.init(address=f"{_bracketed(head[0])}:{head[1]}", **options)
    atexit.register(ray.shutdown)
    tasks = int(os.environ["GROUP_WORLD_SIZE"])
    while (joined := sum(bool(entry["Alive"]) for entry in ray.nodes())) < tasks:
        if time.monotonic() > deadline:
            raise RuntimeError(
                f"{joined} of {tasks} nodes joined Ray within {wait_s:g} s. Look into the logs of "
                "the other ranks."
            )
        time.sleep(_POLL_S)
    return context


def _serve(head: Address, wait_s: float) -> NoReturn:
    """Serve as a node until the head is gone. The first rank of a task does so for all of them."""
    deadline = time.monotonic() + wait_s
    while not _answers(head):
        if time.monotonic() > deadline:
            sys.exit(f"Rank 0 did not start Ray within {wait_s:g} s.")
        time.sleep(_POLL_S)
    node = None
    is_first = os.environ["LOCAL_RANK"] == "0" and os.environ["GROUP_RANK"] != "0"
    if is_first:
        node = _start(f"--address={_bracketed(head[0])}:{head[1]}")
    failures = 0
    while failures < _FAILURES_UNTIL_GONE:
        failures = 0 if _answers(head) else failures + 1
        if node is not None and node.poll() is not None:
            break
        time.sleep(_POLL_S)
    if node is not None:
        if failures < _FAILURES_UNTIL_GONE and _answers(head):
            sys.exit(f"The Ray node of this task ended with status {node.returncode}.")
        _stop(node)
    sys.exit(0)


def _start(*options: str) -> subprocess.Popen[bytes]:
    """Start a node with the CPUs of the task. Its processes end with the task at the latest."""
    cpus = int(os.environ.get("OMP_NUM_THREADS", "1")) * int(os.environ["LOCAL_WORLD_SIZE"])
    command = [
        *(sys.executable, "-m", "ray.scripts.scripts", "start", "--block", *options),
        f"--temp-dir={Path(tempfile.gettempdir(), 'ray')}",
        f"--num-cpus={cpus}",
        # Several tasks may be on one machine: ports that the system chooses.
        *("--min-worker-port=0", "--max-worker-port=0", "--dashboard-agent-listen-port=0"),
    ]
    return subprocess.Popen(command, env={"RAY_USAGE_STATS_ENABLED": "0", **os.environ})


def _stop(node: subprocess.Popen[bytes]) -> None:
    node.terminate()
    try:
        node.wait(_STOP_PATIENCE_S)
    except subprocess.TimeoutExpired:
        node.kill()


def _answers(address: Address) -> bool:
    with suppress(OSError), socket.create_connection(address, timeout=5.0):
        return True
    return False


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
