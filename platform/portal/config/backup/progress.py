"""Progress of long work, one line every few seconds."""

import time
from collections.abc import Callable

_EVERY_S = 5.0


class BackupProgress:
    """Counts members and bytes, and reports them periodically through `write`."""

    def __init__(self, write: Callable[[str], object], *, every_s: float = _EVERY_S) -> None:
        self._write = write
        self._every_s = every_s
        self._verb = ""
        self._total: int | None = None
        self._count = 0
        self._size_bytes = 0
        self._due = 0.0

    def begin(self, verb: str, total: int | None = None) -> None:
        """Begin a phase, such as "Checking", of `total` members if that is known."""
        self._verb, self._total = verb, total
        self._count = self._size_bytes = 0
        self._due = time.monotonic() + self._every_s

    def add(self, size_bytes: int) -> None:
        """Count a member."""
        self._count += 1
        self._size_bytes += size_bytes
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + self._every_s
            of = "" if self._total is None else f" of {self._total:,}"
            self._write(
                f"slipway: {self._verb}: {self._count:,}{of} files, "
                f"{self._size_bytes / 1e6:,.1f} MB"
            )


def silent() -> BackupProgress:
    """Return a progress that reports nothing."""
    return BackupProgress(lambda _: None)
