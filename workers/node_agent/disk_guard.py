"""Keeps a reserve of the node's disk free: ends the task that grew most before others meet its end.

Each shim holds its task to the bound of one task (`workers.launcher.disk_watch`). Together tasks
may still hold more than there is. So the agent looks at the free space several times a second, and
below the reserve it compares what the shims and the builds have measured.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from workers.launcher.disk import FreeSpace
from workers.launcher.disk_watch import DiskReport
from workers.launcher.exit_reasons import DISK_FULL, gibibytes
from workers.launcher.launch import StateFolder, StopRequest
from workers.launcher.processes import uptime_s
from workers.node_agent.attempts import Attempt, AttemptTable
from workers.node_agent.disk_limits import DiskLimits

log = logging.getLogger(__name__)
_LOOK_EVERY_S: Final = 0.25
_REPORTS_EVERY_S: Final = 1.0
# Growth counts over this time, so that a large task that is finished with writing is spared.
_GROWTH_OVER_S: Final = 60.0
# Shims also check the disk, and may have noticed the shortage this much earlier.
_REPORT_AGE_S: Final = 0.5
# Older reports are used if newer ones take longer than this.
_REPORT_PATIENCE_S: Final = 1.0
# The disk space is freed some time after the end of a task.
_SETTLE_S: Final = 2.0
# A task that grew by less than this part of the reserve is not the cause.
_LEAST_PART: Final = 20
# A task that grew by less than this part of what went elsewhere is not the cause either.
_MINOR_PART: Final = 10
_LEAST_FILES: Final = 1000
_SAY_EVERY_S: Final = 60.0


class DiskUser(Protocol):
    """Something whose writing can be ended."""

    @property
    def name(self) -> str:
        """The name in logs."""

    def disk_report(self) -> DiskReport | None:
        """Return the disk it held when it was last measured."""

    def end_for_disk(self, message: str) -> None:
        """End it, with this message for its owner."""


@dataclass(frozen=True)
class _Task:
    """A task of the table."""

    attempt: Attempt

    @property
    def name(self) -> str:
        return self.attempt.handle

    def disk_report(self) -> DiskReport | None:
        return DiskReport.read(StateFolder(self.attempt.folder.state).disk)

    def end_for_disk(self, message: str) -> None:
        self.attempt.disk_stop = StopRequest(DISK_FULL, 0.0, message)
        self.attempt.notifier.notify()


@dataclass
class History:
    """Reports of one task over the last minute."""

    reports: deque[DiskReport] = field(default_factory=deque)

    def add(self, report: DiskReport) -> None:
        """Add a report, if it is new, and drop what is too old."""
        if not self.reports or report.at_s > self.reports[-1].at_s:
            self.reports.append(report)
        while len(self.reports) > 1 and self.reports[1].at_s < report.at_s - _GROWTH_OVER_S:
            self.reports.popleft()

    def growth(self, measure: Callable[[DiskReport], int]) -> int:
        """By how much it grew in the time. One that is younger than that began with nothing."""
        first, last = self.reports[0], self.reports[-1]
        is_young = last.at_s - last.started_at_s < _GROWTH_OVER_S
        return measure(last) - (0 if is_young else measure(first))


class DiskGuard:
    """Looks at the free space of one folder's file system, and ends tasks while it is short."""

    def __init__(
        self,
        folder: Path,
        limits: DiskLimits,
        table: AttemptTable,
        builds: Callable[[], Iterable[DiskUser]] = tuple,
    ) -> None:
        self._folder = folder
        self._limits = limits
        self._table = table
        self._builds = builds
        self._histories: dict[str, History] = {}
        self._free: deque[tuple[float, int]] = deque()
        self._read_at_s = 0.0
        self._short_since_s: float | None = None
        self._ended_at_s = 0.0
        self._logged_at_s = -_SAY_EVERY_S

    async def run(self) -> None:
        """Check free space forever."""
        while True:
            self.check()
            await asyncio.sleep(_LOOK_EVERY_S)

    def check(self) -> None:
        """Check free space once, and end one task if it is short."""
        now = uptime_s()
        space = FreeSpace.of(str(self._folder), self._limits.reserve_bytes)
        if not space.is_short:
            self._short_since_s = None
        elif self._short_since_s is None:
            self._short_since_s = now
        if space.is_short or now - self._read_at_s >= _REPORTS_EVERY_S:
            self._read_at_s = now
            self._read_reports()
            self._free.append((now, space.free_bytes))
            while self._free[0][0] < now - _GROWTH_OVER_S:
                self._free.popleft()
        if self._short_since_s is None or now - self._ended_at_s < _SETTLE_S:
            return
        if any(attempt.disk_stop and not attempt.finished for attempt in self._table):
            return
        users = [user for user in self._users() if user.name in self._histories]
        last = [self._histories[user.name].reports[-1].at_s for user in users]
        is_late = now - self._short_since_s >= _REPORT_PATIENCE_S
        if not is_late and any(at_s < self._short_since_s - _REPORT_AGE_S for at_s in last):
            return
        self._relieve(users, space, now)

    def _users(self) -> list[DiskUser]:
        running = (attempt for attempt in self._table if not attempt.finished)
        return [*map(_Task, running), *self._builds()]

    def _read_reports(self) -> None:
        users = {user.name: user for user in self._users()}
        for name in self._histories.keys() - users.keys():
            del self._histories[name]
        for name, user in users.items():
            report = user.disk_report()
            if report is not None:
                self._histories.setdefault(name, History()).add(report)

    def _relieve(self, users: list[DiskUser], space: FreeSpace, now: float) -> None:
        """End the task that is the cause. If there is none, only log that the disk is short."""
        is_bytes = space.free_bytes < self._limits.reserve_bytes
        histories = {user.name: self._histories[user.name] for user in users}
        name = offending_task(
            histories, self._limits, is_bytes=is_bytes, hidden_bytes=self._hidden_bytes(users)
        )
        if name is None:
            if now - self._logged_at_s >= _SAY_EVERY_S:
                self._logged_at_s = now
                log.warning(
                    "the disk has %s free, less than its reserve of %s, but no task is the cause",
                    *map(gibibytes, (space.free_bytes, self._limits.reserve_bytes)),
                )
            return
        user = next(user for user in users if user.name == name)
        self._ended_at_s = now
        held = gibibytes(self._histories[user.name].reports[-1].held_bytes)
        free, reserve = map(gibibytes, (space.free_bytes, self._limits.reserve_bytes))
        short = f"had {free} left of its reserve of {reserve}" if is_bytes else "had few files left"
        log.warning("the disk %s: stopping %s, which uses %s", short, user.name, held)
        user.end_for_disk(
            f"The node's disk {short}, and this task had grown most. It used {held}, of at most "
            f"{gibibytes(self._limits.task_bytes)}."
        )

    def _hidden_bytes(self, users: list[DiskUser]) -> int:
        """By how much the free space fell without any task seeming to grow."""
        grown = sum(max(0, self._histories[user.name].growth(_held_bytes)) for user in users)
        return self._free[0][1] - self._free[-1][1] - grown


def offending_task(
    histories: Mapping[str, History], limits: DiskLimits, *, is_bytes: bool, hidden_bytes: int
) -> str | None:
    """Return the task that has to end, or None if no task is the cause.

    That is the task that grew most lately, else the one that wrote most if space is missing that no
    measurement accounts for, else one that holds more than an equal share.
    """
    if not histories:
        return None
    held = _held_bytes if is_bytes else _files
    least = limits.reserve_bytes // _LEAST_PART if is_bytes else _LEAST_FILES
    growth = {name: history.growth(held) for name, history in histories.items()}
    largest = max(growth, key=growth.__getitem__)
    is_cause = not is_bytes or growth[largest] * _MINOR_PART > hidden_bytes
    if growth[largest] > least and is_cause:
        return largest
    if is_bytes and hidden_bytes > least:
        written = {name: history.growth(_written_bytes) for name, history in histories.items()}
        largest = max(written, key=written.__getitem__)
        if written[largest] > hidden_bytes // 2:
            return largest
    size = {name: held(history.reports[-1]) for name, history in histories.items()}
    largest = max(size, key=size.__getitem__)
    share = limits.capacity_bytes // (len(histories) + 1)
    return largest if is_bytes and size[largest] > share else None


def _held_bytes(report: DiskReport) -> int:
    return report.held_bytes


def _files(report: DiskReport) -> int:
    return report.files


def _written_bytes(report: DiskReport) -> int:
    return report.written_bytes
