"""Reading a table of a version in a process of its own, which may die of what it reads."""

import json
import os
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from threading import BoundedSemaphore
from typing import IO, Any

import structlog

import portal
from portal.core.confined_process import confined_command
from portal.datasets.bytes import content_of, entries_of
from portal.datasets.models import Version
from portal.datasets.tables import Group
from slipway.schemas.tables import ReadSettings, distinct_partitions

log = structlog.get_logger(__name__)
# The reader stops itself at its time limit. After this additional time it counts as hung.
_PATIENCE_S = 20.0
# Share of the time for the first pass. Its types may widen, which requires a second pass.
_FIRST_PASS = 0.6
_MOST_RESULT_BYTES = 64 * 1024**2
_LOOK_AGAIN_S = 1.0
# Limits of previews, for which a user waits: time, time in the queue, memory, and concurrency per
# portal process.
_PEEK_S = 20.0
_PEEK_QUEUE_S = 5.0
_PEEK_MEMORY_BYTES = 2 * 1024**3
_peeking = BoundedSemaphore(2)


class TableUnreadable(Exception):
    """The reader process died while it read a table. The message says how, for people."""


def read_table(
    version: Version, group: Group, *, budget_s: float, go_on: Callable[[], None]
) -> dict[str, Any]:
    """Return what `table_inspection` reports of a table.

    The types of a table may widen while it is read. Then it is read again with the final ones.
    `go_on` is called at least once a second. What it raises ends the reading. Raises
    TableUnreadable when the process died, hung or said nonsense.
    """
    began = time.monotonic()
    result: dict[str, Any] = {"is_stale": True, "schema": None}
    for share in (_FIRST_PASS, 1.0):
        left_s = max(1.0, share * (budget_s - (time.monotonic() - began)))
        reader = Reader(budget_s=left_s, until=time.monotonic() + left_s + _PATIENCE_S)
        settings = ReadSettings.model_validate(version.settings)
        head = _head(settings, result["schema"], distinct_partitions(group.paths))
        result = _examined(reader, chain([head], _frames(version, group)), go_on)
        if not result["is_stale"]:
            break
    return result


def _head(
    settings: ReadSettings, schema: Any, partitions: dict[str, list[str | None]] | None = None
) -> bytes:
    head = {
        "settings": settings.model_dump(mode="json"),
        "schema": schema,
        "partitions": partitions or {},
    }
    return json.dumps(head).encode() + b"\n"


def preview_parquet(pieces: Iterator[bytes], *, name: str, size_bytes: int) -> dict[str, Any]:
    """Return what `table_inspection` reports of the first rows of a file, for a waiting request.

    Raises TableUnreadable, also if it takes too long, or if other files are inspected already.
    """
    if not _peeking.acquire(timeout=_PEEK_QUEUE_S):
        raise TableUnreadable("Too many files are being opened; reload the page in a moment.")
    try:
        reader = Reader(
            budget_s=0.0, until=time.monotonic() + _PEEK_S, memory_bytes=_PEEK_MEMORY_BYTES
        )
        head = {"path": name, "format": "parquet", "size": size_bytes}
        frame = json.dumps(head).encode() + b"\n"
        frames = chain([_head(ReadSettings(), None), frame], pieces)
        return _examined(reader, frames, lambda: None)
    finally:
        _peeking.release()


@dataclass(frozen=True)
class Reader:
    """Limits of the reader process. After `budget_s` it settles for what it has read."""

    budget_s: float
    until: float
    memory_bytes: int = 4 * 1024**3


def _examined(reader: Reader, frames: Iterator[bytes], go_on: Callable[[], None]) -> dict[str, Any]:
    arguments = (str(reader.budget_s), str(reader.memory_bytes))
    until = reader.until
    with tempfile.TemporaryFile() as file, tempfile.TemporaryDirectory() as nowhere:
        process = subprocess.Popen(
            confined_command("portal.datasets.table_inspection", *arguments, writable=[nowhere]),
            stdin=subprocess.PIPE,
            stdout=file,
            stderr=subprocess.DEVNULL,
            cwd=nowhere,
            # Not our environment, which contains the secrets of the installation.
            env={
                "PYTHONPATH": str(Path(portal.__path__[0]).parent),
                "TMPDIR": nowhere,
                "LANG": "C.UTF-8",
            },
        )
        try:
            assert process.stdin is not None  # noqa: S101 - a pipe, see above
            _feed(process.stdin, frames, until, go_on)
            status = _wait(process, until, go_on)
        finally:
            process.kill()
            process.wait()
        if status:
            raise TableUnreadable(_exit_reason(status))
        if not 0 < file.tell() <= _MOST_RESULT_BYTES:
            raise TableUnreadable("Its report is too large to store.")
        file.seek(0)
        document: dict[str, Any] = json.loads(file.read())
        return document


def _exit_reason(status: int) -> str:
    if status == -signal.SIGXCPU:
        return "Reading it takes too long."
    name = signal.Signals(-status).name if status < 0 else f"status {status}"
    return f"The process that read it died ({name}): the file is damaged, or needs too much memory."


def _frames(version: Version, group: Group) -> Iterator[bytes]:
    for path in group.paths:
        file = entries_of(version, path)
        head = {"path": path, "format": group.format, "size": file[0].size_bytes}
        yield json.dumps(head).encode() + b"\n"
        yield from content_of(file)


def _feed(
    sink: IO[bytes], chunks: Iterator[bytes], until: float, go_on: Callable[[], None]
) -> None:
    """Send the files of a table. A reader that has enough, or has died, closes the pipe."""
    descriptor = sink.fileno()
    os.set_blocking(descriptor, False)
    with sink, selectors.DefaultSelector() as ready:
        ready.register(descriptor, selectors.EVENT_WRITE)
        try:
            for chunk in chunks:
                rest = memoryview(chunk)
                while rest:
                    go_on()
                    _in_time(until)
                    if ready.select(_LOOK_AGAIN_S):
                        rest = rest[os.write(descriptor, rest) :]
        except BrokenPipeError:
            log.info("table_partially_read")


def _wait(process: subprocess.Popen[bytes], until: float, go_on: Callable[[], None]) -> int:
    while True:
        go_on()
        _in_time(until)
        try:
            return process.wait(timeout=_LOOK_AGAIN_S)
        except subprocess.TimeoutExpired:
            continue


def _in_time(until: float) -> None:
    if time.monotonic() > until:
        raise TableUnreadable("Reading it takes too long.")
