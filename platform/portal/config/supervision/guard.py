"""Kills what a supervisor leaves behind when the supervisor itself is killed.

Run as a program of its own with a pipe as standard input. `+PID` reports that a process group
was started, `-PID` that it is gone. The supervisor holds the only other end of the pipe, so the
end of input means that it died in whatever way. Then every group still on the list is killed. The
kernel already kills the direct children (PR_SET_PDEATHSIG). This reaches what they started in
turn.

Some children start processes that must outlive them (tasks run on while their agent restarts), so
no group contains those. `!NAME JSON` names a program, as argv and environment, that cleans up after
such a child. It is run at the very end, unless `~NAME` reported that the child left nothing.

Imports next to nothing and never the rest of Slipway: it is started as a bare file.
"""

import json
import os
import signal
import sys
import time
from typing import Any

# A killed process stays in its group until its parent has reaped it. Wait this long for that.
_PATIENCE_S = 10.0


def _watch(stream: int) -> tuple[set[int], list[Any]]:
    """Read the pipe to its end. Return the groups to kill then, and the programs to run."""
    groups: set[int] = set()
    programs: dict[bytes, Any] = {}
    rest = b""
    while chunk := os.read(stream, 4096):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            sign, word = line[:1], line[1:]
            if sign == b"+":
                groups.add(int(word))
            elif sign == b"-":
                groups.discard(int(word))
            elif sign == b"!":
                name, _, program = word.partition(b" ")
                programs[name] = json.loads(program)
            else:
                programs.pop(word, None)
    return groups, list(programs.values())


def _kill(groups: set[int]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while groups and time.monotonic() < deadline:
        for group in list(groups):
            try:
                os.killpg(group, signal.SIGKILL)
            except ProcessLookupError:
                groups.discard(group)
            except PermissionError:
                groups.discard(group)  # the id now belongs to another process
        time.sleep(0.02)


def main() -> None:
    """Guard until the supervisor closes the pipe, by exiting or by dying."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    groups, programs = _watch(sys.stdin.fileno())
    _kill(groups)
    for program in programs:
        argv, env = program["argv"], program["env"]
        os.spawnve(os.P_WAIT, argv[0], argv, env)  # noqa: S606  (no shell is wanted)


if __name__ == "__main__":
    main()
