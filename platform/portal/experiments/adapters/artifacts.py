"""Artifacts on a disk or in S3-compatible storage, by fsspec. MLflow's own process writes them."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from fsspec import AbstractFileSystem
from fsspec.asyn import sync
from fsspec.core import url_to_fs

from portal.core.errors import Unavailable
from portal.experiments.ports import Artifact
from portal.storage.ports import CHUNK_BYTES, CleanupResult


class FsspecArtifacts:
    """Artifacts below a URL such as file:///folder or s3://bucket/prefix."""

    def __init__(self, url: str, options: dict[str, Any]) -> None:
        filesystem: tuple[AbstractFileSystem, str] = url_to_fs(url, **options)
        self._fs, root = filesystem
        self._root = root.rstrip("/")

    def listed(self, place: str) -> Sequence[Artifact]:
        """Return the content of a folder, with paths relative to it, empty if there is none."""
        folder = self._path(place)
        with _in_order():
            try:
                value = self._fs.ls(folder, detail=True, refresh=True)
            except (FileNotFoundError, NotADirectoryError):
                return []
        return _entries(value, folder)

    def first_listed(self, place: str, *, most: int) -> Sequence[Artifact]:
        """Return at most `most` entries of a folder, in no particular order if it has more."""
        folder = self._path(place)
        with _in_order():
            try:
                value = self._first_infos(folder, most)
            except (FileNotFoundError, NotADirectoryError):
                return []
        return _entries(value, folder)[:most]

    def _first_infos(self, folder: str, most: int) -> list[dict[str, Any]]:
        """Return what `ls` would, without reading a folder of a million files to its end."""
        if self.has_folders:
            with os.scandir(folder) as files:
                return [self._fs.info(file) for file in islice(files, most)]
        if "s3" in self._fs.protocol:
            collected: list[dict[str, Any]] = sync(self._fs.loop, _collect, self._fs, folder, most)
            return collected
        return list(islice(self._fs.ls(folder, detail=True, refresh=True), most))

    @property
    def has_folders(self) -> bool:
        """Return whether a file and a folder cannot have the same name, unlike in a bucket."""
        return "file" in self._fs.protocol

    def is_folder(self, place: str) -> bool:
        """Return whether there is a folder."""
        with _in_order():
            try:
                return bool(self._fs.info(self._path(place))["type"] == "directory")
            except (FileNotFoundError, NotADirectoryError):
                return False

    def size_of(self, place: str) -> int | None:
        """Return the bytes of a file, None when there is no such file."""
        with _in_order():
            try:
                info = self._fs.info(self._path(place))
            except (FileNotFoundError, NotADirectoryError):
                return None
        return int(info["size"]) if info["type"] == "file" else None

    def read(self, place: str, *, start: int, length: int) -> Iterator[bytes]:
        """Yield `length` bytes of a file from byte `start` on."""
        with _in_order(), self._fs.open(self._path(place), "rb") as file:
            file.seek(start)
            while length > 0 and (piece := file.read(min(CHUNK_BYTES, length))):
                length -= len(piece)
                yield piece

    def remove(self, place: str) -> CleanupResult:
        """Remove a folder with its content. Returns what was removed."""
        with _in_order():
            files = self._files(place)
            cleared = CleanupResult(len(files), sum(int(entry["size"] or 0) for entry in files))
            try:
                self._fs.rm(self._path(place), recursive=True)
            except FileNotFoundError:
                return CleanupResult()
        return cleared

    def folder_size(self, place: str) -> int:
        """Return the bytes of all files below a folder, 0 if there is none."""
        with _in_order():
            return sum(int(entry["size"] or 0) for entry in self._files(place))

    def changed_at(self, place: str) -> datetime | None:
        """Return the time of the last write below a folder, or None if nothing is there."""
        with _in_order():
            return max((_last_modified(entry) for entry in self._files(place)), default=None)

    def _files(self, place: str) -> list[dict[str, Any]]:
        value = self._fs.find(self._path(place), detail=True)
        return [entry for entry in value.values() if entry["type"] == "file"]

    def _path(self, place: str) -> str:
        return f"{self._root}/{place}" if place else self._root


def _entries(infos: list[dict[str, Any]], folder: str) -> list[Artifact]:
    entries = [
        Artifact(
            path=str(info["name"]).rstrip("/").rpartition("/")[2],
            is_folder=info["type"] == "directory",
            size_bytes=int(info.get("size") or 0) if info["type"] != "directory" else 0,
        )
        for info in infos
        if str(info["name"]).rstrip("/") != folder
    ]
    return sorted(entries, key=lambda entry: (not entry.is_folder, entry.path))


async def _collect(filesystem: Any, folder: str, most: int) -> list[dict[str, Any]]:
    bucket, _, key = folder.partition("/")
    infos: list[dict[str, Any]] = []
    # The public `ls` of s3fs reads all pages of a listing.
    listing = filesystem._iterdir(bucket, max_items=most, prefix=f"{key}/" if key else "")  # noqa: SLF001
    async for info in listing:
        infos.append(info)
        if len(infos) >= most:
            break
    return infos


@contextmanager
def _in_order() -> Iterator[None]:
    """Turn trouble of the store into an error a person can act on."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        raise Unavailable(
            "The artifact store does not respond.",
            retry_after_s=5,
            next_step="Try again. If it happens again, ask an administrator.",
        ) from error


def _last_modified(entry: dict[str, Any]) -> datetime:
    lastmodified = entry.get("LastModified") or entry.get("mtime") or 0
    if isinstance(lastmodified, datetime):
        return lastmodified if lastmodified.tzinfo else lastmodified.replace(tzinfo=UTC)
    return datetime.fromtimestamp(float(lastmodified), UTC)
