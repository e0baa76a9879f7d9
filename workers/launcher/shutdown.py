"""Shutdown of the ranks of a task, and the recorded cause."""

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from workers.launcher.exit_reasons import ENGINE_ENDED, PREEMPTED
from workers.launcher.launch import Launch, StopRequest
from workers.launcher.processes import descendants, living_descendants, send, send_group, uptime_s
from workers.launcher.program import STACK_SIGNAL
from workers.launcher.ranks import Rank

# Short grace period for peers of a failed rank: their checkpoints would be useless.
PEER_GRACE_S: Final = 0.4
# The OOM killer should spare the shim, which records why the task ended.
_OOM_SCORE: Final = b"700"
# An interpreter that has imported torch exits slowly, and user code may run at exit.
_EXIT_PATIENCE_S: Final = 3.0
_STACK_PATIENCE_S: Final = 2.0
_KILL_PATIENCE_S: Final = 10.0


class Shutdown:
    """Shutdown of a task. The first cause is retained, and later ones can only speed it up."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._kill_at_s: float | None = None
        self._stacks_until_s: float | None = None
        self._failing: Rank | None = None
        # PID 1 of the ranks' sandbox. It ends only once all ranks have been collected.
        self.init: int | None = None
        self.stop_reason: str | None = None
        self.stop_message = ""
        # True after a request to end the ranks and keep the task.
        self.keeps = False
        self.fenced_after_s: float | None = None
        self.memory_over_bytes: int | None = None
        self.disk_over: str | None = None
        self.hung_for_s: float | None = None

    @property
    def has_begun(self) -> bool:
        """True once the ranks are being ended."""
        return self._kill_at_s is not None

    def stop(self, ranks: list[Rank], request: StopRequest) -> None:
        """End on request: ask, then kill after the grace."""
        if not self.has_begun:
            self.stop_reason, self.stop_message = request.reason, request.message
        self.keeps = request.keeps
        self._terminate(ranks, request.grace_s)

    def ended_by_engine(self) -> None:
        """Record that the engine ended the allocation, and its signal the ranks before we could."""
        evidence = (self.fenced_after_s, self.memory_over_bytes, self.disk_over, self.hung_for_s)
        if self.stop_reason is None and all(part is None for part in evidence):
            self.stop_reason, self.stop_message = PREEMPTED, ENGINE_ENDED

    def failing(self, ranks: list[Rank], failed: Rank) -> None:
        """End because the script of a rank failed. That rank itself may still finish its exit."""
        if not self.has_begun:
            self._failing = failed
        self._terminate([rank for rank in ranks if rank is not failed], _EXIT_PATIENCE_S)

    def peer_failed(self, ranks: list[Rank]) -> None:
        """End because a rank is gone, but only after the rank that failed first has exited."""
        if self._failing is None or not self._failing.running:
            self._terminate(ranks, PEER_GRACE_S)

    def fence(self, after_s: float) -> None:
        """End at once: another node may already run this task."""
        if not self.has_begun:
            self.fenced_after_s = after_s
        self._kill_at_s = 0.0

    def over_memory(self, used_bytes: int) -> None:
        """End at once: the task uses more than it was given, and no kernel limit stopped it."""
        if not self.has_begun:
            self.memory_over_bytes = used_bytes
        self._kill_at_s = 0.0

    def over_disk(self, message: str) -> None:
        """End at once: the task holds more on the disk than it may, and goes on writing."""
        if not self.has_begun:
            self.disk_over = message
        self._kill_at_s = 0.0

    def end_hung(self, ranks: list[Rank], for_s: float) -> None:
        """Make every rank write its stacks to its log, then end."""
        self.hung_for_s = for_s
        for rank in ranks:
            if rank.running and rank.shows_stack:
                send(rank.pid, STACK_SIGNAL)
        self._kill_at_s = uptime_s() + _STACK_PATIENCE_S

    def _terminate(self, ranks: list[Rank], grace_s: float) -> None:
        kill_at_s = uptime_s() + grace_s
        if self._kill_at_s is None:
            for rank in ranks:
                if rank.running:
                    # The whole group, because a shell that started Python does not forward signals.
                    send_group(rank.pid, signal.SIGTERM)
                    send_group(rank.pid, signal.SIGCONT)
            self._kill_at_s = kill_at_s
        else:
            self._kill_at_s = min(self._kill_at_s, kill_at_s)

    def wait_s(self) -> float | None:
        """Return the seconds until the ranks must be killed, or None if they need not."""
        return None if self._kill_at_s is None else max(0.0, self._kill_at_s - uptime_s())

    def is_due(self) -> bool:
        """Return whether the grace period is over."""
        return self._kill_at_s is not None and uptime_s() >= self._kill_at_s

    def kill_tree(self) -> None:
        """Kill everything the task ever started, including what made itself a daemon.

        Orphans come to the shim, which asked the kernel for them, so nobody can leave the family.
        """
        self._launch.cgroup.kill()
        deadline = time.monotonic() + _KILL_PATIENCE_S
        while time.monotonic() < deadline:
            living = living_descendants(os.getpid())
            for pid in living:
                send(pid, signal.SIGKILL)
            if not set(living) - {self.init}:
                return
            time.sleep(0.002)


def has_descendants() -> bool:
    """Return whether child processes remain to be reaped."""
    return bool(descendants(os.getpid()))


def offer_to_oom_killer() -> Callable[[], None]:
    """Make the next forked processes the OOM killer's first choice. Return an undo function.

    The file is opened now because confinement forbids it later.
    """
    try:
        descriptor = os.open("/proc/self/oom_score_adj", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return lambda: None
    before = os.read(descriptor, 16)

    def spare_us() -> None:
        with suppress(OSError):
            os.pwrite(descriptor, before, 0)
        os.close(descriptor)

    with suppress(OSError):
        os.pwrite(descriptor, _OOM_SCORE, 0)
    return spare_us
