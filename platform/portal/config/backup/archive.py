"""The file of a backup: a tar of tables, keys and bytes, and a manifest that names each of them."""

import gzip
import hashlib
import io
import json
import os
import tarfile
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from portal.config.backup.encryption import MAGIC, DecryptingReader, EncryptingWriter
from portal.config.backup.errors import BackupError
from portal.config.backup.names import check_manifest, check_name
from portal.config.backup.progress import BackupProgress
from slipway.sanitize import visible

FORMAT = 1
MANIFEST = "manifest.json"
MEMBERS = "members.jsonl.gz"
_PIECE_BYTES = 1024 * 1024
_LONGEST_MANIFEST = 64 * 1024 * 1024
_LONGEST_LINE = 64 * 1024 * 1024
_MOST_MEMBERS = 50_000_000


class Writer:
    """Adds members to a backup, recording the size and SHA-256 of each."""

    def __init__(self, tar: tarfile.TarFile, drafts: Path, progress: BackupProgress) -> None:
        self._tar = tar
        self._progress = progress
        self._drafts = drafts
        self._noted = tempfile.TemporaryFile(dir=drafts)  # noqa: SIM115 - closed by `finish`
        self._list = gzip.GzipFile(fileobj=self._noted, mode="wb", mtime=0)
        self.count = 0
        self.size_bytes = 0

    def add_stream(self, name: str, pieces: Iterable[bytes], *, sha256: str | None = None) -> bool:
        """Add bytes of unknown number, through a draft on the disk.

        Returns False and adds nothing when they do not match the digest.
        """
        digest = hashlib.sha256()
        with tempfile.TemporaryFile(dir=self._drafts) as draft:
            for piece in pieces:
                draft.write(piece)
                digest.update(piece)
            if sha256 is not None and digest.hexdigest() != sha256:
                return False
            size = draft.tell()
            draft.seek(0)
            self._add(name, draft, size)
        return True

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
        """Add a file in its current state, also if it grows meanwhile."""
        with path.open("rb") as file:
            self._add(name, file, os.fstat(file.fileno()).st_size)

    def finish(self, manifest: dict[str, Any]) -> None:
        """Complete and add the manifest, and the list of members whose digest it contains."""
        self._list.close()
        size = self._noted.tell()
        self._noted.seek(0)
        digest = self._add_member(MEMBERS, self._noted, size)
        self._noted.close()
        manifest |= {"format": FORMAT, "members": self.count, "members_sha256": digest}
        text = json.dumps(manifest, indent=1, sort_keys=True).encode()
        self._add_member(MANIFEST, io.BytesIO(text), len(text))

    def _add(self, name: str, file: IO[bytes], size: int) -> None:
        digest = self._add_member(name, file, size)
        self.count += 1
        self.size_bytes += size
        self._progress.add(size)
        noted = {"name": name, "size": size, "sha256": digest}
        self._list.write(json.dumps(noted, separators=(",", ":")).encode() + b"\n")

    def _add_member(self, name: str, file: IO[bytes], size: int) -> str:
        entry = tarfile.TarInfo(name)
        entry.size, entry.mode = size, 0o600
        counted = _Hashed(file, size)
        self._tar.addfile(entry, counted)
        self._tar.members = []  # type: ignore[attr-defined]  # else it retains all members
        return counted.digest.hexdigest()


class _Hashed:
    """Reads at most `left` bytes of a file and computes their digest."""

    def __init__(self, file: IO[bytes], left: int) -> None:
        self._file = file
        self._left = left
        self.digest = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes."""
        requested = self._left if size < 0 else min(size, self._left)
        piece = self._file.read(requested)
        self._left -= len(piece)
        self.digest.update(piece)
        return piece


@contextmanager
def new_archive(
    path: Path, *, passphrase: str | None, drafts: Path, progress: BackupProgress
) -> Iterator[Writer]:
    """Yield a writer whose file appears under its name once complete, readable by its owner alone.

    It is encrypted unless `passphrase` is None. Members of unknown size are collected in `drafts`,
    which may hold them unencrypted, and not beside the file, which may be on a foreign disk.
    """
    draft = path.with_name(f".{path.name}.part")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            sealed = None if passphrase is None else EncryptingWriter(file, passphrase)
            target: Any = file if sealed is None else sealed
            with tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as tar:
                yield Writer(tar, drafts, progress)
            if sealed is not None:
                sealed.close()
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        with suppress(FileNotFoundError):
            draft.unlink()


class Archive:
    """A backup to read. It is untrusted, so everything in it is checked."""

    def __init__(self, tar: tarfile.TarFile) -> None:
        self._tar = tar
        self._entries: dict[str, tarfile.TarInfo] = {}
        try:
            for entry in tar:
                self._add_entry(entry)
            self.manifest = self._manifest()
        except (tarfile.TarError, OSError, ValueError, RecursionError) as error:
            raise BackupError(f"the backup is incomplete ({error}); use another copy") from None

    def _add_entry(self, entry: tarfile.TarInfo) -> None:
        if not entry.isreg() or entry.issparse():
            raise ValueError(
                f"it contains {visible(entry.name[:200])}, which is not a regular file"
            )
        if entry.name in self._entries:
            raise ValueError(f"it contains {visible(entry.name[:200])} twice")
        if len(self._entries) > _MOST_MEMBERS:
            raise ValueError(f"it contains more than {_MOST_MEMBERS} files")
        self._entries[entry.name] = entry

    def _manifest(self) -> dict[str, Any]:
        entry = self._entries.get(MANIFEST)
        if entry is None or entry.size > _LONGEST_MANIFEST:
            raise ValueError("it has no manifest")
        manifest = json.loads(self._file(MANIFEST).read())
        if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
            raise ValueError("this version cannot read its format")
        check_manifest(manifest)
        return manifest

    def _file(self, name: str) -> IO[bytes]:
        entry = self._entries.get(name)
        file = self._tar.extractfile(entry) if entry is not None else None
        if file is None:
            raise BackupError(f"the backup lacks {visible(name[:200])}; use another copy")
        return file

    def verify(self, progress: BackupProgress) -> list[str]:
        """Check every digest and return the members' names. Raise BackupError at a difference."""
        if _digest(self._file(MEMBERS)) != self.manifest.get("members_sha256"):
            raise BackupError("the list of members is damaged; use another copy")
        names: set[str] = set()
        for member in self.lines(MEMBERS):
            name, sha256 = _noted(member)
            if name in names:
                raise BackupError(f"the backup lists {visible(name)} twice; use another copy")
            digest = _digest(self._file(name))
            if digest != sha256:
                raise BackupError(f"{visible(name)} is damaged; use another copy")
            check_name(name, digest)
            names.add(name)
            progress.add(self._entries[name].size)
        unlisted = self._entries.keys() - names - {MANIFEST, MEMBERS}
        if unlisted:
            name = visible(min(unlisted)[:200])
            raise BackupError(f"the backup contains {name}, which its manifest does not list")
        if self.manifest.get("members") != len(names):
            raise BackupError(
                "the backup contains a different number of files than its manifest says"
            )
        return sorted(names)

    def size_of(self, name: str) -> int:
        """Return the bytes of a member."""
        return self._entries[name].size

    def pieces(self, name: str) -> Iterator[bytes]:
        """Yield the bytes of a member."""
        file = self._file(name)
        while piece := file.read(_PIECE_BYTES):
            yield piece

    def lines(self, name: str) -> Iterator[Any]:
        """Yield the decoded JSON lines of a member. Raise BackupError when it cannot be read."""
        try:
            with gzip.GzipFile(fileobj=self._file(name)) as packed:
                while line := packed.readline(_LONGEST_LINE + 1):
                    if len(line) > _LONGEST_LINE:
                        raise BackupError(f"{visible(name)} has a line of more than 64 MiB")
                    yield json.loads(line)
        except (zlib.error, EOFError, gzip.BadGzipFile, ValueError, RecursionError):
            raise BackupError(f"{visible(name)} cannot be read; use another copy") from None


def _noted(member: Any) -> tuple[str, str]:
    name = member.get("name") if isinstance(member, dict) else None
    sha256 = member.get("sha256") if isinstance(member, dict) else None
    if not isinstance(name, str) or not isinstance(sha256, str):
        raise BackupError("the list of members is damaged; use another copy")
    return name, sha256


def _digest(file: IO[bytes]) -> str:
    digest = hashlib.sha256()
    while piece := file.read(_PIECE_BYTES):
        digest.update(piece)
    return digest.hexdigest()


def is_encrypted(path: Path) -> bool:
    """Return True if the file begins like an encrypted backup. Raise BackupError if unreadable."""
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError as error:
        raise BackupError(f"{path} cannot be read ({error.strerror})") from None


@contextmanager
def open_archive(path: Path, passphrase: str | None) -> Iterator[Archive]:
    """Yield a backup for reading. Raise BackupError when it cannot be opened.

    Without a passphrase it must be a plain one, with a passphrase an encrypted one: an encrypted
    backup cannot be replaced by a plain one unnoticed.
    """
    encrypted = is_encrypted(path)
    if encrypted and passphrase is None:
        raise BackupError(f"{path} is encrypted; leave --unencrypted out")
    if not encrypted and passphrase is not None:
        raise BackupError(
            f"{path} is not an encrypted backup, so anybody could have changed it; use "
            "--unencrypted only if you know that it was created that way and where it has been "
            "stored"
        )
    try:
        with path.open("rb") as file:
            if passphrase is None:
                with tarfile.open(fileobj=file, mode="r:") as tar:
                    yield Archive(tar)
            else:
                reader = io.BufferedReader(DecryptingReader(file, passphrase), _PIECE_BYTES)
                with tarfile.open(fileobj=reader, mode="r:") as tar:
                    yield Archive(tar)
    except (tarfile.TarError, FileNotFoundError, IsADirectoryError) as error:
        raise BackupError(f"{path} is not a backup ({error})") from None
