"""Orphans: processes whose parent has died, which the agent adopts."""

import os
from contextlib import suppress

from workers.launcher.processes import children, start_ticks


class OrphanReaper:
    """Reaps dead children that nothing here waits for: orphans of killed shims.

    Our own children are reaped immediately by their waiter, so one that remains until the next
    check is a stray.
    """

    def __init__(self) -> None:
        self._seen: set[int] = set()

    def collect(self) -> None:
        """Reap orphaned children. Call it about once a second."""
        dead = {child for child in children(os.getpid()) if start_ticks(child) is None}
        for child in dead & self._seen:
            with suppress(ChildProcessError):
                os.waitpid(child, os.WNOHANG)
        self._seen = dead
