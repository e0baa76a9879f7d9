"""Datasets on this machine: each version once, verified, shared by processes, pruned by size."""

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import tarfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from platformdirs import user_cache_path

from slipway.client import Client
from slipway.connection import Download
from slipway.errors import SlipwayError, UnexpectedAnswer
from slipway.schemas.datasets import PIECE_BYTES, DataFileOut, DatasetVersionOut, digest_of, key_of

_READ_BYTES = 1024**2
# Smaller files are downloaded in bulk, larger ones individually, so that they can be resumed.
_SMALL_BYTES = 8 * 1024**2
_DEFAULT_LIMIT_BYTES = 100 * 1024**3
_TRIES = 5


@dataclass(frozen=True)
class _CachePaths:
    """Paths of a cached version: `files` when complete, `part` before, `facts` with its details.

    The lock file is next to it and is never deleted, so that no process waits for a deleted lock.
    """

    folder: Path

    @property
    def files(self) -> Path:
        return self.folder / "files"

    @property
    def part(self) -> Path:
        return self.folder / "part"

    @property
    def facts(self) -> Path:
        return self.folder / "facts.jsonl"

    @property
    def lock(self) -> Path:
        return self.folder.parent / ".locks" / self.folder.name


# Locks held until this process ends, so that no other process prunes the versions it reads.
_held: dict[Path, IO[str]] = {}


def cache_folder(url: str, project: str) -> Path:
    """Return where versions of a project rest: SLIPWAY_CACHE in a job, else the user's cache."""
    given = os.environ.get("SLIPWAY_CACHE")
    if given:
        return Path(given) / "datasets"
    mark = hashlib.sha256(f"{url}\n{project}".encode()).hexdigest()[:16]
    return Path(user_cache_path("slipway")) / "datasets" / mark


def local_path(client: Client, project: str, version: DatasetVersionOut) -> Path:
    """Return a folder of this machine with the files of a ready version, as they are there.

    They are fetched once, whoever asks at the same time, and each is proved by its digest. Nothing
    may be written there: others read it too. Raises SlipwayError.
    """
    place = _CachePaths(cache_folder(client.url, project) / version.id)
    if place.folder in _held:
        return place.files
    place.lock.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    while not _lock_for_use(place, version):
        try:
            with _locked(place, _AT_ONCE):
                if not _is_intact(place, version):
                    place.folder.mkdir(mode=0o700, exist_ok=True)
                    _prune(place.folder.parent, keep=place.folder, room_for=version.size_bytes)
                    _fetch(client, project, version, place)
        except BlockingIOError:
            # Poll, because waiting for the lock would last until its last reader ends. Of two ranks
            # the later one would wait for the earlier one, which waits for it to begin.
            time.sleep(_LOOK_AGAIN_S)
    return place.files


@contextlib.contextmanager
def _locked(place: _CachePaths, kind: int) -> Iterator[None]:
    with place.lock.open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, kind)
        yield


def _lock_for_use(place: _CachePaths, version: DatasetVersionOut) -> bool:
    """Lock the version against pruning while this process lives. False if it is incomplete."""
    lock = place.lock.open("w", encoding="utf-8")
    fcntl.flock(lock, fcntl.LOCK_SH)
    if not _is_intact(place, version):
        lock.close()
        return False
    os.utime(place.folder)
    _held[place.folder] = lock
    return True


def _is_intact(place: _CachePaths, version: DatasetVersionOut) -> bool:
    """Return whether the files are as they were verified. Files touched since are read again."""
    if not place.facts.exists() or not place.files.is_dir():
        return False
    files = 0
    with place.facts.open(encoding="utf-8") as details:
        for line in details:
            document: dict[str, Any] = json.loads(line)
            files += 1
            path = place.files / document["path"]
            try:
                status = path.lstat()
            except OSError:
                return False
            same = (status.st_size, status.st_mtime_ns) == (document["size"], document["mtime_ns"])
            if not same and _digest(path) != document["digest"]:
                return False
    return files == version.files


def _fetch(client: Client, project: str, version: DatasetVersionOut, place: _CachePaths) -> None:
    """Download all files. Those received before an interruption are reused."""
    shutil.rmtree(place.files, ignore_errors=True)
    place.facts.unlink(missing_ok=True)
    place.part.mkdir(exist_ok=True)
    manifest = place.folder / "manifest.jsonl"
    _fetch_manifest(client, project, version, manifest)
    _fetch_small(client, project, version, place.part, manifest)
    draft = place.folder / "facts.new"
    with draft.open("w", encoding="utf-8") as details:
        for file in _files_in(manifest):
            path = place.part / file.path
            if not _matches_digest(path, file):
                _fetch_file(client, project, version, file, path)
            path.chmod(0o444)
            status = path.stat()
            values = {"path": file.path, "size": status.st_size, "mtime_ns": status.st_mtime_ns}
            details.write(json.dumps(values | {"digest": file.digest}) + "\n")
    place.part.rename(place.files)
    draft.rename(place.facts)
    manifest.unlink()


def _fetch_manifest(client: Client, project: str, version: DatasetVersionOut, to: Path) -> None:
    """Write the list of files, and prove it by the version's digest."""
    with (
        client.datasets.manifest(version.dataset, version.id, project=project) as download,
        to.open("wb") as file,
    ):
        for chunk in download:
            file.write(chunk)
    measure = hashlib.sha256()
    for data_file in _files_in(to):
        measure.update(
            f"{key_of(data_file.path)} {data_file.digest} {data_file.size_bytes}\n".encode()
        )
    if measure.hexdigest() != version.digest:
        raise _damaged("The list of files is not the one of this version.")


def _files_in(manifest: Path) -> Iterator[DataFileOut]:
    with manifest.open(encoding="utf-8") as lines:
        for line in lines:
            data_file = DataFileOut.model_validate_json(line)
            data_file.path = _safe(data_file.path)
            yield data_file


def _safe(path: str) -> str:
    """Refuse a path that leads out of the folder, whatever its origin."""
    parts = path.split("/")
    if not path or path.startswith("/") or any(part in ("", ".", "..") for part in parts):
        raise _damaged("A file has a path that leads out of the dataset.")
    return path


def _fetch_small(
    client: Client, project: str, version: DatasetVersionOut, into: Path, manifest: Path
) -> None:
    """Receive the small files as one tar, again from where it broke off."""
    after: str | None = next(
        (None for file in _files_in(manifest) if file.size_bytes < _SMALL_BYTES), ""
    )
    if after == "":
        return
    for _ in range(_TRIES):
        try:
            with client.datasets.archive(
                version.dataset,
                version.id,
                project=project,
                after=after,
                below_bytes=_SMALL_BYTES,
            ) as body:
                for path in _unpack(body, into):
                    after = key_of(path)
        except (SlipwayError, tarfile.TarError, OSError):
            continue
        return
    # Files still missing are fetched individually, which reports the error if it persists.


def _unpack(body: Download, into: Path) -> Iterator[str]:
    """Extract the members of a tar and yield each path. Only regular files are accepted."""
    source: Any = _Source(body)
    with tarfile.open(fileobj=source, mode="r|") as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isreg() else None
            if content is None:
                raise _damaged("The archive holds something that is no file.")
            path = into / _safe(member.name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            with path.open("xb") as file:
                shutil.copyfileobj(content, file, _READ_BYTES)
            yield member.name


class _Source:
    """A file to read an archive from, over the pieces of an answer."""

    def __init__(self, pieces: Download) -> None:
        self._pieces = iter(pieces)
        self._rest = b""

    def read(self, size: int = -1) -> bytes:
        """Return `size` bytes, fewer at the end."""
        parts = [self._rest]
        length = len(self._rest)
        while length < size and (piece := next(self._pieces, b"")):
            parts.append(piece)
            length += len(piece)
        whole = b"".join(parts)
        self._rest = whole[size:]
        return whole[:size]


def _fetch_file(
    client: Client, project: str, version: DatasetVersionOut, file: DataFileOut, path: Path
) -> None:
    """Receive one file, each time it breaks off from there on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for attempt in range(1, _TRIES + 1):
        offset = path.stat().st_size if path.exists() else 0
        if offset > file.size_bytes or attempt == _TRIES:
            path.unlink(missing_ok=True)
            offset = 0
        try:
            with (
                client.datasets.content(
                    version.dataset, version.id, file.path, project=project, offset=offset
                ) as body,
                path.open("ab") as here,
            ):
                for chunk in body:
                    here.write(chunk)
        except SlipwayError:
            if attempt == _TRIES:
                raise
            time.sleep(0.1 * attempt)
            continue
        if _matches_digest(path, file):
            return
        path.unlink()
    raise _damaged(f"{file.path} arrives with other bytes than it should have.")


def _matches_digest(path: Path, file: DataFileOut) -> bool:
    try:
        if path.is_symlink() or path.stat().st_size != file.size_bytes:
            return False
    except OSError:
        return False
    return _digest(path) == file.digest


def _digest(path: Path) -> str:
    pieces: list[str] = []
    with path.open("rb") as file:
        while True:
            measure, length = hashlib.sha256(), 0
            while length < PIECE_BYTES and (
                some := file.read(min(_READ_BYTES, PIECE_BYTES - length))
            ):
                measure.update(some)
                length += len(some)
            if not length:
                return digest_of(pieces)
            pieces.append(measure.hexdigest())


def _prune(root: Path, *, keep: Path, room_for: int) -> None:
    """Remove versions nobody reads, the longest unused first, until there is space."""
    limit = int(os.environ.get("SLIPWAY_CACHE_BYTES") or _DEFAULT_LIMIT_BYTES)
    free = shutil.disk_usage(root).free
    others = [
        item for item in root.iterdir() if item.is_dir() and item not in (keep, root / ".locks")
    ]
    sizes = {path: _size(path) for path in others}
    over = max(sum(sizes.values()) + room_for - limit, room_for - free)
    for path in sorted(others, key=lambda path: path.stat().st_mtime):
        if over <= 0:
            return
        with contextlib.suppress(BlockingIOError), _locked(_CachePaths(path), _AT_ONCE):
            shutil.rmtree(path, ignore_errors=True)
            over -= sizes[path]


_AT_ONCE = fcntl.LOCK_EX | fcntl.LOCK_NB
_LOOK_AGAIN_S = 0.05


def _size(folder: Path) -> int:
    return sum(
        Path(at, name).lstat().st_size for at, _folders, names in os.walk(folder) for name in names
    )


def _damaged(message: str) -> UnexpectedAnswer:
    return UnexpectedAnswer(
        message,
        code="damaged_dataset",
        next_step="Try again; if it repeats, report it to who runs the server.",
    )
