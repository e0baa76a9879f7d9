"""Output of one rank on disk: segments named by the offset they start at, with a bound.

Offsets count every byte ever written. When the bound is reached the oldest segments behind the head
are deleted, so the beginning and the end of the output stay readable. A reader that reaches the gap
gets the offset at which the output continues.
"""

import errno
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MIB: Final = 1024 * 1024
SEGMENT_BYTES: Final = 8 * MIB
HEAD_BYTES: Final = 32 * MIB
BOUND_BYTES: Final = 200 * MIB
_SEGMENT = re.compile(r"\A\d{20}\Z")
_FULL = (errno.ENOSPC, errno.EDQUOT)


class LogWriter:
    """Appends to the newest segment. Never fails, and never blocks for lack of space."""

    def __init__(self, folder: Path, *, bound_bytes: int = BOUND_BYTES) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = folder
        self._segment_bytes = min(SEGMENT_BYTES, max(bound_bytes // 8, 1))
        self._head_bytes = min(HEAD_BYTES, bound_bytes // 4)
        self._bound_bytes = bound_bytes
        self._descriptor: int | None = None
        self._space_left = 0
        self.offset = 0
        self.lost_bytes = 0

    def append(self, data: bytes) -> None:
        """Write `data`. Bytes that do not fit on the disk are counted and announced later."""
        if self.lost_bytes:
            note = f"\n[slipway] {self.lost_bytes} bytes of output were lost: the disk was full\n"
            if self._write(note.encode()) != len(note):
                self.lost_bytes += len(data)
                return
            self.lost_bytes = 0
        self.lost_bytes = len(data) - self._write(data)

    def close(self) -> None:
        """Close the newest segment."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _write(self, data: bytes) -> int:
        written = 0
        rest = memoryview(data)
        try:
            while rest:
                if self._descriptor is None or self._space_left <= 0:
                    self._roll()
                assert self._descriptor is not None  # noqa: S101 - _roll opened one or raised
                count = os.write(self._descriptor, rest[: self._space_left])
                self._space_left -= count
                self.offset += count
                written += count
                rest = rest[count:]
        except OSError as error:
            if error.errno not in _FULL:
                raise
        return written

    def _roll(self) -> None:
        self.close()
        path = self._folder / f"{self.offset:020d}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        self._descriptor = os.open(path, flags, 0o600)
        self._space_left = self._segment_bytes
        kept = self.offset
        starts = segment_starts(self._folder)
        held = sum(self._segment_bytes for _ in starts)
        for start in starts:
            if held <= self._bound_bytes or start >= kept:
                break
            if start >= self._head_bytes:
                with suppress(FileNotFoundError):
                    (self._folder / f"{start:020d}").unlink()
                held -= self._segment_bytes


@dataclass(frozen=True)
class Chunk:
    """Bytes of the output. `offset` is their start, which is beyond the requested one at a gap."""

    offset: int
    data: bytes


def segment_starts(folder: Path | int) -> list[int]:
    """Return the start offsets of the segments of a folder in order, or [] if there are none."""
    try:
        names = os.listdir(folder)  # noqa: PTH208 - accepts descriptors
    except OSError:
        return []
    return sorted(int(name) for name in names if _SEGMENT.match(name))


def read_chunk(folder: Path, offset: int, limit: int) -> Chunk:
    """Read up to `limit` bytes from `offset`, none at the end. Follows no links."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        parent = os.open(folder.parent, flags)
    except OSError:
        return Chunk(offset, b"")
    try:
        descriptor = os.open(folder.name, flags, dir_fd=parent)
    except OSError:
        return Chunk(offset, b"")
    finally:
        os.close(parent)
    try:
        return _read_chunk(descriptor, offset, limit)
    finally:
        os.close(descriptor)


def _read_chunk(folder: int, offset: int, limit: int) -> Chunk:
    starts = segment_starts(folder)
    for index, start in enumerate(starts):
        following = starts[index + 1] if index + 1 < len(starts) else None
        if following is not None and following <= offset:
            continue
        begin = max(offset, start)
        try:
            data = _read_segment(folder, start, begin - start, limit)
        except FileNotFoundError:
            continue  # deleted since it was listed: the output continues in the next one
        if data:
            return Chunk(begin, data)
    return Chunk(offset, b"")


def _read_segment(folder: int, start: int, skip: int, limit: int) -> bytes:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(f"{start:020d}", flags, dir_fd=folder)
    try:
        return os.pread(descriptor, limit, skip)
    finally:
        os.close(descriptor)
