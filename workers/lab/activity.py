"""Activity of a notebook server: kernels, terminals, files, and background processes.

An open browser tab sends requests all the time, so the server's own usage is no sign of activity.
The usage of its child processes is.
"""

import os
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from workers.lab.personal import path_in_personal

# Saves within this time of a stop warning are the page's own autosave, not activity.
_EXPECTED_SAVES_S: Final = 5.0
# Usage above these is activity. A waiting kernel or shell stays far below.
_CPU_SHARE: Final = 0.05
_BYTES_A_SECOND: Final = 64 * 1024
_TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Work:
    """Current activity. `moved` is true if there was any since the previous check."""

    busy: tuple[str, ...]
    kernels: int
    terminals: int
    moved: bool
    why: str
    open_files: tuple[str, ...]


@dataclass
class Watch:
    """Checks a server for activity. Saves and requests to keep it are reported by callers."""

    serverapp: Any
    _saved_at: float = 0.0
    _saves_expected_until: float = 0.0
    _keep_requested: bool = False
    _polled_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    _used: dict[int, tuple[float, int]] = field(default_factory=dict)
    _measured_at: float = field(default_factory=time.monotonic)
    _saves_counted_at: float = 0.0

    def note_save(self) -> None:
        """A file was saved."""
        if time.monotonic() > self._saves_expected_until:
            self._saved_at = time.monotonic()

    def expect_saves(self) -> None:
        """Ignore the saves that the page is about to make by itself."""
        self._saves_expected_until = time.monotonic() + _EXPECTED_SAVES_S

    def keep_alive(self) -> None:
        """Somebody at the page wants the server to go on."""
        self._keep_requested = True

    def busy(self) -> tuple[str, ...]:
        """Return what the busy kernels work on."""
        kernels = self.serverapp.kernel_manager
        return tuple(
            self._name_of(kernel_id)
            for kernel_id in kernels.list_kernel_ids()
            if getattr(kernels.get_kernel(kernel_id), "execution_state", "") == "busy"
        )

    def poll(self) -> Work:
        """Return what works, and forget what had happened until now."""
        busy = self.busy()
        why = self._activity_reason(busy)
        self._polled_at = datetime.now(UTC)
        self._saves_counted_at = self._saved_at
        self._keep_requested = False
        files = tuple(sorted(set(self._paths().values())))
        return Work(
            busy=busy,
            kernels=len(self.serverapp.kernel_manager.list_kernel_ids()),
            terminals=len(self._terminals()),
            moved=bool(why),
            why=why,
            open_files=files[:100],
        )

    def _activity_reason(self, busy: tuple[str, ...]) -> str:
        background = self._background()
        if busy:
            more = f" and {len(busy) - 1} more" if len(busy) > 1 else ""
            return f"a kernel is busy: {busy[0]}{more}"[:200]
        if self._keep_requested:
            return "kept running on request"
        if self._saved_at > self._saves_counted_at:
            return "a file was just saved"
        kernels = self.serverapp.kernel_manager
        ran = [
            kernels.get_kernel(kernel_id).last_activity for kernel_id in kernels.list_kernel_ids()
        ]
        if any(at is not None and at > self._polled_at for at in ran):
            return "a kernel was just active"
        if any(at > self._polled_at for at in self._terminals()):
            return "a terminal is in use"
        return background

    def _terminals(self) -> list[datetime]:
        manager = self.serverapp.web_app.settings.get("terminal_manager")
        terminals = getattr(manager, "terminals", {}) if manager is not None else {}
        return [getattr(item, "last_activity", self._polled_at) for item in terminals.values()]

    def _paths(self) -> dict[str, str]:
        """Return the file behind each kernel, as the sessions have it.

        All members of the project see these names, so files of the personal folder have none.
        """
        sessions = self.serverapp.session_manager
        try:
            rows = sessions.cursor.execute("SELECT path, kernel_id FROM session").fetchall()
        except AttributeError:
            return {}
        return {
            str(kernel): str(path)
            for path, kernel in rows
            if path and path_in_personal(str(path)) is None
        }

    def _name_of(self, kernel: str) -> str:
        return self._paths().get(kernel, "without a notebook")[:150]

    def _background(self) -> str:
        """Return a sentence if child processes use the processor, disk or network, else ""."""
        now = time.monotonic()
        span_s = max(0.001, now - self._measured_at)
        used = {pid: _use_of(pid) for pid in _below(os.getpid())}
        cpu = sum(item[0] - self._used.get(pid, (0.0, 0))[0] for pid, item in used.items())
        moved = sum(item[1] - self._used.get(pid, (0.0, 0))[1] for pid, item in used.items())
        known = bool(self._used)
        self._used, self._measured_at = used, now
        if known and cpu / span_s > _CPU_SHARE:
            return "a background process uses the CPU"
        if known and moved / span_s > _BYTES_A_SECOND:
            return "a background process reads or writes"
        return ""


def _below(pid: int) -> list[int]:
    """Return every process below one."""
    below: list[int] = []
    waiting = [pid]
    while waiting:
        try:
            tasks = Path(f"/proc/{waiting.pop()}/task").glob("*/children")
            children = [int(item) for task in tasks for item in task.read_text().split()]
        except OSError:
            continue
        below += children
        waiting += children
    return below


def _use_of(pid: int) -> tuple[float, int]:
    """Return the processor seconds of a process and the bytes it has read and written."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    except OSError:
        return 0.0, 0
    io = dict(line.split(": ", 1) for line in lines if ": " in line)
    bytes_moved = int(io.get("rchar", 0)) + int(io.get("wchar", 0))
    return (int(fields[11]) + int(fields[12])) / _TICKS, bytes_moved
