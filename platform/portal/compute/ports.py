"""What this room needs of the outside: a place for logs that grow."""

from collections.abc import Iterator
from typing import Protocol


class LogStore(Protocol):
    """Logs that are appended to by offset, by a writer that may repeat itself, and read in ranges.

    A key is a relative path of letters, digits, `.`, `_`, `-` and `/`, made by us alone.
    """

    def append(self, key: str, offset: int, data: bytes) -> int:
        """Add `data`, whose first byte is byte number `offset`; return the size of the log.

        What is there already is skipped; data that would leave a gap is not taken. So the answer is
        always the offset to send on from.
        """

    def size(self, key: str) -> int:
        """Return the size in bytes, 0 for a log that does not exist."""

    def read(self, key: str, start: int, length: int) -> Iterator[bytes]:
        """Yield at most `length` bytes from byte `start`, in pieces; fewer where the log ends."""

    def delete(self, prefix: str) -> None:
        """Remove the log of that key, or every log below that folder; nothing there is success."""
