"""CPU priority of the shipper's two threads, and the points at which each yields."""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

# Row-group size. A group's fixed cost equals about 600 rows. The normal-priority thread, which
# rests, writes smaller groups, because predictions wait for the whole of a write.
GROUP_BYTES: Final = 4 << 20
HURRIED_GROUP_BYTES: Final = 2 << 20
# The normal-priority thread works this long and then sleeps three times as long. Otherwise a thread
# that waits for the processor would get it only at the kernel's next clock tick, up to 4 ms later.
# Overdue segments are shipped without rests.
_WORK_S: Final = 0.0005
_REST: Final = 3.0
_LONGEST_REST_S: Final = 0.02
_LOWEST_NICE: Final = 19


class AttemptAbandoned(Exception):
    """Another thread ships the segment."""


class Attempt:
    """One thread's work on a segment, until another takes the segment over.

    `mark` separates unfinished files from those of the other thread. With `yields` the thread runs
    only when no other is runnable. With `rests` it sleeps often, so that predictions wait half a
    millisecond for it and not for the whole segment. Rows are written once there are `group_bytes`
    of them.
    """

    def __init__(
        self,
        mark: str = "",
        *,
        yields: bool = False,
        rests: bool = False,
        group_bytes: int = GROUP_BYTES,
    ) -> None:
        self.mark = mark
        self.group_bytes = group_bytes
        self._yields = yields
        self._is_yielding = rests
        self._working_since_s: float | None = None
        self._ending = threading.Lock()
        self._is_abandoned = False
        self._has_ended = False

    def abandon(self) -> bool:
        """Abandon the attempt. Return False if it has ended or is ending."""
        if not self._ending.acquire(blocking=False):
            return False
        self._is_abandoned = not self._has_ended
        self._ending.release()
        return self._is_abandoned

    def check(self) -> None:
        """Raise GivenUp once another thread has the segment."""
        if self._is_abandoned:
            raise AttemptAbandoned

    def pause(self) -> None:
        """Yield the CPU. Call it from the thread that ships. Raises GivenUp."""
        self.check()
        if self._yields:
            # SCHED_IDLE still gets a share under EEVDF, immediately after it slept or ran alone.
            # A gateway that its replica wakes would wait for it. A thread that yields gets no
            # share for a second (observed on Linux 6.18, elsewhere it may change nothing).
            os.sched_yield()
        if not self._is_yielding:
            return
        now = time.thread_time()
        if self._working_since_s is None:
            self._working_since_s = now
        elif (worked_s := now - self._working_since_s) > _WORK_S:
            time.sleep(min(worked_s * _REST, _LONGEST_REST_S))
            self._working_since_s = time.thread_time()

    @contextmanager
    def ending(self) -> Iterator[None]:
        """Finish without a takeover from here on. Raises GivenUp if another thread took over."""
        with self._ending:
            self.check()
            yield
            self._has_ended = True


def use_idle_priority() -> None:
    """Set SCHED_IDLE for this thread, so that waking threads preempt it immediately."""
    try:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    except OSError:  # not in this container
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LOWEST_NICE)
