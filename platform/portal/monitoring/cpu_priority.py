"""Lower the CPU priority of analysis on machines that also serve predictions."""

import ctypes
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

_BUSY = 0.2
_LOOK_S = 0.05
_STAT = Path("/proc/stat")
_AUTOGROUP_ON = Path("/proc/sys/kernel/sched_autogroup_enabled")
_AUTOGROUP = Path("/proc/self/autogroup")
_PR_SET_PDEATHSIG = 1


def stand_back(nice: int, *, always: bool) -> None:
    """Let this thread, and all that it starts, take what others leave.

    `nice` is how far back it stands. That alone is not enough: a processor is not taken away from
    who has begun a turn of some milliseconds. So half of the processors are left alone `always`, or
    as long as something of ordinary priority is at work, and whoever predicts finds a free one.
    """
    os.nice(max(0, nice - os.getpriority(os.PRIO_PROCESS, 0)))
    processors = sorted(os.sched_getaffinity(0))
    if len(processors) > 1 and (always or _used() > _BUSY):
        os.sched_setaffinity(0, processors[len(processors) // 2 :])


def stand_apart(nice: int) -> None:
    """Let this process, which nothing else shares, stand back as a whole; it dies with its parent.

    A kernel made for desktops gives each session its share of the processors, and how nice a
    process is counts among those of its own session alone (sched(7), autogroup). So it gets a
    session of its own that is nice. Elsewhere nothing changes.
    """
    with suppress(OSError):
        if _AUTOGROUP_ON.read_text("ascii").strip() == "1":
            parent = os.getppid()
            os.setsid()
            # It is in no process group any more that is ended with the parent's.
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
            if os.getppid() != parent:
                os.kill(os.getpid(), signal.SIGKILL)
            _AUTOGROUP.write_text(str(nice), "ascii")


def _used() -> float:
    """Return how many processors are at work for what has ordinary priority, 1.0 for one."""
    before = _ticks()
    time.sleep(_LOOK_S)
    return (_ticks() - before) / os.sysconf("SC_CLK_TCK") / _LOOK_S


def _ticks() -> int:
    # user nice system idle iowait irq softirq steal: what runs at low priority is in the second.
    first = _STAT.read_text("ascii").split("\n", 1)[0].split()
    return int(first[1]) + int(first[3])
