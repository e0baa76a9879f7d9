"""Holds a task to its bound on the disk: when to measure, and what to do with the result.

A measurement is cut into slices of a few milliseconds, with pauses that keep it to a small share of
one CPU. How often it begins depends on what may have changed since the last one.
"""

import json
import os
import resource
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from workers.launcher.disk import DiskMeter, FreeSpace
from workers.launcher.launch import Launch
from workers.launcher.processes import living_descendants, uptime_s
from workers.launcher.usage import UsageMeter

_LOOK_EVERY_S: Final = 0.25
# While the free space is this many times the reserve, it is checked less often.
_PLENTY: Final = 3
_EVERY_S: Final = 1.0
_QUIET_EVERY_S: Final = 20.0
_URGENT_EVERY_S: Final = 0.2
# Shares of one CPU.
_SHARE: Final = 0.03
_URGENT_SHARE: Final = 0.10
# The shim itself writes a little: samples and logs.
_QUIET_BYTES: Final = 1 << 20
_SLICE_S: Final = 0.004
_CLOCK_SLACK_S: Final = 0.05
_REPORT_BYTES: Final = 256


@dataclass(frozen=True)
class DiskReport:
    """The disk that a task held at a time since boot, for the agent that compares tasks."""

    at_s: float
    started_at_s: float
    held_bytes: int
    files: int
    written_bytes: int

    @classmethod
    def read(cls, path: Path) -> "DiskReport | None":
        """Return the newest report. In a container user code may have written it."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                fields = json.loads(os.read(descriptor, _REPORT_BYTES))
            finally:
                os.close(descriptor)
            at_s, started_at_s = float(fields["at_s"]), float(fields["started_at_s"])
            return cls(at_s, started_at_s, *(int(fields[name]) for name in _COUNTS))
        except (OSError, ValueError, TypeError, KeyError, OverflowError):
            return None

    def write(self, path: Path) -> None:
        """Overwrite in place, which works on a full disk.

        After a failure the report is outdated.
        """
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with suppress(OSError):
            descriptor = os.open(path, flags, 0o600)
            try:
                os.pwrite(descriptor, json.dumps(asdict(self)).ljust(_REPORT_BYTES).encode(), 0)
            finally:
                os.close(descriptor)


_COUNTS: Final = ("held_bytes", "files", "written_bytes")


class DiskWatch:
    """Measures what the task of this shim holds. `over` says by how much it is too much."""

    def __init__(self, launch: Launch, usage: UsageMeter) -> None:
        self._launch = launch
        self._usage = usage
        self._started_at_s = uptime_s()
        self._since_s = time.time() - _CLOCK_SLACK_S
        self._meter: DiskMeter | None = None
        self._steps: Iterator[None] | None = None
        self._held_bytes = 0
        self._begun_at_s = self._polled_at_s = self._resume_at_s = 0.0
        # A short task is never measured.
        self._ended_at_s = self._started_at_s
        self._written_bytes = 0
        self._free = self._free_then = FreeSpace(0, is_short=False)
        self._short_since_s: float | None = None
        self.over_bytes: int | None = None
        self.too_deep = False

    def prepare(self) -> None:
        """Prepare for deep folders. Call it after the last fork: ranks have their own limit."""
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

    def wait_s(self) -> float:
        """Seconds until there is something to do."""
        if not self._launch.disk_bytes or self.is_exceeded:
            return _EVERY_S
        due = self._polled_at_s + self._poll_interval_s()
        if self._steps is not None:
            due = min(due, self._resume_at_s)
        return max(0.0, due - uptime_s())

    @property
    def is_exceeded(self) -> bool:
        """Return whether the task must end."""
        return self.over_bytes is not None or self.too_deep

    def step(self) -> None:
        """Get on by a slice, if it is time."""
        if not self._launch.disk_bytes or self.is_exceeded:
            return
        now = uptime_s()
        if now - self._polled_at_s >= self._poll_interval_s():
            self._poll(now)
        due = max(self._ended_at_s + self._every_s(), self._resume_at_s)
        if self._steps is None and now >= due:
            self._begin(now)
        if self._steps is not None and now >= self._resume_at_s:
            self._slice(self._steps, now)

    def _poll(self, now: float) -> None:
        is_first = not self._polled_at_s
        self._polled_at_s = now
        with suppress(OSError):
            self._free = FreeSpace.of(self._launch.work_dir, self._launch.disk_reserve_bytes)
        if is_first:
            self._free_then = self._free
        if not self._free.is_short:
            self._short_since_s = None
        elif self._short_since_s is None:
            self._short_since_s = now

    def _poll_interval_s(self) -> float:
        is_plenty = self._free.free_bytes > _PLENTY * self._launch.disk_reserve_bytes
        return _EVERY_S if is_plenty else _LOOK_EVERY_S

    def _every_s(self) -> float:
        if self._is_urgent():
            return _URGENT_EVERY_S
        if self._meter is None:
            return _EVERY_S
        is_quiet = self._usage.written_bytes - self._written_bytes < _QUIET_BYTES
        left = self._launch.disk_bytes - self._held_bytes
        return _QUIET_EVERY_S if is_quiet and self._possible_growth() < left // 2 else _EVERY_S

    def _possible_growth(self) -> int:
        """Bytes by which the task may have grown since the last measurement began."""
        written = self._usage.written_bytes - self._written_bytes
        # Space can be reserved without writing to it.
        return max(written, self._free_then.free_bytes - self._free.free_bytes)

    def _is_urgent(self) -> bool:
        left = self._launch.disk_bytes - self._held_bytes
        # The agent waits for one measurement of each task when the space becomes short.
        is_awaited = self._short_since_s is not None and self._begun_at_s < self._short_since_s
        return is_awaited or self._possible_growth() > left

    def _begin(self, now: float) -> None:
        launch = self._launch
        shared = filter(None, (launch.persistent_dir, launch.personal_dir, launch.cache_dir))
        self._meter = DiskMeter(
            own=(launch.work_dir, launch.home_dir, launch.tmp_dir),
            shared=tuple(shared),
            since_s=self._since_s,
        )
        self._begun_at_s = now
        self._free_then = self._free
        self._written_bytes = self._usage.written_bytes
        self._steps = self._measure(self._meter)

    def _measure(self, meter: DiskMeter) -> Iterator[None]:
        yield from meter.measure_own(living_descendants(os.getpid()))
        most = meter.result.own_bytes + self._usage.written_bytes
        # Shared folders may be large, and matter to a task that has written much.
        if most > self._launch.disk_bytes or self._free.is_short:
            yield from meter.shared_steps()

    def _slice(self, steps: Iterator[None], now: float) -> None:
        cpu_s = time.thread_time()
        until = time.monotonic() + _SLICE_S
        done = False
        try:
            while time.monotonic() < until:
                next(steps)
        except StopIteration:
            done = True
        except OSError:
            done = True  # a folder is gone: the task is being cleaned up
        spent_s = time.thread_time() - cpu_s
        share = _URGENT_SHARE if self._is_urgent() else _SHARE
        self._resume_at_s = now + spent_s / share
        self._compare(done=done)
        if done or self.is_exceeded:
            self._steps = None
            self._ended_at_s = uptime_s()

    def _compare(self, *, done: bool) -> None:
        """Compare, also before the end of a measurement: what was counted is held already."""
        assert self._meter is not None  # noqa: S101 - set with the steps
        result = self._meter.result
        held = result.held_bytes(self._usage.written_bytes)
        if held > self._launch.disk_bytes:
            self.over_bytes = held
        self.too_deep = result.too_deep
        if done or self.is_exceeded:
            self._held_bytes = held
            DiskReport(
                at_s=self._begun_at_s,
                started_at_s=self._started_at_s,
                held_bytes=held,
                files=result.files,
                written_bytes=self._usage.written_bytes,
            ).write(self._launch.folder.disk)
