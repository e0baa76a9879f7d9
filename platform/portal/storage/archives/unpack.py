"""Unpacking an archive into a fresh folder: whole, or not at all."""

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO

from portal.core.errors import Conflict
from portal.storage.adapters.fsspec_store import report_outages
from portal.storage.archives.limits import ArchiveLimits, broken, too_large
from portal.storage.archives.members import Member
from portal.storage.archives.names import Parts, PathIndex, parts_of
from portal.storage.archives.tar import BLOCK, read_tar
from portal.storage.archives.zip import read_zip
from portal.storage.models import StoredFile
from portal.storage.services import open_file

_DEFAULTS = ArchiveLimits()
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True)
class ExtractionResult:
    """Files and bytes extracted from an archive."""

    files: int
    size_bytes: int


def unpack_file(
    *, file: StoredFile, into: Path, limits: ArchiveLimits = _DEFAULTS
) -> ExtractionResult:
    """Unpack a stored file as `unpack` does, through a nameless file beside `into`."""
    with TemporaryFile(dir=into.parent) as spool:
        for chunk in open_file(file=file):
            with report_outages(str(into.parent)):
                spool.write(chunk)
        spool.seek(0)
        return unpack(spool, into=into, limits=limits)


def unpack(source: BinaryIO, *, into: Path, limits: ArchiveLimits = _DEFAULTS) -> ExtractionResult:
    """Unpack a .tar, .tar.gz or .zip archive into the folder `into`, which must not exist yet.

    Only plain files and folders come out, without owners, times, set-user bits and other extras.
    The folder appears when it is complete, and is not synced to the disk. Raises UnsafeArchive,
    BrokenArchive, TooLarge or Conflict (`into` exists), and then leaves nothing behind.
    """
    draft = _Draft(into)
    try:
        places = PathIndex(limits)
        files, size_bytes = 0, 0
        for member in _members(source, limits):
            parts = parts_of(member.name, limits)
            if parts:
                places.reserve(member.name, parts, is_folder=member.is_folder)
            elif not member.is_folder:
                raise broken("a file in it has no name")
            if member.is_folder:
                draft.add_folder(parts)
            else:
                files += 1
                size_bytes += draft.add_file(parts, member, limits)
        draft.publish()
    except BaseException:
        draft.discard()
        raise
    return ExtractionResult(files, size_bytes)


def _members(source: BinaryIO, limits: ArchiveLimits) -> Iterator[Member]:
    start = source.read(BLOCK)
    source.seek(0)
    if start.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return read_zip(source, limits)
    if start.startswith(b"\x1f\x8b"):
        return read_tar(source, limits, is_gzip=True)
    if len(start) == BLOCK:
        return read_tar(source, limits, is_gzip=False)
    raise broken("it is neither .tar nor .tar.gz nor .zip")


class _Draft:
    """A hidden folder beside the final one, entered step by step by descriptor.

    So neither a name nor a folder concurrently replaced by a link leads out of it.
    """

    def __init__(self, into: Path) -> None:
        self._into = into
        self._refuse_existing()
        self._path = into.parent / f".{into.name[:100]}.{secrets.token_hex(8)}.draft"
        with report_outages(str(into.parent)):
            self._path.mkdir(mode=0o700)
            # The open folders of the last member, outermost first: its siblings come next.
            self._open: list[tuple[str, int]] = [("", os.open(self._path, _FOLDER_FLAGS))]

    def _refuse_existing(self) -> None:
        if os.path.lexists(self._into):
            raise Conflict(
                f"The folder {self._into.name} already exists.",
                code="folder_exists",
                next_step="Unpack into a new folder.",
            )

    def add_folder(self, parts: Parts) -> None:
        """Create a folder, and those above it."""
        self._enter(parts)

    def add_file(self, parts: Parts, member: Member, limits: ArchiveLimits) -> int:
        """Write a file and return its size in bytes."""
        folder = self._enter(parts[:-1])
        mode = 0o755 if member.is_executable else 0o644
        size_bytes = 0
        with report_outages(str(self._into.parent)):
            descriptor = os.open(parts[-1], _FILE_FLAGS, mode, dir_fd=folder)
        with os.fdopen(descriptor, "wb", buffering=0) as file:
            for piece in member.pieces:
                size_bytes += len(piece)
                if size_bytes > limits.member_bytes:
                    raise too_large(f"contains a file of more than {limits.member_bytes} bytes")
                with report_outages(str(self._into.parent)):
                    _write_all(file.fileno(), piece)
        return size_bytes

    def _enter(self, parts: Parts) -> int:
        """Return the descriptor of a folder, created where it is missing."""
        kept = 0
        for (name, _), part in zip(self._open[1:], parts, strict=False):
            if name != part:
                break
            kept += 1
        self._close(keep=kept + 1)
        with report_outages(str(self._into.parent)):
            for part in parts[kept:]:
                above = self._open[-1][1]
                with suppress(FileExistsError):
                    os.mkdir(part, 0o755, dir_fd=above)
                self._open.append((part, os.open(part, _FOLDER_FLAGS, dir_fd=above)))
        return self._open[-1][1]

    def _close(self, *, keep: int = 0) -> None:
        while len(self._open) > keep:
            os.close(self._open.pop()[1])

    def publish(self) -> None:
        """Give the folder its name."""
        self._refuse_existing()
        with report_outages(str(self._into.parent)):
            os.fchmod(self._open[0][1], 0o755)
            self._close()
            self._path.rename(self._into)

    def discard(self) -> None:
        """Remove everything that was written."""
        self._close()
        shutil.rmtree(self._path, ignore_errors=True)


def _write_all(descriptor: int, piece: bytes) -> None:
    view = memoryview(piece)
    while view:
        view = view[os.write(descriptor, view) :]
