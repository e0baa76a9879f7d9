"""Port of this app: a store of append-only logs."""

from collections.abc import Iterator
from typing import Protocol


class LogStore(Protocol):
    """Logs that are appended to by offset, by a writer that may repeat itself, and read in ranges.

    A key is a relative path of letters, digits, `.`, `_`, `-` and `/`, created by the portal alone.
    """

    def append(self, key: str, offset: int, data: bytes) -> int:
        """Append `data`, whose first byte is byte number `offset`, and return the size of the log.

        Bytes already stored are skipped. Data that would leave a gap is not accepted. So the result
        is always the offset to continue sending from.
        """

    def size(self, key: str) -> int:
        """Return the size in bytes, 0 for a log that does not exist."""

    def read(self, key: str, start: int, length: int) -> Iterator[bytes]:
        """Yield at most `length` bytes from byte `start`, in chunks. Fewer where the log ends."""

    def delete(self, prefix: str) -> None:
        """Delete the log of that key, or every log below that folder. A missing log is no error."""
