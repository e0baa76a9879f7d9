"""Text files of a snapshot, read without unpacking it."""

from typing import Any

from portal.core.errors import InvalidInput
from portal.storage.archives.tar import read_tar
from portal.storage.backend import blob_store
from portal.training.file_index import LIMITS, ArchiveSource, contains_name
from portal.training.models import Snapshot
from slipway.requirement_files.dockerfile import is_dockerfile
from slipway.requirement_files.names import PYTHON_VERSION

MAX_TEXT_BYTES = 8 * 1024**2
_MAX_CACHED_BYTES = 32 * 1024**2
_SUFFIXES = (".txt", ".in", ".toml", ".lock", ".pip", ".yml", ".yaml", PYTHON_VERSION)
# Files that a Dockerfile copies and runs, as a rule.
_COPIED = (".json", ".cfg", ".conf", ".sh")


class ProjectFolder:
    """The files of a snapshot by their path from its top."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._marks = bytes(snapshot.marks)
        self._texts: dict[str, bytes] | None = None
        self._folders: set[str] = set()

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
            content = bytearray()
            for piece in member.pieces:
                if is_text and len(content) <= MAX_TEXT_BYTES:
                    content += piece
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
