"""What /proc says about processes: identity beyond a reused pid, families, and how to end them."""

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_ENDED_STATES = ("Z", "X")


def uptime_s() -> float:
    """Seconds since the machine booted, sleep included: what leases and time-outs are counted in.

    Unlike the wall clock it never jumps, and unlike CLOCK_MONOTONIC it counts a laptop's sleep.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def boot_id() -> str:
    """Name of this boot of the machine; a pid means nothing in another."""
    return (_PROC / "sys/kernel/random/boot_id").read_text("ascii").strip()


def stat_fields(pid: int) -> list[str] | None:
    """Fields of /proc/PID/stat from the state on; None when the process is gone."""
    try:
        text = (_PROC / str(pid) / "stat").read_text("utf-8", errors="replace")
    except OSError:
        return None
    # The command's name may hold spaces and brackets, so fields count from its last bracket.
    fields = text.rpartition(")")[2].split()
    return fields if len(fields) >= 22 else None


def start_ticks(pid: int) -> int | None:
    """When the process started, in clock ticks since boot; None when it is gone or a zombie."""
    fields = stat_fields(pid)
    if fields is None or fields[0] in _ENDED_STATES:
        return None
    return int(fields[19])


@dataclass(frozen=True)
class ProcessMark:
    """A process that cannot be mistaken for a later one with the same number."""

    pid: int
    ticks: int
    boot: str

    @classmethod
    def of(cls, pid: int) -> "ProcessMark | None":
        """Mark a living process; None when it is gone."""
        ticks = start_ticks(pid)
        return None if ticks is None else cls(pid=pid, ticks=ticks, boot=boot_id())

    def is_alive(self) -> bool:
        """Whether this very process still runs."""
        return self.boot == boot_id() and start_ticks(self.pid) == self.ticks


def children(pid: int) -> list[int]:
    """Direct children of a process, of all its threads."""
    result: list[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - half the cost of iterdir
    except OSError:
        return result
    for thread in threads:
        try:
            text = Path(f"/proc/{pid}/task/{thread}/children").read_text("ascii")
        except OSError:
            continue
        result.extend(map(int, text.split()))
    return result


def descendants(pid: int) -> list[int]:
    """Everything below a process, zombies included."""
    result: list[int] = []
    waiting = [pid]
    seen = {pid}
    while waiting:
        for child in children(waiting.pop()):
            if child not in seen:
                seen.add(child)
                result.append(child)
                waiting.append(child)
    return result


def living_descendants(pid: int) -> list[int]:
    """Descendants that still run; zombies only wait to be collected."""
    return [child for child in descendants(pid) if start_ticks(child) is not None]


def send(pid: int, number: int) -> bool:
    """Signal a process; False when it is gone or belongs to somebody else."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def send_group(group: int, number: int) -> bool:
    """Signal a process group; False when nobody is left in it."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def kill_marked(marker: bytes) -> list[int]:
    """Kill every process whose environment holds the entry `marker`; returns their pids.

    Reaches what a dead shim left behind where no cgroup could be had.
    """
    killed: list[int] = []
    for folder in _PROC.iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        try:
            environment = (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if marker in environment and send(int(folder.name), signal.SIGKILL):
            killed.append(int(folder.name))
    return killed
