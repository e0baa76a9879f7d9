"""Parts of an installation outside its databases: keys, the identity of its node, bytes, logs."""

import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from fsspec import AbstractFileSystem
from fsspec.core import url_to_fs

from portal.config.backup.errors import BackupError
from portal.config.backup.names import KEPT, is_backed_up

_NOT_KEPT = ("slipway.log", ".new", ".part", ".lock")


def files_of(data_dir: Path) -> Iterator[tuple[str, Path]]:
    """Yield the name in a backup and the path of each file of the data folder to back up."""
    for kept in KEPT:
        top = data_dir / kept
        paths = [top] if top.is_file() else sorted(top.rglob("*")) if top.is_dir() else []
        for path in paths:
            if path.is_file() and not path.is_symlink() and not _is_passing(path.name):
                yield f"data/{path.relative_to(data_dir).as_posix()}", path


def _is_passing(name: str) -> bool:
    return name.startswith("slipway.log") or name.endswith(_NOT_KEPT)


def restore_file(data_dir: Path, name: str, pieces: Iterable[bytes]) -> None:
    """Write a file of a backup to its place, for its owner alone. Raise BackupError."""
    inner = PurePosixPath(name).relative_to("data")
    if ".." in inner.parts or inner.is_absolute() or not is_backed_up(inner):
        raise BackupError(f"{name} is not a file of a data folder; use another copy")
    path = data_dir / inner
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.new")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        for piece in pieces:
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


class Tree:
    """Files below a URL such as file:///folder or s3://bucket/prefix."""

    def __init__(self, url: str, options: dict[str, object]) -> None:
        filesystem: tuple[AbstractFileSystem, str] = url_to_fs(url, **options)
        self._fs, root = filesystem
        self._root = root.rstrip("/")

    def names(self) -> list[str]:
        """Return the paths of all files, below the top."""
        try:
            value = self._fs.find(self._root)
        except FileNotFoundError:
            return []
        return [str(path).removeprefix(f"{self._root}/") for path in value]

    def read(self, name: str) -> Iterator[bytes]:
        """Yield the bytes of a file."""
        with self._fs.open(f"{self._root}/{name}", "rb") as file:
            while piece := file.read(1024 * 1024):
                yield piece

    def write(self, name: str, pieces: Iterable[bytes]) -> None:
        """Write a file. Raise BackupError for a name that leads elsewhere."""
        if any(part in ("", ".", "..") for part in name.split("/")):
            raise BackupError(f"artifacts/{name} is not an artifact; use another copy")
        path = f"{self._root}/{name}"
        self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
        with self._fs.open(path, "wb") as file:
            for piece in pieces:
                file.write(piece)


def free_bytes(path: Path) -> int:
    """Return the free space of the disk that holds a folder."""
    return shutil.disk_usage(path).free
