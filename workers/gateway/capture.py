"""Writes every answered or failed prediction to a log before the response leaves.

`append` is one write() to the page cache, which survives the death of every process. A thread syncs
the log to disk every 50 ms, and strict endpoints wait for it. Predictions that cannot be written (a
full disk) are dropped and counted, and never hold up a response. A segment is sealed every second
and shipped to Parquet by a separate process (`workers.gateway.shipper`).
"""

import asyncio
import fcntl
import logging
import os
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from slipway.schemas.serving import CaptureCounters
from workers.gateway.capture_log.format import OPEN, SEALED, Entry, pack_block, pack_plain_block

log = logging.getLogger(__name__)
_SYNC_EVERY_S: Final = 0.05
_SEGMENT_BYTES: Final = 64 << 20
_PAUSE_AFTER_FAILURE_S: Final = 1.0
_CROCKFORD: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_LOWEST: Final = [b"%03X" % number for number in range(4096)]
_PAIRS: Final = [f"{first}{second}".encode() for first in _CROCKFORD for second in _CROCKFORD]


class PredictionIds:
    """Ids that sort by time: `prd_` and 26 characters, unique across processes."""

    def __init__(self) -> None:
        self._tail = "".join(secrets.choice(_CROCKFORD) for _ in range(7)).encode()
        self._count = 0
        self._at_ms = -1
        self._start = b""

    def next_ids(self, count: int, unix_ms: int) -> list[bytes]:
        """Return this number of ids for the present time."""
        if unix_ms != self._at_ms:
            stamp = b"".join([_PAIRS[(unix_ms >> shift) & 1023] for shift in (40, 30, 20, 10, 0)])
            self._at_ms, self._start = unix_ms, b"prd_" + stamp + self._tail
        first = self._count
        self._count += count
        high, low = divmod(first, 4096)
        if low + count <= 4096:
            start = self._start + b"%06X" % high
            return [start + lowest for lowest in _LOWEST[low : low + count]]
        return [self._start + b"%09X" % number for number in range(first, first + count)]


class CaptureLog:
    """The log of one gateway process, in a folder it may share with others."""

    def __init__(self, folder: Path, *, limit_bytes: int) -> None:
        """Create the folder and start the sync thread. An unwritable folder only causes drops."""
        self._folder = folder
        self._limit_bytes = limit_bytes
        self._boot = f"{time.time_ns():020d}-{os.getpid()}"
        self._number = 0
        self._fd = -1
        self._path = folder
        self._size = 0
        self._silent_until = 0.0
        self._lock = threading.Lock()
        self._retired: list[int] = []
        self._waiting: list[Callable[[], None]] = []
        self._wake = threading.Event()
        self._dirty = False
        self._stopped = False
        self._loop = asyncio.get_running_loop()
        self.counters = CaptureCounters()
        self.ids = PredictionIds()
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            self._fail(error, 0)
        self._thread = threading.Thread(target=self._sync_loop, name="capture", daemon=True)
        self._thread.start()

    def append(self, context: bytes, entries: list[Entry]) -> bool:
        """Write predictions of one revision. Return False if they were dropped."""
        if self._is_silent(len(entries)):
            return False
        return self._append(pack_block(context, entries), len(entries))

    def append_plainly(
        self,
        context: bytes,
        at_unix_ns: int,
        names: Sequence[bytes],
        keys: Sequence[bytes],
        latencies_us: Sequence[int],
        requested: Sequence[bytes],
        items: Sequence[bytes],
    ) -> bool:
        """Write successful predictions of one time and revision.

        Return False if they were dropped.
        """
        if self._is_silent(len(names)):
            return False
        block = pack_plain_block(context, at_unix_ns, names, keys, latencies_us, requested, items)
        return self._append(block, len(names))

    def _is_silent(self, count: int) -> bool:
        """Return whether writing is paused after a failure.

        If so, count `count` predictions as dropped.
        """
        if not self._silent_until or time.monotonic() >= self._silent_until:
            return False
        self.counters.dropped += count
        return True

    def _append(self, block: bytes, count: int) -> bool:
        try:
            if self._fd < 0:
                self._open()
            self._write(block)
        except OSError as error:
            self._fail(error, count)
            return False
        self._silent_until = 0.0
        self._size += len(block)
        self._dirty = True
        self.counters.written += count
        if self._size > _SEGMENT_BYTES:
            self.seal()
        return True

    def call_when_synced(self, then: Callable[[], None]) -> None:
        """Call `then` in the loop once everything that was appended is on the disk."""
        with self._lock:
            self._waiting.append(then)
        self._wake.set()

    def seal(self) -> None:
        """Seal the open segment, so that it is shipped. Called every second."""
        if self._fd < 0 or not self._size:
            return
        try:
            self._path.rename(self._path.with_suffix(SEALED))
        except OSError as error:
            log.warning("a segment of the capture log stays open: %s", error.strerror)
        with self._lock:
            self._retired.append(self._fd)
            self._fd, self._size = -1, 0
        self._wake.set()

    def measure(self) -> None:
        """Measure the bytes that wait to be shipped.

        Above the limit new predictions are dropped.
        """
        waiting = 0
        try:
            for entry in os.scandir(self._folder):
                if entry.name.endswith((OPEN, SEALED)):
                    waiting += entry.stat().st_size
        except OSError:
            return
        self.counters.waiting_bytes = waiting
        if waiting > self._limit_bytes:
            self._silent_until = time.monotonic() + 2 * _PAUSE_AFTER_FAILURE_S
            self.counters.reason = f"more than {self._limit_bytes} bytes wait to be shipped"
        elif not self._silent_until:
            self.counters.reason = ""

    def close(self) -> None:
        """Seal and sync the open segment."""
        self.seal()
        self._stopped = True
        self._wake.set()
        self._thread.join(5)

    def _open(self) -> None:
        self._number += 1
        path = self._folder / f"{self._boot}-{self._number:08d}{OPEN}"
        draft = path.with_suffix(".new")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        fd = os.open(draft, flags, 0o600)
        # The shipper ships an open segment only if this lock is free: its writer has died.
        # So it is locked before it becomes visible.
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        draft.rename(path)
        self._fd, self._path, self._size = fd, path, 0

    def _write(self, block: bytes) -> None:
        written = os.write(self._fd, block)
        if written == len(block):
            return
        rest = memoryview(block)[written:]
        while rest:
            rest = rest[os.write(self._fd, rest) :]

    def _fail(self, error: OSError, count: int) -> None:
        self.counters.dropped += count
        self.counters.reason = f"the capture log cannot be written: {error.strerror}"
        if not self._silent_until:
            log.error("predictions are not captured: %s", error.strerror)
        self._silent_until = time.monotonic() + _PAUSE_AFTER_FAILURE_S
        if self._fd >= 0:
            # Remove a partial block before the next one is written.
            try:
                os.ftruncate(self._fd, self._size)
            except OSError:
                self.seal()

    def _sync_loop(self) -> None:
        while not self._stopped:
            self._wake.wait(_SYNC_EVERY_S)
            self._wake.clear()
            self._sync()
        self._sync()

    def _sync(self) -> None:
        with self._lock:
            retired, self._retired = self._retired, []
            waiting, self._waiting = self._waiting, []
            # Only this thread closes segments, so it stays open although the loop may seal it.
            current = self._fd if self._dirty else -1
            self._dirty = False
        for fd in retired:
            _synced(fd)
            os.close(fd)
        if current >= 0:
            _synced(current)
        if waiting:
            self._loop.call_soon_threadsafe(_call_all, waiting)


def _synced(fd: int) -> None:
    try:
        os.fdatasync(fd)
    except OSError as error:
        log.warning("the capture log could not be synced: %s", error.strerror)


def _call_all(waiting: list[Callable[[], None]]) -> None:
    for then in waiting:
        then()
