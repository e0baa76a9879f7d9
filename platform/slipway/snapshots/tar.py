"""A tar archive of files whose bytes depend on nothing but their names, contents and exec bits."""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from slipway.errors import Conflict, InvalidInput
from slipway.sanitize import visible

PIECE_BYTES = 256 * 1024
_BLOCK = 512
_RECORD_BYTES = 20 * _BLOCK
_PLAIN_NAME_BYTES = 100
_FLAGS = (
    os.O_RDONLY
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_BINARY", 0)
)


@dataclass(frozen=True)
class Member:
    """A file of the archive: its path there, and where its bytes are: a file, or right here."""

    path: str
    source: Path | bytes


def pack(members: list[Member]) -> Iterator[bytes]:
    """Yield the archive in pieces, members sorted by path, in constant memory.

    Raises Conflict for a file that goes away or shrinks meanwhile, InvalidInput for one that cannot
    be read. A file that grows is taken as long as it was when it was opened.
    """
    size_bytes = 0
    for member in sorted(members, key=lambda member: member.path.encode()):
        pieces = (
            _inline_member(member.path, member.source)
            if isinstance(member.source, bytes)
            else _file(member.path, member.source)
        )
        for piece in pieces:
            size_bytes += len(piece)
            yield piece
    end = 2 * _BLOCK
    yield bytes(end + -(size_bytes + end) % _RECORD_BYTES)


def _inline_member(path: str, content: bytes) -> Iterator[bytes]:
    yield header(path, size_bytes=len(content)) + content + bytes(-len(content) % _BLOCK)


def _file(path: str, source: Path) -> Iterator[bytes]:
    try:
        descriptor = os.open(source, _FLAGS)
    except FileNotFoundError:
        raise _changed(path) from None
    except OSError as error:
        raise _unreadable(path, error) from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise _changed(path)
        left = status.st_size
        padding = bytes(-left % _BLOCK)
        before = header(path, size_bytes=left, is_executable=bool(status.st_mode & 0o100))
        while left:
            piece = os.read(descriptor, min(left, PIECE_BYTES))
            if not piece:
                raise _changed(path)
            left -= len(piece)
            # Joined, so that a small file is one piece rather than three.
            yield before + piece + (b"" if left else padding)
            before = b""
        if before:
            yield before
    except OSError as error:
        raise _unreadable(path, error) from None
    finally:
        os.close(descriptor)


def header(path: str, *, size_bytes: int, is_executable: bool = False) -> bytes:
    """Return the header blocks of a file: POSIX ustar, with a pax record for a name too long."""
    name = path.encode()
    extension = b""
    if len(name) > _PLAIN_NAME_BYTES or not name.isascii():
        record = _pax_record(b"path", name)
        extension = _block(b"././@PaxHeader", len(record), 0o644, b"x")
        extension += record + bytes(-len(record) % _BLOCK)
        name = name[:_PLAIN_NAME_BYTES]
    return extension + _block(name, size_bytes, 0o755 if is_executable else 0o644, b"0")


def _pax_record(key: bytes, value: bytes) -> bytes:
    """Return `length key=value\\n`, where the length counts its own digits."""
    rest = len(key) + len(value) + 3
    length = rest
    while length != rest + len(str(length)):
        length = rest + len(str(length))
    return b"%d %s=%s\n" % (length, key, value)


def _block(name: bytes, size_bytes: int, mode: int, kind: bytes) -> bytes:
    """Return one header block, without time and owner."""
    block = bytearray(_BLOCK)
    block[: len(name)] = name
    block[100:136] = b"%07o\0%07o\0%07o\0%011o\0" % (mode, 0, 0, size_bytes)
    block[136:148] = b"%011o\0" % 0
    block[148:156] = b" " * 8
    block[156:157] = kind
    block[257:265] = b"ustar\x0000"
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def _changed(path: str) -> Conflict:
    return Conflict(
        f"The file {visible(path)} changed while the snapshot was taken.",
        code="file_changed",
        next_step="Take it again when nothing writes to the file, or name it in .slipwayignore.",
    )


def _unreadable(path: str, error: OSError) -> InvalidInput:
    return InvalidInput(
        f"The file {visible(path)} cannot be read: {error.strerror}.",
        code="unreadable_file",
        field="folder",
        next_step="Give yourself the right to read it, or name it in .slipwayignore.",
    )
