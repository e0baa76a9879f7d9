"""Finds processes of tasks from outside: inside a sandbox they have other numbers."""

import json
from pathlib import Path

from workers.launcher.launch import StateFolder
from workers.launcher.processes import descendants


def outer_pid(data_dir: Path, workload: str, inner: int) -> int:
    """The number on this machine of the process that a workload's task knows as `inner`.

    `data_dir` is that of the installation, whose own node runs the task.
    """
    for record in (data_dir / "node" / "tasks").glob("*/task.json"):
        if json.loads(record.read_text())["workload_id"] != workload:
            continue
        shim = StateFolder(record.parent / "state").shim()
        if shim is None or not shim.is_alive():
            continue
        for pid in descendants(shim.pid):
            if _innermost(pid) == inner:
                return pid
    raise AssertionError(f"no process of {workload} is known inside as {inner}")


def _innermost(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    [numbers] = [line.split()[1:] for line in lines if line.startswith("NSpid:")]
    return int(numbers[-1])
