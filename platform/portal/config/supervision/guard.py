"""Kills what a supervisor leaves behind when the supervisor itself is killed.

Run as a program of its own with a pipe as standard input. `+PID` says that a process group was
started, `-PID` that it is gone. The supervisor holds the only other end of the pipe, so the end of
input means that it died, however it died; then every group still on the list is killed. The kernel
already kills the direct children (PR_SET_PDEATHSIG); this reaches what they started in turn.

Imports next to nothing and never the rest of Slipway: it is started as a bare file.
"""

import os
import signal
import sys
import time

# A killed process stays in its group until its parent has collected it; give that this long.
_PATIENCE_S = 10.0


def _watch(stream: int) -> set[int]:
    """Follow the pipe to its end; returns the groups that should then be killed."""
    groups: set[int] = set()
    rest = b""
    while chunk := os.read(stream, 4096):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            group = int(line[1:])
            if line[:1] == b"+":
                groups.add(group)
            else:
                groups.discard(group)
    return groups


def _kill(groups: set[int]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while groups and time.monotonic() < deadline:
        for group in list(groups):
            try:
                os.killpg(group, signal.SIGKILL)
            except ProcessLookupError:
                groups.discard(group)
            except PermissionError:
                groups.discard(group)  # the number now belongs to somebody else
        time.sleep(0.02)


def main() -> None:
    """Guard until the supervisor closes the pipe, by leaving or by dying."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    _kill(_watch(sys.stdin.fileno()))


if __name__ == "__main__":
    main()
