"""Information about this machine and its load, as far as this process may use it."""

import contextlib
import os
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from slipway.schemas.agent import DiskFacts, NodeFacts
from slipway.schemas.workloads import Resources
from slipway.version import __version__
from workers.launcher.cgroup import own_paths
from workers.node_agent.backends.base import Backend
from workers.node_agent.disk_limits import DiskLimits
from workers.node_agent.gpus import Gpus
from workers.node_agent.settings import AgentSettings

_CGROUPS: Final = Path("/sys/fs/cgroup")
_NO_LIMIT_BYTES: Final = 1 << 60


def cpu_millis() -> int:
    """Thousandths of a CPU this process may use: by the machine, its affinity, its cgroups."""
    count = len(os.sched_getaffinity(0)) * 1000
    quotas = [quota for quota in map(_quota_millis, _own_groups("cpu")) if quota is not None]
    return min([count, *quotas])


def memory_bytes() -> int:
    """Memory this process may use: the machine's, or less where a cgroup says so."""
    total = _meminfo()["MemTotal"]
    limits = [limit for limit in map(_limit_bytes, _own_groups("memory")) if limit is not None]
    return min([total, *limits])


def memory_used_bytes() -> int:
    """Memory of the machine that is not available to a new process."""
    meminfo = _meminfo()
    return max(0, meminfo["MemTotal"] - meminfo.get("MemAvailable", meminfo["MemFree"]))


def _meminfo() -> dict[str, int]:
    lines = Path("/proc/meminfo").read_text("ascii").splitlines()
    pairs = (line.split() for line in lines)
    return {pair[0].rstrip(":"): int(pair[1]) * 1024 for pair in pairs}


def _own_groups(controller: str) -> list[Path]:
    """The control groups of this process that may limit it, from its own up to the root."""
    paths = own_paths()
    if controller in paths:
        mount, own = _CGROUPS / controller, paths[controller]
    else:
        mount, own = _CGROUPS, paths.get("", "/")
    group = mount / own.lstrip("/")
    return [group, *(parent for parent in group.parents if parent.is_relative_to(mount))]


def _quota_millis(group: Path) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        quota, period = (group / "cpu.max").read_text("ascii").split()
        return int(quota) * 1000 // int(period)
    with contextlib.suppress(OSError, ValueError):
        quota_us = int((group / "cpu.cfs_quota_us").read_text("ascii"))
        period_us = int((group / "cpu.cfs_period_us").read_text("ascii"))
        return quota_us * 1000 // period_us if quota_us > 0 else None
    return None


def _limit_bytes(group: Path) -> int | None:
    for name in ("memory.max", "memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            limit = int((group / name).read_text("ascii"))
            return limit if limit < _NO_LIMIT_BYTES else None
    return None


def address_towards(url: str) -> str:
    """The address of this machine on the way to the portal."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    with (
        contextlib.suppress(OSError),
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe,
    ):
        # No packet is sent: connecting a datagram socket only asks the routing table.
        probe.connect((parts.hostname, port))
        result: str = probe.getsockname()[0]
        return result
    return "127.0.0.1"


class CpuLoad:
    """Percent of the machine's CPU time in use between two questions."""

    def __init__(self) -> None:
        self._before = self._times()

    def percent(self) -> float:
        """Use since the last question, 0 to 100."""
        now = self._times()
        busy, total = now[0] - self._before[0], now[1] - self._before[1]
        self._before = now
        return min(100.0, max(0.0, 100 * busy / total)) if total > 0 else 0.0

    @staticmethod
    def _times() -> tuple[int, int]:
        line = Path("/proc/stat").read_text("ascii").partition("\n")[0]
        # user nice system idle iowait irq softirq steal; what follows is contained in these
        times = [int(part) for part in line.split()[1:9]]
        total = sum(times)
        return total - times[3] - times[4], total


def _offered(measure: Callable[[], int], most: int | None, settings: AgentSettings) -> int:
    """Return at most what is here. A task in another container has limits that are not ours."""
    if most is not None and settings.task_container is not None:
        return most
    return min(measure(), most or sys.maxsize)


def node_facts(
    settings: AgentSettings,
    gpus: Gpus,
    backends: Mapping[str, Backend],
    disk: DiskLimits,
) -> NodeFacts:
    """Everything the portal should know about this machine."""
    return NodeFacts(
        capacity=Resources(
            cpu_millis=_offered(cpu_millis, settings.offered_cpu_millis, settings),
            memory_bytes=_offered(memory_bytes, settings.offered_memory_bytes, settings),
            gpus=len(gpus.facts),
        ),
        gpus=gpus.facts,
        backends=sorted(backends),
        address=settings.address or address_towards(settings.url),
        labels=settings.labels,
        agent_version=__version__,
        isolation=[backends[name].isolation_facts() for name in sorted(backends)],
        disk=DiskFacts(**asdict(disk)),
    )
