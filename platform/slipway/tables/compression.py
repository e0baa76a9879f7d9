"""Compressed files as streams, with a bound on what they unpack to."""

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Callable
from typing import IO, Any

import pyarrow as pa

from slipway.schemas.tables import compression_of
from slipway.schemas.truncation import shorten
from slipway.tables.errors import Unreadable

# Compressed text tables have about 10 % of their size, hardly ever 1 %. A file with a higher ratio
# is a decompression bomb, or so repetitive that Parquet is the better format.
MAX_RATIO = 200
ALWAYS_ALLOWED_BYTES = 64 * 1024**2
_XZ_MEMORY_BYTES = 256 * 1024**2
_CHUNK_BYTES = 1024**2
_ERRORS = (OSError, EOFError, zlib.error, lzma.LZMAError, pa.ArrowException, ValueError)


def _zstd(source: IO[bytes]) -> IO[bytes]:
    stream: IO[bytes] = pa.CompressedInputStream(pa.PythonFile(source, mode="r"), "zstd")
    return stream


def _xz(source: IO[bytes]) -> IO[bytes]:
    return _Xz(source)  # type: ignore[return-value]


_OPENERS: dict[str, Callable[[IO[bytes]], Any]] = {
    "gzip": lambda source: gzip.GzipFile(fileobj=source, mode="rb"),
    "bzip2": bz2.BZ2File,
    "xz": _xz,
    "zstd": _zstd,
}


def open_compressed(source: IO[bytes], path: str) -> IO[bytes]:
    """Return a stream of the plain bytes of a file, by the end of its name."""
    name = compression_of(path)
    if name is None:
        return source
    return io.BufferedReader(_Unpacked(source, name), _CHUNK_BYTES)


class _Counted(io.RawIOBase):
    """A stream that counts what was read from it."""

    def __init__(self, source: IO[bytes]) -> None:
        self._source = source
        self.count = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = self._source.read(len(buffer))
        buffer[: len(piece)] = piece
        self.count += len(piece)
        return len(piece)


class _Unpacked(io.RawIOBase):
    """Decompressed bytes of a stream. Raises Unreadable beyond the size limit."""

    def __init__(self, source: IO[bytes], name: str) -> None:
        self._name = name
        self._packed = _Counted(source)
        self._buffered = io.BufferedReader(self._packed, _CHUNK_BYTES)
        self._count = 0
        self._stream: Any = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            if self._stream is None:
                self._stream = _OPENERS[self._name](self._buffered)
            piece = self._stream.read(len(buffer))
        except _ERRORS as error:
            raise Unreadable(
                f"This is not {self._name} that can be unpacked, or it was cut off: "
                f"{shorten(str(error), 200)}"
            ) from error
        buffer[: len(piece)] = piece
        self._count += len(piece)
        if self._count > max(ALWAYS_ALLOWED_BYTES, MAX_RATIO * self._packed.count):
            raise Unreadable(
                f"It unpacks to more than {MAX_RATIO} times its size "
                f"({self._packed.count:,} bytes so far), as decompression bombs do. Send it "
                "unpacked or as Parquet."
            )
        return len(piece)


class _Xz(io.RawIOBase):
    """The plain bytes of one or several xz streams, in bounded memory."""

    def __init__(self, source: IO[bytes]) -> None:
        self._source = source
        self._decoder = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY_BYTES)
        self._pending = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while True:
            if self._decoder.eof:
                self._pending = self._decoder.unused_data.lstrip(b"\0") or self._source.read(
                    _CHUNK_BYTES
                )
                if not self._pending:
                    return 0
                self._decoder = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY_BYTES)
            elif self._decoder.needs_input and not self._pending:
                self._pending = self._source.read(_CHUNK_BYTES)
                if not self._pending:
                    raise EOFError("the stream ends too early")
            piece = self._decoder.decompress(self._pending, len(buffer))
            self._pending = b""
            if piece:
                buffer[: len(piece)] = piece
                return len(piece)
