"""Files of notebook workspaces, on the disks of nodes."""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from slipway.connection import Connection, Download
from slipway.errors import Conflict, Forbidden, InvalidInput, NotFound, TooLarge
from slipway.resources.folder_uploads import FolderUpload, LeftOut, entries_of
from slipway.resources.requests import build
from slipway.schemas.workspace_files import (
    MOST_LISTED,
    ListOrder,
    WorkspaceArea,
    WorkspaceEntry,
    WorkspaceFolder,
    WorkspaceFolderIn,
    WorkspaceMoveIn,
    check_new_path,
)

_BLOCK = 1024**2
# Refusals that concern one file. Others, such as a full disk, end the upload of a folder.
_CODES_OF_A_FILE = frozenset(
    {
        *("exists", "file_permissions", "file_too_large", "invalid", "invalid_input"),
        *("is_link", "not_found", "special"),
    }
)


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
        parents: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> WorkspaceEntry:
        """Write the file `source` of this machine to `path`. Raises Conflict if it exists.

        `replace` replaces an existing file as a whole, `parents` creates missing folders above it.
        `progress` receives the number of bytes sent.
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
        query = {
            **_place(path, area, node),
            "replace": "true" if replace else None,
            "parents": "true" if parents else None,
        }
        return self._connection.upload(
            WorkspaceEntry,
            *_path(project),
            "content",
            content=content,
            progress=progress,
            query={name: value for name, value in query.items() if value is not None},
        )

    def upload_folder(
        self,
        source: str | os.PathLike[str],
        path: str,
        *,
        project: str,
        area: WorkspaceArea = "shared",
        node: str = "",
        replace: bool = False,
        hidden: bool = False,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> FolderUpload:
        """Write the files below the folder `source` of this machine to the folder `path`.

        Missing folders are created. Existing files are left out unless `replace` replaces them,
        names that begin with a dot unless `hidden` includes them, links always; `left_out` of the
        result lists them with reasons. `progress` receives the path of a file below `source`, the
        number of bytes sent and its size. Raises SlipwayError when nothing more can be sent.
        """
        folder, target = Path(source), path.strip("/")
        try:
            check_new_path(target)
        except ValueError as error:
            raise InvalidInput(
                f"path: {error}.", field="path", next_step="Choose another folder."
            ) from error
        result = FolderUpload()
        for entry in entries_of(folder, target, hidden=hidden):
            if entry.reason:
                result.left_out.append(LeftOut(entry.path, entry.reason))
                continue
            name = f"{target}/{entry.path}"
            try:
                if entry.is_folder:
                    self.make_folder(name, project=project, area=area, node=node, parents=True)
                    continue
                stored = self.upload(
                    entry.file,
                    name,
                    project=project,
                    area=area,
                    node=node,
                    replace=replace,
                    parents=True,
                    progress=_progress_of(entry.file, entry.path, progress),
                )
            except (Conflict, Forbidden, InvalidInput, NotFound, TooLarge) as error:
                # Without any file stored, it may be the project or node that does not exist.
                is_first = error.code == "not_found" and not result.uploaded
                if is_first or error.code not in _CODES_OF_A_FILE:
                    raise
                result.left_out.append(LeftOut(entry.path, error.message))
            else:
                result.uploaded.append(stored)
        return result

    def make_folder(
        self,
        path: str,
        *,
        project: str,
        area: WorkspaceArea = "shared",
        node: str = "",
        parents: bool = False,
    ) -> WorkspaceEntry:
        """Create a folder in an existing one. Raises Conflict if it exists.

        With `parents` it may exist, and missing folders above it are created.
        """
        body = build(WorkspaceFolderIn, path=path, area=area, node=node, parents=parents)
        segments = (*_path(project), "folders")
        return self._connection.fetch(WorkspaceEntry, "PUT", *segments, body=body)

    def move(
        self,
        path: str,
        target: str,
        *,
        project: str,
        area: WorkspaceArea = "shared",
        target_area: WorkspaceArea | None = None,
        node: str = "",
        replace: bool = False,
    ) -> WorkspaceEntry:
        """Rename or move a file or folder. `target_area` moves it to the other area of its node.

        Raises Conflict if `target` exists, unless `replace` lets a file replace a file.
        """
        body = build(
            WorkspaceMoveIn,
            path=path,
            target=target,
            area=area,
            target_area=target_area,
            node=node,
            replace=replace,
        )
        return self._connection.fetch(WorkspaceEntry, "PATCH", *_path(project), body=body)

    def delete(
        self, path: str, *, project: str, area: WorkspaceArea = "shared", node: str = ""
    ) -> None:
        """Delete a file, or a folder with all that is in it. This cannot be undone."""
        self._connection.send("DELETE", *_path(project), query=_place(path, area, node))


def _progress_of(
    file: Path, path: str, progress: Callable[[str, int, int], None] | None
) -> Callable[[int], None] | None:
    if progress is None:
        return None
    size = file.stat().st_size
    return lambda sent: progress(path, sent, size)


def _path(project: str) -> tuple[str, str, str]:
    return ("projects", project, "workspace-files")


def _place(path: str, area: WorkspaceArea, node: str) -> dict[str, str | None]:
    return {"path": path, "area": area, "node": node or None}
