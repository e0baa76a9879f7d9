"""A task that has failed and stays for a time, so that people can open shells where it ran."""

from collections.abc import Callable
from typing import Final

from workers.launcher import exit_reasons
from workers.launcher.disk_watch import DiskWatch
from workers.launcher.launch import Launch
from workers.launcher.lease import Lease
from workers.launcher.processes import start_ticks, uptime_s
from workers.launcher.usage import SAMPLE_EVERY_S, UsageMeter, append_sample

_TICK_S: Final = 1.0
_LOOK_EVERY_S: Final = 0.1


def obstacle_to_keeping(reason: str, init: int | None) -> str:
    """Return why a task that failed for a reason cannot stay, empty if it can.

    `init` is the first process of its sandbox.
    """
    if reason == exit_reasons.DISK_FULL:
        return "the node needs the disk space that it holds"
    if init is not None and start_ticks(init) is None:
        return "its sandbox ended with its processes"
    return ""


def log_line(launch: Launch) -> str:
    """Return what the log says about a task that is kept."""
    seconds = round(launch.keep_failed_s)
    time = f"{round(seconds / 60)} min" if seconds >= 60 else f"{seconds} s"
    return (
        f"[slipway] The task failed and is kept for {time}. Open a shell in it: "
        f"slipway job shell {launch.workload_id}\n"
    )


class KeptTask:
    """A failed task from its failure to the end of its time."""

    def __init__(self, launch: Launch, lease: Lease, disk: DiskWatch, usage: UsageMeter) -> None:
        self._launch = launch
        self._lease = lease
        self._disk = disk
        self._usage = usage
        self._until_s = uptime_s() + launch.keep_failed_s
        self._sampled_at_s = 0.0

    def stay(self, poll: Callable[[float], None], is_stopped: Callable[[], bool]) -> str:
        """Poll until the task may stay no longer, and return why.

        `poll` serves shells, for at most so many seconds. `is_stopped` says whether the shim was
        asked to end.
        """
        while not (reason := self._reason_to_end(is_stopped=is_stopped())):
            left_s = max(0.0, self._until_s - uptime_s())
            poll(min(_TICK_S, left_s, max(self._disk.wait_s(), _LOOK_EVERY_S)))
            self._disk.step()
        return reason

    def _reason_to_end(self, *, is_stopped: bool) -> str:
        request = self._launch.folder.stop_request()
        left_s = self._lease.remaining_s()
        if request is not None and not request.keeps:
            return request.message
        # The signal that comes with a request to keep the task.
        if is_stopped and request is None:
            return "Its supervisor was asked to end."
        if left_s is not None and left_s <= 0:
            return "The node could not reach the portal."
        if self._disk.is_exceeded:
            return exit_reasons.over_disk(self._disk.over_bytes, self._launch.disk_bytes)
        if uptime_s() >= self._until_s:
            return "Its time is over."
        return self._memory_reason()

    def _memory_reason(self) -> str:
        """Measure from time to time, and return the reason to end if it uses too much memory."""
        is_limited = self._launch.cgroup.memory is not None
        now = uptime_s()
        if now - self._sampled_at_s < (SAMPLE_EVERY_S if is_limited else _TICK_S):
            return ""
        self._sampled_at_s = now
        sample = self._usage.sample()
        append_sample(self._launch.folder.usage, sample)
        if is_limited or sample.memory_bytes <= self._launch.memory_bytes:
            return ""
        used, limit = map(exit_reasons.gibibytes, (sample.memory_bytes, self._launch.memory_bytes))
        return f"It used {used}, more than its {limit}."
