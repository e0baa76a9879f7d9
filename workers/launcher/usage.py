"""Resource usage of a task, stored on disk: CPU, memory and disk of processes below its shim."""

import json
import os
import resource
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from workers.launcher.cgroup import Cgroup
from workers.launcher.processes import living_descendants, stat_fields, uptime_s

SAMPLE_EVERY_S: Final = 2.0
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_BLOCK_BYTES: Final = 512
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
# Above this size, walking a process's page tables costs more than the exact figure is worth.
_PROPORTIONAL_UP_TO_BYTES: Final = 8 * 1024**3
_FILE_BOUND_BYTES: Final = 4 * 1024**2


@dataclass(frozen=True)
class UsageSample:
    """Usage over one interval. 100 percent is one CPU, and shared memory pages count once."""

    at_unix_ms: int
    cpu_percent: float
    memory_bytes: int
    read_bytes: int
    written_bytes: int


def memory_of(pid: int) -> int:
    """Memory of a process in bytes, pages shared with others counted in proportion."""
    try:
        resident = int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1]) * _PAGE_BYTES
        if resident > _PROPORTIONAL_UP_TO_BYTES:
            return resident
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except (OSError, IndexError, ValueError):
        return 0
    return resident


def anonymous_files_bytes(pids: list[int]) -> int:
    """Memory in files that are on no disk (memfd_create), which no process needs to have mapped."""
    sizes: dict[int, int] = {}
    for pid in pids:
        with suppress(OSError), os.scandir(f"/proc/{pid}/fd") as entries:
            for entry in entries:
                with suppress(OSError):
                    if os.readlink(entry.path).startswith("/memfd:"):  # noqa: PTH115
                        status = entry.stat()
                        sizes[status.st_ino] = status.st_blocks * _BLOCK_BYTES
    return sum(sizes.values())


def detached_segments_bytes() -> int:
    """System V memory of this IPC namespace that no process has mapped."""
    try:
        header, *lines = Path("/proc/sysvipc/shm").read_text("ascii").splitlines()
        names = header.split()
        attached, size = names.index("nattch"), names.index("rss")
        rows = (line.split() for line in lines)
        return sum(int(row[size]) for row in rows if row[attached] == "0")
    except (OSError, ValueError):
        return 0


def _moved_bytes(pid: int) -> tuple[int, int]:
    try:
        lines = Path(f"/proc/{pid}/io").read_text("ascii").splitlines()
    except OSError:
        return 0, 0
    values = dict(line.split(": ", 1) for line in lines)
    return int(values.get("read_bytes", 0)), int(values.get("write_bytes", 0))


class UsageMeter:
    """Adds up what a tree of processes uses, also of those that have ended."""

    def __init__(self, cgroup: Cgroup, *, own_ipc: bool = False) -> None:
        self._cgroup = cgroup
        self._own_ipc = own_ipc
        self._shim = os.getpid()
        self._reaped_s = 0.0
        self._cpu_s = 0.0
        self._at_s = uptime_s()
        self._moved: dict[int, tuple[int, int]] = {}
        self.peak_bytes = 0
        # Bytes that the task has written to disk so far, including deleted files.
        self.written_bytes = 0

    def reaped(self, usage: resource.struct_rusage) -> None:
        """Count a child that was collected, with all it had collected itself."""
        self._reaped_s += usage.ru_utime + usage.ru_stime
        self.peak_bytes = max(self.peak_bytes, usage.ru_maxrss * 1024)

    @property
    def cpu_seconds(self) -> float:
        """CPU time the task used so far, as of the last sample or collected child."""
        return max(self._cpu_s, self._reaped_s)

    def sample(self) -> UsageSample:
        """Measure the tree now, against the last time."""
        members = living_descendants(self._shim)
        cpu_s = self._reaped_s
        read = written = 0
        moved: dict[int, tuple[int, int]] = {}
        for pid in members:
            fields = stat_fields(pid)
            if fields is not None:
                cpu_s += sum(map(int, fields[11:15])) / _TICKS_PER_S
            moved[pid] = _moved_bytes(pid)
            before = self._moved.get(pid, (0, 0))
            read += max(0, moved[pid][0] - before[0])
            written += max(0, moved[pid][1] - before[1])
        self._moved = moved
        # The kernel adds the written bytes of an ended process to the parent that reaps it.
        collected = _moved_bytes(self._shim)[1]
        total = collected + sum(written_by for _, written_by in moved.values())
        self.written_bytes = max(self.written_bytes, total)
        memory = self._cgroup.memory_now()
        if memory is None:
            memory = sum(map(memory_of, members)) + anonymous_files_bytes(members)
            memory += detached_segments_bytes() if self._own_ipc else 0
        self.peak_bytes = max(self.peak_bytes, memory)
        now = uptime_s()
        passed = max(now - self._at_s, 1e-3)
        percent = max(0.0, cpu_s - self._cpu_s) / passed * 100
        self._cpu_s, self._at_s = max(cpu_s, self._cpu_s), now
        return UsageSample(time.time_ns() // 1_000_000, round(percent, 1), memory, read, written)


def append_sample(path: Path, sample: UsageSample) -> None:
    """Append a sample. A file that is too large is restarted, and a full disk is ignored."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    with suppress(OSError):
        descriptor = os.open(path, flags, 0o600)
        try:
            if os.fstat(descriptor).st_size > _FILE_BOUND_BYTES:
                os.ftruncate(descriptor, 0)
            os.write(descriptor, json.dumps(asdict(sample)).encode() + b"\n")
        finally:
            os.close(descriptor)
