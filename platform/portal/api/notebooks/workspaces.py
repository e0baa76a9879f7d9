"""Operations on the files of workspaces, which are on nodes.

Agents answer them, and see only what is committed. So changes are PUT and PATCH: a POST with an
`Idempotency-Key` would run in one transaction with its record.
"""

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router, Status
from pydantic import BaseModel, Field

from portal.accounts.gates import gated_project
from portal.accounts.principal import require_principal
from portal.api.routing import gate
from portal.api.uploads import body_of
from portal.core.streams import private_download, release_connection
from portal.notebooks.gates import WorkspaceMember
from portal.notebooks.services import workspaces
from portal.notebooks.services.workspace_places import Workspace, workspace_of
from portal.notebooks.services.workspaces import FileDownload
from slipway.schemas.accounts import Scope
from slipway.schemas.workspace_files import (
    MOST_LISTED,
    EntryPath,
    FolderPath,
    ListOrder,
    NewPath,
    WorkspaceArea,
    WorkspaceEntry,
    WorkspaceFolder,
    WorkspaceFolderIn,
    WorkspaceMoveIn,
)

router = Router(tags=["Workspace files"])
_READ = WorkspaceMember(Scope.FILES_READ)
_CHANGE = WorkspaceMember(Scope.FILES_WRITE)
_ALL = "/projects/{project}/workspace-files"
_BYTES = {"schema": {"type": "string", "format": "binary"}}
_UP = {"requestBody": {"required": True, "content": {"application/octet-stream": _BYTES}}}
_DOWN = {
    "responses": {
        200: {
            "description": "The file, or the folder as a zip",
            "content": {"application/octet-stream": _BYTES, "application/zip": _BYTES},
        }
    }
}


class PlaceQuery(BaseModel):
    """`area` is `shared` or `personal`. `node` is a name, by default the newest server's."""

    area: WorkspaceArea = "shared"
    node: str = Field(default="", max_length=48)


class WorkspaceFolderQuery(PlaceQuery):
    """A part of a folder. `hidden` includes names that begin with a dot."""

    path: FolderPath = ""
    order: ListOrder = "name"
    search: str = Field(default="", max_length=100)
    hidden: bool = False
    offset: int = Field(default=0, ge=0, le=10**9)
    limit: int = Field(default=MOST_LISTED, ge=1, le=MOST_LISTED)


class DownloadQuery(PlaceQuery):
    """A file, or a folder to get as a zip. `hidden` includes hidden files in it."""

    path: FolderPath = ""
    hidden: bool = False


class EntryQuery(PlaceQuery):
    """A file or folder."""

    path: EntryPath


class WorkspaceUploadQuery(PlaceQuery):
    """The file to write. `replace` replaces an existing one, `parents` creates its folders."""

    path: NewPath
    replace: bool = False
    parents: bool = False


def _workspace(request: HttpRequest, area: WorkspaceArea, node: str) -> Workspace:
    person = require_principal(request).user
    return workspace_of(project=gated_project(request), person=person, area=area, node=node)


def download_answer(download: FileDownload) -> HttpResponse:
    """Return a file as a download. Browsers never show it as a page."""
    return private_download(  # type: ignore[return-value]
        download.pieces,
        name=download.name,
        content_type=download.content_type,
        size_bytes=download.size_bytes,
    )


@router.get(_ALL, auth=gate(_READ), response=WorkspaceFolder)
def list_workspace_folder(
    request: HttpRequest, project: str, query: Query[WorkspaceFolderQuery]
) -> WorkspaceFolder:
    """List a folder of the workspace, folders first. Links are shown and never followed."""
    workspace = _workspace(request, query.area, query.node)
    return workspaces.list_folder(workspace, **query.model_dump(exclude={"area", "node"}))


@router.get(f"{_ALL}/content", auth=gate(_READ), response=None, openapi_extra=_DOWN)
def download_workspace_file(
    request: HttpRequest, project: str, query: Query[DownloadQuery]
) -> HttpResponse:
    """Download a file, or a folder as a zip. At most 2 GiB."""
    workspace = _workspace(request, query.area, query.node)
    return download_answer(
        workspaces.open_download(workspace, path=query.path, hidden=query.hidden)
    )


@router.post(f"{_ALL}/content", auth=gate(_CHANGE), response=WorkspaceEntry, openapi_extra=_UP)
def upload_workspace_file(
    request: HttpRequest, project: str, query: Query[WorkspaceUploadQuery]
) -> WorkspaceEntry:
    """Write a file as a whole. The body is its content, at most 2 GiB."""
    workspace = _workspace(request, query.area, query.node)
    pieces = body_of(request)
    release_connection()
    return workspaces.write_file(
        workspace, path=query.path, pieces=pieces, replace=query.replace, parents=query.parents
    )


@router.put(f"{_ALL}/folders", auth=gate(_CHANGE), response={201: WorkspaceEntry})
def create_workspace_folder(
    request: HttpRequest, project: str, payload: WorkspaceFolderIn
) -> Status[WorkspaceEntry]:
    """Create a folder in an existing one, or with `parents` all that are missing."""
    workspace = _workspace(request, payload.area, payload.node)
    return Status(
        201, workspaces.make_folder(workspace, path=payload.path, parents=payload.parents)
    )


@router.patch(_ALL, auth=gate(_CHANGE), response=WorkspaceEntry)
def move_workspace_entry(
    request: HttpRequest, project: str, payload: WorkspaceMoveIn
) -> WorkspaceEntry:
    """Rename a file or folder, or move it to another folder or to the other area of its node.

    Nothing is overwritten, unless `replace` lets a file replace a file.
    """
    workspace = _workspace(request, payload.area, payload.node)
    return workspaces.move_entry(
        workspace,
        path=payload.path,
        target=payload.target,
        target_area=payload.target_area,
        replace=payload.replace,
    )


@router.delete(_ALL, auth=gate(_CHANGE), response={204: None})
def delete_workspace_entry(
    request: HttpRequest, project: str, query: Query[EntryQuery]
) -> Status[None]:
    """Delete a file, or a folder with all that is in it. This cannot be undone."""
    workspaces.delete_entry(_workspace(request, query.area, query.node), path=query.path)
    return Status(204, None)
