"""Reproducible packing of a folder: the same content always gives the same bytes."""

import os
import stat
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from portal.core.errors import Conflict
from portal.storage.archives.limits import ArchiveLimits, unsafe
from portal.storage.archives.members import PIECE_BYTES
from portal.storage.archives.names import Parts, PathIndex, parts_of
from portal.storage.archives.tar import BLOCK

_RECORD_BYTES = 20 * BLOCK
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_GZIP = 31


def pack(
    folder: Path, *, compressed: bool = True, limits: ArchiveLimits | None = None
) -> Iterator[bytes]:
    """Yield a tar archive of a folder, in constant memory, with gzip if `compressed`.

    Members are sorted by name. Times, owners and all modes but "executable" are left out. (The
    compressed bytes are the same for the same version of zlib.) Raises UnsafeArchive for a link or
    special file or a name that could not be unpacked, Conflict for a file that changes meanwhile.
    """
    plain = _tar(folder, limits or ArchiveLimits())
    if not compressed:
        yield from plain
        return
    squeeze = zlib.compressobj(wbits=_GZIP)
    for piece in plain:
        if squeezed := squeeze.compress(piece):
            yield squeezed
    yield squeeze.flush()


def _tar(folder: Path, limits: ArchiveLimits) -> Iterator[bytes]:
    size_bytes = 0
    descriptor = os.open(folder, _FOLDER_FLAGS)
    try:
        for piece in _walk(descriptor, (), PathIndex(limits), limits):
            size_bytes += len(piece)
            yield piece
    finally:
        os.close(descriptor)
    end = 2 * BLOCK
    yield bytes(end + -(size_bytes + end) % _RECORD_BYTES)


def _walk(folder: int, above: Parts, places: PathIndex, limits: ArchiveLimits) -> Iterator[bytes]:
    """Yield the headers and contents of everything below an open folder."""
    for name in sorted(os.listdir(folder), key=os.fsencode):
        parts = (*above, name)
        path = "/".join(parts)
        kind = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
        if stat.S_ISLNK(kind):
            raise unsafe(path, "is a symbolic link")
        if not stat.S_ISDIR(kind) and not stat.S_ISREG(kind):
            raise unsafe(path, "is neither a file nor a folder")
        parts_of(path, limits)
        places.reserve(path, parts, is_folder=stat.S_ISDIR(kind))
        if stat.S_ISDIR(kind):
            descriptor = os.open(name, _FOLDER_FLAGS, dir_fd=folder)
            try:
                yield _header(f"{path}/", tarfile.DIRTYPE, 0o755, 0)
                yield from _walk(descriptor, parts, places, limits)
            finally:
                os.close(descriptor)
        else:
            yield from _file(folder, name, path)


def _file(folder: int, name: str, path: str) -> Iterator[bytes]:
    with os.fdopen(os.open(name, _FILE_FLAGS, dir_fd=folder), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise unsafe(path, "is neither a file nor a folder")
        mode = 0o755 if status.st_mode & 0o100 else 0o644
        yield _header(path, tarfile.REGTYPE, mode, status.st_size)
        left = status.st_size
        while left:
            piece = file.read(min(left, PIECE_BYTES))
            if not piece:
                raise _changed(path)
            left -= len(piece)
            yield piece
        if file.read(1):
            raise _changed(path)
        yield bytes(-status.st_size % BLOCK)


def _header(path: str, kind: bytes, mode: int, size_bytes: int) -> bytes:
    info = tarfile.TarInfo(path)
    info.type, info.mode, info.size, info.mtime = kind, mode, size_bytes, 0
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "strict")


def _changed(path: str) -> Conflict:
    return Conflict(
        f"The file {path} changed while it was packed.",
        code="file_changed",
        next_step="Pack the folder again while nothing writes to it.",
    )
