"""Logs in memory: the fake of the port, for tests and for a single process."""

from collections.abc import Iterator
from threading import Lock


class MemoryLogs:
    """A `LogStore` that loses everything when the process ends."""

    def __init__(self) -> None:
        self._logs: dict[str, bytearray] = {}
        self._lock = Lock()

    def append(self, key: str, offset: int, data: bytes) -> int:
        """Append `data` at `offset` and return the size."""
        with self._lock:
            log = self._logs.setdefault(key, bytearray())
            if offset <= len(log):
                log += data[len(log) - offset :]
            return len(log)

    def size(self, key: str) -> int:
        """Return the size in bytes, 0 for a log that does not exist."""
        return len(self._logs.get(key, b""))

    def read(self, key: str, start: int, length: int) -> Iterator[bytes]:
        """Yield a range in one piece."""
        piece = bytes(self._logs.get(key, b"")[start : start + length])
        if piece:
            yield piece

    def delete(self, prefix: str) -> None:
        """Remove a log, or a folder of logs."""
        with self._lock:
            for key in list(self._logs):
                if key == prefix or key.startswith(f"{prefix}/"):
                    del self._logs[key]
