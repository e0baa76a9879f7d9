"""Append-only event log of one task: one JSON object per line.

The number of a line is the sequence number of its report, so every reader, before or after a crash,
produces the same reports. Nothing is appended after `ended`.
"""

import errno
import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ENDED: Final = "ended"
# The ranks have failed, and the task stays for shells.
FAILED: Final = "failed"
LINE_LIMIT_BYTES: Final = 128 * 1024
_BALLAST_BYTES: Final = 256 * 1024
_LOCK_PATIENCE_S: Final = 1.0
_TAIL_BYTES: Final = LINE_LIMIT_BYTES + 1


@dataclass(frozen=True)
class JournalEntry:
    """One line: what it says, and the offset behind it."""

    event: dict[str, Any]
    end_offset: int


class Journal:
    """The journal file of one task. A lock serializes appends of several processes.

    A ballast file beside it is released when the disk is full, so that the end of a task that
    filled the disk can still be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ballast = path.with_name("ballast")

    def reserve(self) -> None:
        """Reserve disk space for the last lines. Raises OSError if there is none."""
        descriptor = os.open(self._ballast, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, _BALLAST_BYTES)
        finally:
            os.close(descriptor)

    def append(self, kind: str, **fields: Any) -> bool:
        """Append an event with the wall clock time. Return False if the task had already ended."""
        event = {"kind": kind, "at_unix_ms": time.time_ns() // 1_000_000, **fields}
        line = json.dumps(event, separators=(",", ":")).encode() + b"\n"
        with self._locked() as descriptor:
            if self._heal(descriptor) == ENDED:
                return False
            self._write(descriptor, line)
        return True

    def last(self) -> dict[str, Any] | None:
        """The newest whole event, if there is one."""
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return None
        with os.fdopen(descriptor, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 2 * _TAIL_BYTES))
            *lines, _torn = file.read().split(b"\n")
        return _event_of(lines[-1]) if lines else None

    def has_ended(self) -> bool:
        """Return whether the end of the task is recorded."""
        event = self.last()
        return event is not None and event.get("kind") == ENDED

    def read(self, offset: int, *, limit: int = 500) -> list[JournalEntry]:
        """Whole events from `offset` on, at most `limit` of them."""
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return []
        journal_entries: list[JournalEntry] = []
        with os.fdopen(descriptor, "rb") as file:
            file.seek(offset)
            while len(journal_entries) < limit:
                line = file.readline(LINE_LIMIT_BYTES)
                if not line.endswith(b"\n"):
                    break
                journal_entries.append(JournalEntry(_event_of(line) or {}, file.tell()))
        return journal_entries

    @contextmanager
    def _locked(self) -> Iterator[int]:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self.path, flags, 0o600)
        try:
            _lock_briefly(descriptor)
            yield descriptor
        finally:
            os.close(descriptor)

    def _heal(self, descriptor: int) -> str | None:
        """Truncate an incomplete last line and return the kind of the last complete event."""
        size = os.fstat(descriptor).st_size
        start = max(0, size - 2 * _TAIL_BYTES)
        tail = os.pread(descriptor, size - start, start)
        whole = tail.rfind(b"\n") + 1
        if whole < len(tail):
            os.ftruncate(descriptor, start + whole)
        lines = tail[:whole].split(b"\n")
        event = _event_of(lines[-2]) if len(lines) > 1 else None
        return None if event is None else event.get("kind")

    def _write(self, descriptor: int, line: bytes) -> None:
        start = os.fstat(descriptor).st_size
        try:
            _write_fully(descriptor, line)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            os.ftruncate(descriptor, start)
            with suppress(FileNotFoundError):
                self._ballast.unlink()
            _write_fully(descriptor, line)


def _lock_briefly(descriptor: int) -> None:
    """Take the lock, or continue without it after a timeout.

    No write takes that long, so a process that holds it longer is hostile.
    """
    deadline = time.monotonic() + _LOCK_PATIENCE_S
    while time.monotonic() < deadline:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.005)
        else:
            return


def _write_fully(descriptor: int, line: bytes) -> None:
    rest = memoryview(line)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _event_of(line: bytes) -> dict[str, Any] | None:
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) else None
