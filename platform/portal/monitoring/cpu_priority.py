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
_AUTOGROUP_WITHIN_S = 5.0
_PR_SET_PDEATHSIG = 1


def lower_thread_priority(nice: int, *, always: bool) -> None:
    """Lower the CPU priority of this thread, and of all threads and processes it starts.

    `nice` is the new nice value. That alone is not enough: a process is not preempted during its
    time slice of some milliseconds. So half of the processors are left free `always`, or as long as
    normal-priority work uses the machine, and serving processes find an idle one.
    """
    os.nice(max(0, nice - os.getpriority(os.PRIO_PROCESS, 0)))
    processors = sorted(os.sched_getaffinity(0))
    if len(processors) > 1 and (always or _used() > _BUSY):
        os.sched_setaffinity(0, processors[len(processors) // 2 :])


def lower_session_priority(nice: int) -> None:
    """Lower the CPU priority of this process as a whole, on kernels with autogroup.

    Such a kernel, made for desktops, gives each session its share of the processors, and a nice
    value only has an effect within a session (sched(7), autogroup). So this process gets its own
    session with a nice value, and is killed when its parent exits. Elsewhere nothing changes.
    """
    with suppress(OSError):
        if _AUTOGROUP_ON.read_text("ascii").strip() == "1":
            parent = os.getppid()
            os.setsid()
            # It has left the process group that is killed with the parent.
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
            if os.getppid() != parent:
                os.kill(os.getpid(), signal.SIGKILL)
            _write_autogroup(nice)


def _write_autogroup(nice: int) -> None:
    """Set the nice value of this session. Raises OSError.

    Linux allows all processes without CAP_SYS_ADMIN one change in a tenth of a second together.
    """
    deadline = time.monotonic() + _AUTOGROUP_WITHIN_S
    while True:
        try:
            _AUTOGROUP.write_text(str(nice), "ascii")
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_LOOK_S)
        else:
            return


def _used() -> float:
    """Return the number of processors busy with normal-priority work, 1.0 for one."""
    before = _ticks()
    time.sleep(_LOOK_S)
    return (_ticks() - before) / os.sysconf("SC_CLK_TCK") / _LOOK_S


def _ticks() -> int:
    # user nice system idle iowait irq softirq steal: low-priority work counts as nice.
    first = _STAT.read_text("ascii").split("\n", 1)[0].split()
    return int(first[1]) + int(first[3])
