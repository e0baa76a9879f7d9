"""The file of a backup: a tar of tables, keys and bytes, and a manifest that names each of them."""

import gzip
import hashlib
import io
import json
import os
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

FORMAT = 1
MANIFEST = "manifest.json"
MEMBERS = "members.jsonl.gz"
_PIECE_BYTES = 1024 * 1024
_LONGEST_MANIFEST = 64 * 1024 * 1024


class BackupError(Exception):
    """A backup cannot be made or read; the message is one line for people."""


class Writer:
    """Adds members to a backup, each noted with its size and SHA-256."""

    def __init__(self, tar: tarfile.TarFile, drafts: Path) -> None:
        self._tar = tar
        self._drafts = drafts
        self._noted = tempfile.TemporaryFile(dir=drafts)  # noqa: SIM115 - closed by `finish`
        self._list = gzip.GzipFile(fileobj=self._noted, mode="wb", mtime=0)
        self.count = 0
        self.size_bytes = 0

    def add_stream(self, name: str, pieces: Iterable[bytes]) -> None:
        """Add bytes whose number is not known, by way of a draft on the disk."""
        with tempfile.TemporaryFile(dir=self._drafts) as draft:
            for piece in pieces:
                draft.write(piece)
            size = draft.tell()
            draft.seek(0)
            self._add(name, draft, size)

    def add_lines(self, name: str, lines: Iterable[bytes]) -> None:
        """Add lines, compressed."""
        with tempfile.TemporaryFile(dir=self._drafts) as draft:
            with gzip.GzipFile(fileobj=draft, mode="wb", compresslevel=4, mtime=0) as packed:
                for line in lines:
                    packed.write(line + b"\n")
            size = draft.tell()
            draft.seek(0)
            self._add(name, draft, size)

    def add_file(self, name: str, path: Path) -> None:
        """Add a file as it is now, however it grows meanwhile."""
        with path.open("rb") as file:
            self._add(name, file, os.fstat(file.fileno()).st_size)

    def finish(self, manifest: dict[str, Any]) -> None:
        """Add the list of members and the manifest that vouches for it, which is completed."""
        self._list.close()
        size = self._noted.tell()
        self._noted.seek(0)
        digest = self._put(MEMBERS, self._noted, size)
        self._noted.close()
        manifest |= {"format": FORMAT, "members": self.count, "members_sha256": digest}
        text = json.dumps(manifest, indent=1, sort_keys=True).encode()
        self._put(MANIFEST, io.BytesIO(text), len(text))

    def _add(self, name: str, file: IO[bytes], size: int) -> None:
        digest = self._put(name, file, size)
        self.count += 1
        self.size_bytes += size
        noted = {"name": name, "size": size, "sha256": digest}
        self._list.write(json.dumps(noted, separators=(",", ":")).encode() + b"\n")

    def _put(self, name: str, file: IO[bytes], size: int) -> str:
        entry = tarfile.TarInfo(name)
        entry.size, entry.mode = size, 0o600
        counted = _Hashed(file, size)
        self._tar.addfile(entry, counted)
        return counted.digest.hexdigest()


class _Hashed:
    """Reads at most `left` bytes of a file, and knows their digest afterwards."""

    def __init__(self, file: IO[bytes], left: int) -> None:
        self._file = file
        self._left = left
        self.digest = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes."""
        wanted = self._left if size < 0 else min(size, self._left)
        piece = self._file.read(wanted)
        self._left -= len(piece)
        self.digest.update(piece)
        return piece


@contextmanager
def new_archive(path: Path) -> Iterator[Writer]:
    """Yield a writer; the file appears under its name when it is whole, for its owner alone."""
    draft = path.with_name(f".{path.name}.part")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
                yield Writer(tar, path.parent)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        with suppress(FileNotFoundError):
            draft.unlink()


class Archive:
    """A backup to read. Everything in it was written by us, and nothing of that is believed."""

    def __init__(self, tar: tarfile.TarFile) -> None:
        self._tar = tar
        try:
            self._entries = {entry.name: entry for entry in tar.getmembers() if entry.isfile()}
            self.manifest = self._manifest()
        except (tarfile.TarError, OSError, ValueError) as error:
            raise BackupError(f"this is no whole backup ({error}); take another copy") from None

    def _manifest(self) -> dict[str, Any]:
        entry = self._entries.get(MANIFEST)
        if entry is None or entry.size > _LONGEST_MANIFEST:
            raise ValueError("it has no manifest")
        found = json.loads(self._file(MANIFEST).read())
        if not isinstance(found, dict) or found.get("format") != FORMAT:
            raise ValueError("its format is not one this version reads")
        return found

    def _file(self, name: str) -> IO[bytes]:
        entry = self._entries.get(name)
        file = self._tar.extractfile(entry) if entry is not None else None
        if file is None:
            raise BackupError(f"the backup lacks {name}; take another copy")
        return file

    def verify(self) -> list[str]:
        """Read all of it; returns the names of its members. Raises BackupError at a difference."""
        if _digest(self._file(MEMBERS)) != self.manifest.get("members_sha256"):
            raise BackupError("the list of members is damaged; take another copy")
        names = []
        with gzip.GzipFile(fileobj=self._file(MEMBERS)) as noted:
            for line in noted:
                member = json.loads(line)
                if _digest(self._file(member["name"])) != member["sha256"]:
                    raise BackupError(f"{member['name']} is damaged; take another copy")
                names.append(str(member["name"]))
        return names

    def pieces(self, name: str) -> Iterator[bytes]:
        """Yield the bytes of a member."""
        file = self._file(name)
        while piece := file.read(_PIECE_BYTES):
            yield piece

    def lines(self, name: str) -> Iterator[Any]:
        """Yield the lines of a member, decoded."""
        with gzip.GzipFile(fileobj=self._file(name)) as packed:
            for line in packed:
                yield json.loads(line)


def _digest(file: IO[bytes]) -> str:
    digest = hashlib.sha256()
    while piece := file.read(_PIECE_BYTES):
        digest.update(piece)
    return digest.hexdigest()


@contextmanager
def open_archive(path: Path) -> Iterator[Archive]:
    """Yield a backup to read; raises BackupError."""
    try:
        with tarfile.open(path, "r:") as tar:
            yield Archive(tar)
    except (tarfile.TarError, FileNotFoundError, IsADirectoryError) as error:
        raise BackupError(f"{path} is no backup ({error})") from None
