"""Lease of a node: the time it may run tasks without reaching the portal, watched by every shim.

The agent writes the deadline after each answered heartbeat, counted from the time the heartbeat was
sent, in seconds since boot. Shims read it themselves, so tasks are fenced even if the agent is
dead, frozen or gone.
"""

import os
from pathlib import Path
from typing import Final

from workers.launcher.processes import boot_id, uptime_s

_NAME: Final = "lease"
_LINE_BYTES: Final = 80
_READS: Final = 5


class Lease:
    """The deadline of one node, in a folder that the agent and its shims share.

    It is overwritten in place, so that tasks that fill the disk cannot end the lease. The file
    holds it twice, so that a reader detects a concurrent write.
    """

    def __init__(self, shared_dir: Path) -> None:
        self._path = shared_dir / _NAME
        self._boot = boot_id()

    def renew(self, *, sent_at_s: float, lease_s: float) -> None:
        """Write the new deadline. `sent_at_s` is `uptime_s()` from before the heartbeat."""
        line = f"{self._boot} {sent_at_s + lease_s:.3f}".ljust(_LINE_BYTES - 1) + "\n"
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self._path, flags, 0o644)
        try:
            os.pwrite(descriptor, (line * 2).encode("ascii"), 0)
        finally:
            os.close(descriptor)

    def remaining_s(self) -> float | None:
        """Return the seconds until tasks must end, negative if overdue. None if never granted."""
        for _ in range(_READS):
            first, second = self._lines()
            if first == second:
                break
        else:
            return None
        boot, _, deadline = first.partition(" ")
        try:
            return float(deadline) - uptime_s() if boot == self._boot else None
        except ValueError:
            return None

    def _lines(self) -> tuple[str, str]:
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return "", ""
        try:
            text = os.pread(descriptor, 2 * _LINE_BYTES, 0).decode("ascii", errors="replace")
        finally:
            os.close(descriptor)
        return text[:_LINE_BYTES], text[_LINE_BYTES:]
