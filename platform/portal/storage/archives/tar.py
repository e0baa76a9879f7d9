"""Reader of untrusted tar archives, strict and in constant memory.

The standard library's reader allocates memory for any size an extension header claims, follows
sparse maps, and has had endless loops on negative sizes (CVE-2025-8194) and slow patterns on
crafted headers (CVE-2024-6232), fixed in later patch releases than many systems have. Here is the
part of the format that honest archives of files and folders use: POSIX ustar, pax extension
headers for long paths and large sizes, and GNU's long names. All else is refused by name.
"""

import gzip
import zlib
from collections.abc import Iterator
from typing import BinaryIO, Protocol, cast

from portal.storage.archives.limits import ArchiveLimits, broken, too_large, unsafe
from portal.storage.archives.members import PIECE_BYTES, CountedSource, Gauge, Member

BLOCK = 512
_EMPTY = bytes(BLOCK)
_MOST_EXTENSION_BYTES = 64 * 1024
_MOST_EXTENSIONS = 4
_MOST_PADDING_BYTES = 1024 * 1024
_REGULAR, _FOLDER, _PAX, _PAX_GLOBAL, _GNU_NAME = b"0", b"5", b"x", b"g", b"L"
_REFUSED = {
    b"1": "is a hard link",
    b"2": "is a symbolic link",
    b"3": "is a device",
    b"4": "is a device",
    b"6": "is a named pipe",
    b"K": "is a link",
    b"S": "is a sparse file",
}
_UTF8_CHARSET = "ISO-IR 10646 2000 UTF-8"


class _Readable(Protocol):
    def read(self, size: int = -1, /) -> bytes: ...


class _Stream:
    """The archive's bytes after decompression."""

    def __init__(self, source: _Readable, gauge: Gauge) -> None:
        self._source = source
        self._gauge = gauge

    def read_up_to(self, size: int) -> bytes:
        """Return `size` bytes (at most PIECE_BYTES), fewer only at the end of the archive."""
        chunk = bytearray()
        while len(chunk) < size:
            try:
                data = self._source.read(size - len(chunk))
            except (EOFError, gzip.BadGzipFile, zlib.error) as error:
                raise broken(f"its compression is damaged ({error})") from error
            if not data:
                break
            chunk += data
        self._gauge.count(len(chunk))
        return bytes(chunk)

    def exactly(self, size: int) -> bytes:
        """Return `size` bytes. Raise BrokenArchive when the archive ends before."""
        exactly = self.read_up_to(size)
        if len(exactly) < size:
            raise broken("it is truncated")
        return exactly

    def pieces(self, size: int) -> Iterator[bytes]:
        """Yield `size` bytes and skip the padding behind them."""
        left = size
        while left:
            piece = self.exactly(min(left, PIECE_BYTES))
            left -= len(piece)
            yield piece
        self.exactly(-size % BLOCK)


class _Extensions:
    """Extension headers of the member that follows them."""

    def __init__(self) -> None:
        self.name: str | None = None
        self.size: int | None = None

    def read_pax(self, body: bytes, *, is_global: bool) -> None:
        """Read `length key=value` records. Raise UnsafeArchive or BrokenArchive."""
        while body:
            digits, space, _ = body.partition(b" ")
            if not space or not digits.isdigit() or len(digits) > 5:
                raise broken("an extension header is damaged")
            length = int(digits)
            record, body = body[len(digits) + 1 : length], body[length:]
            key, equals, value = record[:-1].partition(b"=")
            if length != len(digits) + 1 + len(record) or not equals or record[-1:] != b"\n":
                raise broken("an extension header is damaged")
            self._apply(_text(key), _text(value), is_global=is_global)

    def _apply(self, key: str, value: str, *, is_global: bool) -> None:
        if key.startswith("GNU.sparse."):
            raise unsafe(self.name or value, "is a sparse file")
        if key == "hdrcharset" and value != _UTF8_CHARSET:
            raise broken("its names are not UTF-8")
        if key not in ("path", "size"):
            return  # times, owners and attributes are dropped
        if is_global:
            raise unsafe(value, "takes its name or size from a global header")
        if key == "path":
            self.name = value
        elif value.isascii() and value.isdigit() and len(value) <= 15:
            self.size = int(value)
        else:
            raise broken("an extension header is damaged")


def _text(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise broken("a name in it is not UTF-8") from error


def _number(field: bytes) -> int:
    """Return a number of a header: octal digits, or GNU's binary form for large ones."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    digits = field.strip(b" \0")
    if not digits:
        return 0
    if not all(byte in b"01234567" for byte in digits):
        raise broken("a number in a header is damaged")
    return int(digits, 8)


class _Header:
    def __init__(self, block: bytes) -> None:
        summed = sum(block) - sum(block[148:156]) + 8 * ord(" ")
        if _number(block[148:156]) != summed:
            raise broken("a header does not match its checksum, or this is not a tar archive")
        self.kind = block[156:157]
        self.mode = _number(block[100:108])
        self.size = _number(block[124:136])
        name = block[:100].split(b"\0")[0]
        prefix = block[345:500].split(b"\0")[0] if block[257:263] == b"ustar\0" else b""
        self._raw_name = prefix + b"/" + name if prefix else name
        if self.kind == b"\0":  # as written before POSIX
            self.kind = _FOLDER if self._raw_name.endswith(b"/") else _REGULAR

    @property
    def name(self) -> str:
        """The name, if no extension header gave one: then it is cut, maybe inside a character."""
        return _text(self._raw_name)


def read_tar(source: BinaryIO, limits: ArchiveLimits, *, is_gzip: bool) -> Iterator[Member]:
    """Yield the members of a tar archive, compressed or not.

    Raises UnsafeArchive, BrokenArchive or TooLarge.
    """
    gauge = Gauge(limits)
    counted = CountedSource(source, gauge)
    # GzipFile only uses `read` of its source.
    plain = gzip.GzipFile(fileobj=cast("BinaryIO", counted)) if is_gzip else counted
    stream = _Stream(plain, gauge)
    extensions, extension_count = _Extensions(), 0
    while True:
        block = stream.exactly(BLOCK)
        if block == _EMPTY:
            _read_end(stream)
            return
        header = _Header(block)
        if header.kind in (_PAX, _PAX_GLOBAL, _GNU_NAME):
            extension_count += 1
            if extension_count > _MOST_EXTENSIONS or header.size > _MOST_EXTENSION_BYTES:
                raise too_large("has extension headers of unusual size")
            body = b"".join(stream.pieces(header.size))
            if header.kind == _GNU_NAME:
                extensions.name = _text(body.split(b"\0")[0])
            else:
                extensions.read_pax(body, is_global=header.kind == _PAX_GLOBAL)
            continue
        yield _member(stream, header, extensions, limits)
        extensions, extension_count = _Extensions(), 0


def _member(
    stream: _Stream, header: _Header, extensions: _Extensions, limits: ArchiveLimits
) -> Member:
    name = header.name if extensions.name is None else extensions.name
    size = header.size if extensions.size is None else extensions.size
    if header.kind not in (_REGULAR, _FOLDER):
        raise unsafe(name, _REFUSED.get(header.kind, "is neither a file nor a folder"))
    is_folder = header.kind == _FOLDER
    if is_folder and size:
        raise unsafe(name, "is a folder with content")
    if not is_folder and name.endswith("/"):
        raise unsafe(name, "is a file with the name of a folder")
    if size > limits.member_bytes:
        raise too_large(f"contains a file of more than {limits.member_bytes} bytes")
    return Member(name, is_folder, bool(header.mode & 0o100), stream.pieces(size))


def _read_end(stream: _Stream) -> None:
    """Read the padding after the last member: nothing but zeros, and not many."""
    if stream.exactly(BLOCK) != _EMPTY:
        raise broken("a header is empty")
    left = _MOST_PADDING_BYTES
    while padding := stream.read_up_to(min(left, PIECE_BYTES)):
        if padding.strip(b"\0"):
            raise broken("there is data after its end")
        left -= len(padding)
        if not left and stream.read_up_to(1):
            raise broken("its end is followed by too many zeros")
