"""Members of an archive of any kind, one after another, each a stream."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from portal.storage.archives.limits import ArchiveLimits, too_large

PIECE_BYTES = 256 * 1024


@dataclass(frozen=True)
class Member:
    """A file or folder. `pieces` must be read to its end before the next member is asked for."""

    name: str
    is_folder: bool
    is_executable: bool
    pieces: Iterator[bytes]


class Gauge:
    """Counts the bytes that really come out of an archive, against the bytes that went in."""

    def __init__(self, limits: ArchiveLimits) -> None:
        self._limits = limits
        self.bytes_in = 0
        self.bytes_out = 0

    def count(self, size_bytes: int) -> None:
        """Count bytes that came out. Raise TooLarge beyond the total or the ratio."""
        self.bytes_out += size_bytes
        if self.bytes_out > self._limits.total_bytes:
            raise too_large(f"unpacks to more than {self._limits.total_bytes} bytes")
        if (
            self.bytes_out > self._limits.ratio_from_bytes
            and self.bytes_out > self.bytes_in * self._limits.ratio
        ):
            raise too_large(f"unpacks to more than {self._limits.ratio} times its own size")


class CountedSource:
    """A file that reports to a gauge how much of it was read."""

    def __init__(self, source: BinaryIO, gauge: Gauge) -> None:
        self._source = source
        self._gauge = gauge

    def read(self, size: int = -1) -> bytes:
        """Read and count. A negative size reads one piece, never the whole file."""
        data = self._source.read(size if 0 <= size <= PIECE_BYTES else PIECE_BYTES)
        self._gauge.bytes_in += len(data)
        return data
