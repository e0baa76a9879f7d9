"""How whatever analyses stands back on a machine whose processors predict as well."""

import os
import time
from pathlib import Path

_BUSY = 0.2
_LOOK_S = 0.05
_STAT = Path("/proc/stat")


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


def _used() -> float:
    """Return how many processors are at work for what has ordinary priority, 1.0 for one."""
    before = _ticks()
    time.sleep(_LOOK_S)
    return (_ticks() - before) / os.sysconf("SC_CLK_TCK") / _LOOK_S


def _ticks() -> int:
    # user nice system idle iowait irq softirq steal: what runs at low priority is in the second.
    first = _STAT.read_text("ascii").split("\n", 1)[0].split()
    return int(first[1]) + int(first[3])
