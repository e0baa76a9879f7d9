"""Files of notebook workspaces, on the disks of nodes."""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from slipway.connection import Connection, Download
from slipway.errors import InvalidInput
from slipway.resources.requests import build
from slipway.schemas.workspace_files import (
    MOST_LISTED,
    ListOrder,
    WorkspaceArea,
    WorkspaceEntry,
    WorkspaceFolder,
    WorkspaceFolderIn,
    WorkspaceMoveIn,
)

_BLOCK = 1024**2


@dataclass(frozen=True)
class _LocalFile:
    """A file on its way up."""

    path: Path
    size_bytes: int
    digest: str = ""

    def pieces(self) -> Iterator[bytes]:
        with self.path.open("rb") as file:
            while block := file.read(_BLOCK):
                yield block


class Workspaces:
    """Files of the workspaces of a project.

    `area` is `shared` or `personal`, the caller's own folder. Each node has its own files; `node`
    is a name, by default the node of the newest notebook server.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def list(
        self,
        path: str = "",
        *,
        project: str,
        area: WorkspaceArea = "shared",
        node: str = "",
        order: ListOrder = "name",
        search: str = "",
        hidden: bool = False,
        offset: int = 0,
        limit: int = MOST_LISTED,
    ) -> WorkspaceFolder:
        """Return one part of a folder: at most 500 entries from `offset` on, folders first."""
        query = {
            **_place(path, area, node),
            "order": order,
            "search": search or None,
            "hidden": "true" if hidden else None,
            "offset": offset,
            "limit": limit,
        }
        return self._connection.fetch(WorkspaceFolder, "GET", *_path(project), query=query)

    def download(
        self,
        path: str = "",
        *,
        project: str,
        area: WorkspaceArea = "shared",
        node: str = "",
        hidden: bool = False,
    ) -> AbstractContextManager[Download]:
        """Download a file, or a folder as a zip."""
        query = {**_place(path, area, node), "hidden": "true" if hidden else None}
        return self._connection.stream(*_path(project), "content", query=query)

    def upload(
        self,
        source: str | os.PathLike[str],
        path: str,
        *,
        project: str,
        area: WorkspaceArea = "shared",
        node: str = "",
        replace: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> WorkspaceEntry:
        """Write the file `source` of this machine to `path`. Raises Conflict if it exists.

        `replace` replaces an existing file as a whole.
        """
        file = Path(source)
        try:
            content = _LocalFile(file, file.stat().st_size)
            file.open("rb").close()
        except OSError as error:
            raise InvalidInput(
                f"{file} cannot be read: {error.strerror}.",
                field="source",
                next_step="Name a file of this machine.",
            ) from error
        query = {**_place(path, area, node), "replace": "true" if replace else None}
        return self._connection.upload(
            WorkspaceEntry,
            *_path(project),
            "content",
            content=content,
            progress=progress,
            query={name: value for name, value in query.items() if value is not None},
        )

    def make_folder(
        self, path: str, *, project: str, area: WorkspaceArea = "shared", node: str = ""
    ) -> WorkspaceEntry:
        """Create a folder in an existing one. Raises Conflict if it exists."""
        body = build(WorkspaceFolderIn, path=path, area=area, node=node)
        segments = (*_path(project), "folders")
        return self._connection.fetch(WorkspaceEntry, "PUT", *segments, body=body)

    def move(
        self,
        path: str,
        target: str,
        *,
        project: str,
        area: WorkspaceArea = "shared",
        node: str = "",
    ) -> WorkspaceEntry:
        """Rename or move a file or folder within its area. Raises Conflict if `target` exists."""
        body = build(WorkspaceMoveIn, path=path, target=target, area=area, node=node)
        return self._connection.fetch(WorkspaceEntry, "PATCH", *_path(project), body=body)

    def delete(
        self, path: str, *, project: str, area: WorkspaceArea = "shared", node: str = ""
    ) -> None:
        """Delete a file, or a folder with all that is in it. This cannot be undone."""
        self._connection.send("DELETE", *_path(project), query=_place(path, area, node))


def _path(project: str) -> tuple[str, str, str]:
    return ("projects", project, "workspace-files")


def _place(path: str, area: WorkspaceArea, node: str) -> dict[str, str | None]:
    return {"path": path, "area": area, "node": node or None}
