"""Holds the steps of builds to the bound that tasks have on the disk."""

import asyncio
import os
import resource
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from slipway.schemas.workloads import ReasonCode
from workers.launcher.disk import DiskMeter
from workers.launcher.disk_watch import DiskReport
from workers.launcher.exit_reasons import over_disk
from workers.launcher.processes import descendants, kill_marked, uptime_s
from workers.node_agent.errors import StartError

_EVERY_S: Final = 1.0
_SHARE: Final = 0.1
_SLICE_S: Final = 0.004
# Each level takes two descriptors of the agent.
_MOST_LEVELS: Final = 200


class BuildTooLarge(StartError):
    """A build held more on the disk than it may, or was ended because the disk ran short."""

    def __init__(self, message: str) -> None:
        super().__init__(
            f"The environment could not be built: {message}", reason=ReasonCode.DISK_FULL
        )


class BuildDisk:
    """One step of a build, as far as the disk is concerned. `mark` is in its environment."""

    def __init__(self, folders: Sequence[Path], pid: int, mark: bytes, limit_bytes: int) -> None:
        self.name = f"a build in {folders[0].name}"
        self.message = ""
        self._folders = tuple(map(str, folders))
        self._pid = pid
        self._mark = mark
        self._limit_bytes = limit_bytes
        self._started_at_s = uptime_s()
        self._report: DiskReport | None = None
        self._ended = False
        with suppress(OSError, ValueError):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes))

    def disk_report(self) -> DiskReport | None:
        """Return the disk it held when it was last measured."""
        return self._report

    def end_for_disk(self, message: str) -> None:
        """Kill the build, which then fails with this message."""
        self.message = message
        with suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)
        kill_marked(self._mark)

    async def watch(self) -> None:
        """Measure until it is over its bound, or this is cancelled."""
        try:
            while not self.message:
                await asyncio.to_thread(self._measure)
                await asyncio.sleep(_EVERY_S)
        finally:
            self._ended = True

    def _measure(self) -> None:
        began_at_s = uptime_s()
        meter = DiskMeter(own=self._folders, most_levels=_MOST_LEVELS)
        with suppress(OSError):
            cpu_s = time.thread_time()
            for _ in meter.measure_own([self._pid, *descendants(self._pid)]):
                spent_s = time.thread_time() - cpu_s
                if spent_s >= _SLICE_S:
                    time.sleep(spent_s / _SHARE)
                    cpu_s = time.thread_time()
                if self._ended or meter.result.own_bytes > self._limit_bytes:
                    break
        held = meter.result.own_bytes
        self._report = DiskReport(began_at_s, self._started_at_s, held, meter.result.files, held)
        if not self._ended and (held > self._limit_bytes or meter.result.too_deep):
            over = held if held > self._limit_bytes else None
            self.end_for_disk(over_disk(over, self._limit_bytes))
