"""Text files and archives of packages in a snapshot, read without unpacking it."""

import hashlib
import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from portal.core.errors import InvalidInput
from portal.storage.archives.tar import read_tar
from portal.storage.backend import blob_store
from portal.storage.models import Blob, StoredFile
from portal.training.file_index import LIMITS, ArchiveSource, contains_name
from portal.training.models import Snapshot
from slipway.requirement_files.dockerfile import is_dockerfile
from slipway.requirement_files.local_archives import ARCHIVES
from slipway.requirement_files.names import PYTHON_VERSION

MAX_TEXT_BYTES = 8 * 1024**2
_MAX_CACHED_BYTES = 32 * 1024**2
_BUFFER_BYTES = 256 * 1024
_SUFFIXES = (".txt", ".in", ".toml", ".lock", ".pip", ".yml", ".yaml", PYTHON_VERSION)
# Files that a Dockerfile copies and runs, as a rule.
_COPIED = (".json", ".cfg", ".conf", ".sh")


@dataclass(frozen=True)
class PackedFile:
    """A file of a snapshot where it is: `size_bytes` bytes of the snapshot's tar from `start`."""

    file: StoredFile
    start: int
    size_bytes: int

    def open(self) -> io.BufferedReader:
        """Return it as a file that can be read from any position, in pieces of 256 KiB."""
        raw = _BlobRange(self.file.blob, self.start, self.size_bytes)
        return io.BufferedReader(raw, _BUFFER_BYTES)

    def sha256(self) -> str:
        """Return the digest of its bytes. Reads all of them."""
        digest = hashlib.sha256()
        blob = self.file.blob
        for piece in blob_store().read(blob.key, start=self.start, length=self.size_bytes):
            digest.update(piece)
        return digest.hexdigest()


class _BlobRange(io.RawIOBase):
    def __init__(self, blob: Blob, start: int, size_bytes: int) -> None:
        super().__init__()
        self._blob, self._start, self._size_bytes = blob, start, size_bytes
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        bases = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size_bytes}
        self._position = max(0, bases[whence] + offset)
        return self._position

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: Any, /) -> int:
        target = memoryview(buffer)
        length = max(0, min(len(target), self._size_bytes - self._position))
        if not length:
            return 0
        start = self._start + self._position
        content = b"".join(blob_store().read(self._blob.key, start=start, length=length))
        target[: len(content)] = content
        self._position += len(content)
        return len(content)


class ProjectFolder:
    """The files of a snapshot by their path from its top."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._marks = bytes(snapshot.marks)
        self._texts: dict[str, bytes] | None = None
        self._folders: set[str] = set()
        self._archives: dict[str, PackedFile] = {}

    @property
    def digest(self) -> str:
        """The digest of the snapshot."""
        return self._snapshot.digest

    def has(self, path: str) -> bool:
        """Return whether there is such a file. Reads nothing."""
        return contains_name(path, self._marks)

    def has_folder(self, path: str) -> bool:
        """Return whether some file is in this folder."""
        self._read_all()
        return path in self._folders

    def read(self, path: str) -> str | None:
        """Return the text of a file, None if there is none. Raises InvalidInput for other bytes."""
        if not self.has(path):
            return None
        content = self._read_all().get(path)
        if content is None:
            raise _unreadable(path, f"it has more than {MAX_TEXT_BYTES >> 20} MiB, or is no text")
        try:
            return content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise _unreadable(path, "it is not UTF-8") from error

    def content(self, path: str) -> bytes | None:
        """Return the bytes of a text file, None if there is none or it is not retained."""
        return self._read_all().get(path) if self.has(path) else None

    def archive(self, path: str) -> PackedFile | None:
        """Return where a file with the name of an archive of packages is, None if there is none."""
        self._read_all()
        return self._archives.get(path)

    def archives_in(self, folder: str) -> Iterator[str]:
        """Yield the paths of the files in a folder that have names of archives of packages."""
        self._read_all()
        for path in self._archives:
            if path.rpartition("/")[0] == folder:
                yield path

    def _read_all(self) -> dict[str, bytes]:
        """Read the archive once, and retain the files that may say something about packages."""
        if self._texts is not None:
            return self._texts
        self._texts, room = {}, _MAX_CACHED_BYTES
        blob = self._snapshot.file.blob
        pieces = blob_store().read(blob.key, start=0, length=blob.size_bytes)
        source: Any = ArchiveSource(pieces)
        for member in read_tar(source, LIMITS, is_gzip=False):
            name = member.name.removeprefix("./")
            self._folders.update(_parents(name))
            is_text = not member.is_folder and (
                name.endswith((*_SUFFIXES, *_COPIED)) or is_dockerfile(name)
            )
            start, size_bytes = source.position, 0
            content = bytearray()
            for piece in member.pieces:
                size_bytes += len(piece)
                if is_text and len(content) <= MAX_TEXT_BYTES:
                    content += piece
            if not member.is_folder and name.lower().endswith(ARCHIVES):
                self._archives[name] = PackedFile(self._snapshot.file, start, size_bytes)
            if is_text and len(content) <= min(MAX_TEXT_BYTES, room):
                self._texts[name] = bytes(content)
                room -= len(content)
        return self._texts


def _parents(name: str) -> list[str]:
    parts = name.split("/")[:-1]
    return ["/".join(parts[: length + 1]) for length in range(len(parts))]


def _unreadable(path: str, reason: str) -> InvalidInput:
    return InvalidInput(
        f"The file {path} cannot be read: {reason}.",
        code="bad_requirement",
        field="requirements_file",
        next_step="Name a requirements file, such as requirements.txt.",
    )
