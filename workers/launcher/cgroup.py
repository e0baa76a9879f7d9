"""Control groups of a task, where the machine permits them: version 2, or the older version 1.

The agent creates them, ranks join them, the shim reads them and ends everybody inside. Where none
can be had every operation does nothing, and the shim falls back to its own measures.
"""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

_MOUNT = Path("/sys/fs/cgroup")
_CPU_PERIOD_US: Final = 100_000
MAX_PROCESSES: Final = 4096
_UNLIMITED_V1: Final = 1 << 60


@dataclass(frozen=True)
class Cgroup:
    """The groups of one task. `memory` is the one that counts and limits memory."""

    folders: tuple[str, ...] = ()
    memory: str | None = None
    is_v2: bool = True
    dedicated: bool = True

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "Cgroup":
        """The inverse of `dataclasses.asdict`."""
        return cls(**{**values, "folders": tuple(values["folders"])})

    @property
    def limits_processes(self) -> bool:
        """True if one of the groups limits the number of processes."""
        return any(Path(folder, "pids.max").exists() for folder in self.folders)

    def join(self) -> None:
        """Move the calling process into every group. Raises OSError."""
        for folder in self.folders:
            # 0 is the process that writes. Its own number differs inside a PID namespace.
            (Path(folder) / "cgroup.procs").write_text("0\n", "ascii")

    def memory_limit(self) -> int | None:
        """Return the memory limit in bytes, or None if there is none."""
        number = self._number("memory.max" if self.is_v2 else "memory.limit_in_bytes")
        return None if number is None or number >= _UNLIMITED_V1 else number

    def memory_peak(self) -> int | None:
        """The most memory the group ever used, page cache included."""
        return self._number("memory.peak" if self.is_v2 else "memory.max_usage_in_bytes")

    def memory_now(self) -> int | None:
        """Memory in use that the kernel cannot simply take back (without inactive page cache)."""
        used = self._number("memory.current" if self.is_v2 else "memory.usage_in_bytes")
        if used is None:
            return None
        key = "inactive_file" if self.is_v2 else "total_inactive_file"
        return max(0, used - self._values("memory.stat").get(key, 0))

    def oom_kills(self) -> int:
        """Return how many processes of the group the OOM killer has killed."""
        name = "memory.events" if self.is_v2 else "memory.oom_control"
        return self._values(name).get("oom_kill", 0)

    def members(self) -> list[int]:
        """Return the processes of the group, or an empty list without a dedicated group."""
        items: set[int] = set()
        for folder in self.folders if self.dedicated else ():
            with suppress(OSError):
                items.update(map(int, (Path(folder) / "cgroup.procs").read_text("ascii").split()))
        return sorted(items)

    def kill(self, *, patience_s: float = 2.0) -> None:
        """Kill every process of the groups, including new forks."""
        if not self.dedicated:
            return
        for folder in self.folders:
            with suppress(OSError):
                (Path(folder) / "cgroup.kill").write_text("1", "ascii")
        deadline = time.monotonic() + patience_s
        while (members := self.members()) and time.monotonic() < deadline:
            for pid in members:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.005)

    def remove(self) -> bool:
        """Delete the empty groups. Return False if processes remain in one."""
        removed = True
        for folder in self.folders if self.dedicated else ():
            try:
                Path(folder).rmdir()
            except FileNotFoundError:
                continue
            except OSError:
                removed = False
        return removed

    def _number(self, name: str) -> int | None:
        if self.memory is None:
            return None
        try:
            return int((Path(self.memory) / name).read_text("ascii"))
        except (OSError, ValueError):
            return None  # "max" is not a number either

    def _values(self, name: str) -> dict[str, int]:
        if self.memory is None:
            return {}
        try:
            lines = (Path(self.memory) / name).read_text("ascii").splitlines()
        except OSError:
            return {}
        pairs = (line.split() for line in lines)
        return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}


def own_paths() -> dict[str, str]:
    """Return the cgroup paths of this process by controller. "" is the key of version 2."""
    paths: dict[str, str] = {}
    for line in Path("/proc/self/cgroup").read_text("utf-8").splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            paths[controller] = path
    return paths


def container_cgroup() -> Cgroup:
    """The group a container was given: to be read, not to be made or removed."""
    if (_MOUNT / "memory.events").exists():
        return Cgroup(memory=str(_MOUNT), dedicated=False)
    if (_MOUNT / "memory/memory.oom_control").exists():
        return Cgroup(memory=str(_MOUNT / "memory"), is_v2=False, dedicated=False)
    return Cgroup(dedicated=False)


@dataclass(frozen=True)
class CgroupLimits:
    """Resource limits of one task, over all its processes.

    `is_killed_whole` says whether a task without memory ends at once, or only its largest process.
    """

    memory_bytes: int
    cpu_millis: int
    is_killed_whole: bool = True


class CgroupParent:
    """The place below which groups of tasks can be made, found once when the agent starts."""

    def __init__(self, *, v2: Path | None, v1: dict[str, Path]) -> None:
        self._v2 = v2
        self._v1 = v1

    @classmethod
    def find(cls) -> "CgroupParent":
        """Detect by trial which cgroups this machine permits."""
        paths = own_paths()
        v1: dict[str, Path] = {}
        for controller in ("memory", "cpu", "pids"):
            if controller in paths:
                parent = _MOUNT / controller / paths[controller].lstrip("/") / "slipway"
                if _can_create_groups(parent):
                    v1[controller] = parent
        # Without this weight, all tasks together would count like one process of the machine.
        cpu_millis = 1000 * len(os.sched_getaffinity(0))
        if "cpu" in v1:
            _set(v1["cpu"] / "cpu.shares", _shares(cpu_millis))
        mount = _MOUNT / "unified" if (_MOUNT / "unified").is_dir() else _MOUNT
        v2: Path | None = None
        if "" in paths:
            own = mount / paths[""].lstrip("/")
            _delegate(own)
            v2 = own / "slipway" if _can_create_groups(own / "slipway") else None
            if v2 is not None:
                _enable_controllers(v2)
                _set(v2 / "cpu.weight", _weight(cpu_millis))
        return cls(v2=v2, v1=v1)

    @classmethod
    def none(cls) -> "CgroupParent":
        """Return an instance without control groups, if unsupported or disabled."""
        return cls(v2=None, v1={})

    @property
    def limits_memory(self) -> bool:
        """True if the kernel enforces memory limits of tasks."""
        return "memory" in self._v1 or (
            self._v2 is not None and "memory" in _read_words(self._v2 / "cgroup.controllers")
        )

    def folders(self) -> list[str]:
        """The folders below which groups are made."""
        return [str(path) for path in (*self._v1.values(), self._v2) if path is not None]

    def create(self, name: str, limits: CgroupLimits) -> Cgroup:
        """Create the groups of a task. Groups that the kernel refuses are left out."""
        folders: list[str] = []
        memory: str | None = None
        is_v2 = False
        for controller, path, settings in self._settings_of(name, limits):
            try:
                path.mkdir(exist_ok=True)
                for file, value in settings.items():
                    with suppress(FileNotFoundError):
                        (path / file).write_text(value, "ascii")
            except OSError:
                continue
            folders.append(str(path))
            if controller == "memory" or (controller == "" and (path / "memory.max").exists()):
                memory, is_v2 = str(path), controller == ""
        return Cgroup(folders=tuple(folders), memory=memory, is_v2=is_v2)

    def _settings_of(
        self, name: str, limits: CgroupLimits
    ) -> Iterator[tuple[str, Path, dict[str, str]]]:
        # A task with the whole machine needs no quota, which saves the kernel a timer.
        is_whole = limits.cpu_millis >= 1000 * len(os.sched_getaffinity(0))
        quota_us = max(limits.cpu_millis * _CPU_PERIOD_US // 1000, 1000)
        memory = str(limits.memory_bytes)
        per_controller = {
            "memory": {"memory.limit_in_bytes": memory, "memory.memsw.limit_in_bytes": memory},
            "cpu": {
                "cpu.cfs_period_us": str(_CPU_PERIOD_US),
                "cpu.cfs_quota_us": "-1" if is_whole else str(quota_us),
                "cpu.shares": _shares(limits.cpu_millis),
            },
            "pids": {"pids.max": str(MAX_PROCESSES)},
        }
        for controller, parent in self._v1.items():
            yield controller, parent / name, per_controller[controller]
        if self._v2 is not None:
            settings = {
                "memory.max": memory,
                "memory.swap.max": "0",
                "memory.oom.group": "1" if limits.is_killed_whole else "0",
                "cpu.max": f"{'max' if is_whole else quota_us} {_CPU_PERIOD_US}",
                "cpu.weight": _weight(limits.cpu_millis),
                "pids.max": str(MAX_PROCESSES),
            }
            present = {
                file: value
                for file, value in settings.items()
                if file.split(".")[0] in _read_words(self._v2 / "cgroup.subtree_control")
            }
            yield "", self._v2 / name, present


def _shares(cpu_millis: int) -> str:
    """Weight of so much CPU against others, for version 1: one CPU counts like one process."""
    return str(min(262_144, max(2, cpu_millis * 1024 // 1000)))


def _weight(cpu_millis: int) -> str:
    """The same for version 2."""
    return str(min(10_000, max(1, cpu_millis // 10)))


def _read_words(path: Path) -> list[str]:
    try:
        return path.read_text("ascii").split()
    except OSError:
        return []


def _can_create_groups(parent: Path) -> bool:
    """Return whether groups can be created in `parent` and accept our processes."""
    probe = parent / f"probe-{os.getpid()}"
    try:
        probe.mkdir(parents=True)
    except OSError:
        return False
    usable = os.access(probe / "cgroup.procs", os.W_OK)
    with suppress(OSError):
        probe.rmdir()
    return usable


def _delegate(own: Path) -> None:
    """Enable delegation: version 2 gives no controllers to groups beside processes."""
    if not _read_words(own / "cgroup.controllers"):
        return
    if own != _MOUNT:
        leaf = own / "agent"
        try:
            leaf.mkdir(exist_ok=True)
            (leaf / "cgroup.procs").write_text(f"{os.getpid()}\n", "ascii")
        except OSError:
            return
    _enable_controllers(own)


def _set(file: Path, value: str) -> None:
    with suppress(OSError):
        file.write_text(value, "ascii")


def _enable_controllers(folder: Path) -> None:
    for controller in ("memory", "cpu", "pids"):
        with suppress(OSError):
            (folder / "cgroup.subtree_control").write_text(f"+{controller}", "ascii")
