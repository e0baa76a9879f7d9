"""Snapshots of the code of jobs, stored by digest."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from slipway.connection import Connection, Download, Upload
from slipway.errors import NotFound
from slipway.schemas.training import SnapshotOut

# Below this size, checking whether the server has a snapshot takes longer than sending it.
_WORTH_ASKING_BYTES = 1024**2


class Archive(Upload, Protocol):
    """Snapshot to upload (`slipway.snapshots.Snapshot`)."""

    @property
    def files(self) -> int:
        """Number of files in the snapshot."""


class Snapshots:
    """The code of a project's jobs. Equal code is stored once."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def upload(
        self,
        snapshot: Archive,
        *,
        project: str,
        progress: Callable[[int], None] | None = None,
    ) -> SnapshotOut:
        """Upload a snapshot unless the server has it. `progress` receives the bytes sent."""
        if snapshot.size_bytes >= _WORTH_ASKING_BYTES and self.has(
            snapshot.digest, project=project
        ):
            return SnapshotOut(
                digest=snapshot.digest, size_bytes=snapshot.size_bytes, files=snapshot.files
            )
        segments = ("projects", project, "snapshots")
        return self._connection.upload(SnapshotOut, *segments, content=snapshot, progress=progress)

    def has(self, digest: str, *, project: str) -> bool:
        """Return whether the project has a snapshot of this digest."""
        try:
            with self.download(digest, project=project):
                return True
        except NotFound:
            return False

    def download(self, digest: str, *, project: str) -> AbstractContextManager[Download]:
        """Receive the archive (tar): `with … as archive: for chunk in archive`."""
        return self._connection.stream("projects", project, "snapshots", digest)
