"""Reader of untrusted zip archives, on top of the standard library's reader.

A zip archive states everything twice, in a directory at its end and before each member, and
either may lie. Sizes are counted as the bytes come, and the directory is bounded before it is read.
"""

import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import BinaryIO, cast

from portal.storage.archives.limits import ArchiveLimits, broken, too_large, unsafe
from portal.storage.archives.members import PIECE_BYTES, Gauge, Member

# Allowed size of a directory entry: a fixed part of 46 bytes, the name and extra fields.
_DIRECTORY_BYTES_A_MEMBER = 512
_LEAST_DIRECTORY_BYTES = 1024 * 1024
_LOCAL_HEADER_BYTES = 30
_ENCRYPTED = 0x1
_KINDS = {stat.S_IFLNK: "is a symbolic link", stat.S_IFIFO: "is a named pipe"} | dict.fromkeys(
    (stat.S_IFCHR, stat.S_IFBLK), "is a device"
)
_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    NotImplementedError,
    OverflowError,
    RuntimeError,
    UnicodeDecodeError,
    ValueError,
)


class _Bounded:
    """A seekable file that returns no more at once than a directory of allowed size needs."""

    def __init__(self, source: BinaryIO, most_bytes: int) -> None:
        self._source = source
        self._most_bytes = most_bytes
        self._end = source.seek(0, os.SEEK_END)
        self.seekable = source.seekable
        self.seek = source.seek
        self.tell = source.tell

    def read(self, size: int = -1) -> bytes:
        """Read. Raise TooLarge for more at once than allowed."""
        left = max(self._end - self._source.tell(), 0)
        requested = left if size < 0 else min(size, left)
        if requested > self._most_bytes:
            raise too_large("has a directory of unusual size")
        return self._source.read(requested)


def read_zip(source: BinaryIO, limits: ArchiveLimits) -> Iterator[Member]:
    """Yield the members of a zip archive. Raise UnsafeArchive, BrokenArchive or TooLarge."""
    gauge = Gauge(limits)
    gauge.bytes_in = source.seek(0, os.SEEK_END)
    most_bytes = max(_LEAST_DIRECTORY_BYTES, limits.members * _DIRECTORY_BYTES_A_MEMBER)
    try:
        archive = zipfile.ZipFile(cast("BinaryIO", _Bounded(source, most_bytes)))
    except _DAMAGE as error:
        raise broken(str(error) or "it is damaged") from error
    with archive:
        members = archive.infolist()
        if len(members) > limits.members:
            raise too_large(f"contains more than {limits.members} files and folders")
        _refuse_overlaps(members)
        for info in members:
            yield _member(archive, info, gauge, limits)


def _refuse_overlaps(items: list[zipfile.ZipInfo]) -> None:
    """Refuse members that share bytes: a zip bomb that the ratio of no single member shows."""
    end = 0
    for info in sorted(items, key=lambda item: item.header_offset):
        if info.header_offset < end:
            raise unsafe(info.orig_filename, "shares its bytes with another member")
        end = info.header_offset + _LOCAL_HEADER_BYTES + info.compress_size


def _member(
    archive: zipfile.ZipFile, info: zipfile.ZipInfo, gauge: Gauge, limits: ArchiveLimits
) -> Member:
    # The library truncates the name at a NUL, so check the original.
    name = info.orig_filename
    mode = info.external_attr >> 16
    kind = stat.S_IFMT(mode)
    is_folder = name.endswith("/")
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise unsafe(name, _KINDS.get(kind, "is neither a file nor a folder"))
    if (kind == stat.S_IFDIR and not is_folder) or (kind == stat.S_IFREG and is_folder):
        raise unsafe(name, "is a folder by name or by mode, but not by both")
    if is_folder and info.file_size:
        raise unsafe(name, "is a folder with content")
    if info.flag_bits & _ENCRYPTED:
        raise unsafe(name, "is encrypted")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise unsafe(name, "uses an unsupported compression (only deflate is supported)")
    if info.file_size > limits.member_bytes:
        raise too_large(f"contains a file of more than {limits.member_bytes} bytes")
    pieces = iter(()) if is_folder else _pieces(archive, info, gauge)
    return Member(name, is_folder, bool(mode & 0o100), pieces)


def _pieces(archive: zipfile.ZipFile, info: zipfile.ZipInfo, gauge: Gauge) -> Iterator[bytes]:
    size_bytes = 0
    try:
        with archive.open(info) as file:
            while piece := file.read(PIECE_BYTES):
                size_bytes += len(piece)
                gauge.count(len(piece))
                yield piece
    except _DAMAGE as error:
        raise broken(str(error) or "a member is damaged") from error
    if size_bytes != info.file_size:
        raise broken("a member is shorter than its header says")
