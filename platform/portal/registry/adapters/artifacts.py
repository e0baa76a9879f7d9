"""Files of models in MLflow's artifact store: a local folder or a bucket."""

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, BinaryIO
from urllib.parse import unquote, urlsplit

import fsspec
from django.conf import settings

from portal.registry.ports import FilesUnreadable, ModelFolderFile

_CHUNK_BYTES = 1024 * 1024
# Read-ahead block size, so that little more is fetched from a bucket than is read.
_IN_PARTS = {"block_size": 256 * 1024}
_PATIENCE = {"connect_timeout": 3, "read_timeout": 10}


class ArtifactFiles:
    """Read-only files below `root` of a file system. Links and paths outside are never read."""

    def __init__(self, system: Any, root: str) -> None:
        self._system = system
        self._root = root.rstrip("/")

    def files(self, folder: str, *, limit: int) -> Sequence[ModelFolderFile]:
        """Return at most `limit` files below a folder, in order of paths."""
        base = self._path(folder)
        try:
            value = self._system.find(base, detail=True)
        except Exception as error:
            raise FilesUnreadable(_describe_error(error)) from error
        files = [
            ModelFolderFile(str(path)[len(base) :].lstrip("/"), int(details.get("size") or 0))
            for path, details in value.items()
            if details.get("type") == "file" and not details.get("islink")
        ]
        return sorted(files, key=lambda file: file.path)[:limit]

    def has_files(self, place: str) -> bool:
        """Return whether this is a file, or a folder with one below it."""
        base = self._path(place)
        try:
            if self._system.info(base)["type"] != "directory":
                return True
            return any(files for _, _, files in self._system.walk(base))
        except (FileNotFoundError, NotADirectoryError):
            return False
        except Exception as error:
            raise FilesUnreadable(_describe_error(error)) from error

    def head(self, folder: str, path: str, *, limit_bytes: int) -> bytes:
        """Return the first bytes of a file."""
        try:
            with self._open(folder, path) as file:
                return bytes(file.read(limit_bytes))
        except OSError as error:
            raise FilesUnreadable(_describe_error(error)) from error

    def sha256(self, folder: str, path: str) -> str:
        """Return the SHA-256 of a file, read in constant memory."""
        digest = hashlib.sha256()
        try:
            with self._open(folder, path) as file:
                while piece := file.read(_CHUNK_BYTES):
                    digest.update(piece)
        except OSError as error:
            raise FilesUnreadable(_describe_error(error)) from error
        return digest.hexdigest()

    def pieces(self, folder: str, path: str) -> Iterator[bytes]:
        """Yield the bytes of a file. Raises FilesUnreadable before the first or at any piece."""
        try:
            with self._open(folder, path) as file:
                while piece := file.read(_CHUNK_BYTES):
                    yield bytes(piece)
        except OSError as error:
            raise FilesUnreadable(_describe_error(error)) from error

    @contextmanager
    def opened(self, folder: str, path: str) -> Iterator[BinaryIO]:
        """Open a file for random access."""
        try:
            with self._open(folder, path, **_IN_PARTS) as file:
                yield file
        except OSError as error:
            raise FilesUnreadable(_describe_error(error)) from error

    def _open(self, folder: str, path: str, **how: Any) -> Any:
        place = self._path(folder, path)
        if self._system.protocol in ("file", ("file", "local")) and _contains_symlink(
            self._root, place
        ):
            raise FilesUnreadable("it is behind a symbolic link")
        return self._system.open(place, "rb", **how)

    def _path(self, *parts: str) -> str:
        names = [name for part in parts for name in part.split("/")]
        if not names or any(name in ("", ".", "..") or "\0" in name for name in names):
            raise FilesUnreadable("its name is not a valid file name")
        return "/".join([self._root, *names])


def _contains_symlink(root: str, place: str) -> bool:
    return os.path.realpath(place) != os.path.join(os.path.realpath(root), place[len(root) + 1 :])  # noqa: PTH118


def _describe_error(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "there is no such file"
    return "the artifact store does not respond"


@lru_cache(maxsize=4)
def _open_files(_pid: int, url: str, options: tuple[tuple[str, Any], ...]) -> ArtifactFiles:
    parts = urlsplit(url)
    if parts.scheme == "file":
        return ArtifactFiles(fsspec.filesystem("file"), unquote(parts.path))
    system = fsspec.filesystem(
        parts.scheme, use_listings_cache=False, config_kwargs=_PATIENCE, **dict(options)
    )
    return ArtifactFiles(system, f"{parts.netloc}{unquote(parts.path)}")


def artifact_files() -> ArtifactFiles:
    """Return the store of this process. A forked child gets one with its own connections."""
    url: str = settings.SLIPWAY_ARTIFACTS_URL
    options = () if url.startswith("file:") else tuple(sorted(_bucket_options().items()))
    return _open_files(os.getpid(), url, options)


def _bucket_options() -> dict[str, Any]:
    given: dict[str, Any] = dict(settings.SLIPWAY_STORAGE_OPTIONS)
    return {name: value for name, value in given.items() if value is not None}
