"""Operations on notebook files and their versions."""

from typing import Annotated

from django.http import HttpRequest, HttpResponse
from django.utils.http import content_disposition_header
from ninja import Query, Router, Status
from pydantic import BaseModel, Field

from portal.accounts.gates import ProjectRole, gated_project
from portal.accounts.principal import require_principal
from portal.api.notebooks.file_serializers import notebook_out, version_out
from portal.api.routing import gate
from portal.api.uploads import body_of
from portal.api.v1.serializers import PageParameters, SearchQuery, page_of
from portal.core.errors import InvalidInput, NotFound
from portal.core.pagination import paginate
from portal.core.streams import release_connection
from portal.notebooks.file_gates import NotebookRole, gated_notebook
from portal.notebooks.models import NotebookFile, NotebookVersion
from portal.notebooks.services import files as file_services
from portal.notebooks.services import files_deletion
from portal.notebooks.services.files import (
    branch_version,
    bytes_of,
    read_version,
    restore_version,
    version_of,
)
from slipway.schemas.accounts import Role, Scope
from slipway.schemas.base import PageOf
from slipway.schemas.notebook_files import (
    BranchIn,
    NotebookFileOut,
    NotebookPath,
    NotebookVersionOut,
    RestoreIn,
)

router = Router(tags=["Notebook files"])
_LIST = ProjectRole(Role.VIEWER, Scope.FILES_READ)
_SEE = NotebookRole(Role.VIEWER, Scope.FILES_READ)
_CHANGE = NotebookRole(Role.CONTRIBUTOR, Scope.FILES_WRITE)
_TAKE_BACK = NotebookRole(Role.CONTRIBUTOR, Scope.FILES_WRITE, deleted=True)
_BYTES = {"schema": {"type": "string", "format": "binary"}}
_UP = {"requestBody": {"required": True, "content": {"application/octet-stream": _BYTES}}}
NOTEBOOK_TYPE = "application/x-ipynb+json"
DOWN = {"responses": {200: {"description": "The notebook", "content": {NOTEBOOK_TYPE: _BYTES}}}}


class PathQuery(BaseModel):
    """Path of the notebook in the project, such as `reports/churn.ipynb`."""

    path: NotebookPath


class NotebookContentQuery(BaseModel):
    """`outputs=false` omits the outputs."""

    outputs: bool = True


class FilesQuery(SearchQuery):
    """`deleted` lists deleted notebooks that can still be restored."""

    deleted: bool = False


Number = Annotated[int, Field(ge=1, le=2**31 - 1)]


def notebook_answer(content: bytes, path: str) -> HttpResponse:
    """Return a notebook as a download, so that a browser never renders it as a page."""
    answer = HttpResponse(content, content_type=NOTEBOOK_TYPE)
    name = path.rpartition("/")[2]
    answer.headers["Content-Disposition"] = content_disposition_header(True, name) or ""
    answer.headers["Cache-Control"] = "private, no-store"
    answer.headers["X-Content-Type-Options"] = "nosniff"
    return answer


def shown(file: NotebookFile) -> NotebookFileOut:
    """Serialize a notebook after a change."""
    return notebook_out(NotebookFile.objects.of_project(file.project).get(pk=file.pk))


@router.post(
    "/projects/{project}/notebook-files",
    auth=gate(ProjectRole(Role.CONTRIBUTOR, Scope.FILES_WRITE)),
    response=NotebookFileOut,
    openapi_extra=_UP,
)
def save_notebook(request: HttpRequest, project: str, query: Query[PathQuery]) -> NotebookFileOut:
    """Save a notebook as its newest version. The body is the .ipynb, at most 20 MiB.

    Content equal to the newest version creates no new one, so repeating the request is harmless.
    """
    project_row, by = gated_project(request), require_principal(request).user
    release_connection()
    content = bytes_of(body_of(request))
    saved = file_services.save_notebook(
        project=project_row, by=by, path=query.path, content=content
    )
    return shown(saved.version.file)


@router.get(
    "/projects/{project}/notebook-files", auth=gate(_LIST), response=PageOf[NotebookFileOut]
)
def list_notebooks(
    request: HttpRequest, project: str, query: Query[FilesQuery]
) -> PageOf[NotebookFileOut]:
    """List the project's notebooks, newest first, each with its newest version."""
    files_queryset = NotebookFile.objects.of_project(gated_project(request))
    files = (files_queryset.restorable() if query.deleted else files_queryset.current()).matching(
        query.q
    )
    return page_of(paginate(files, cursor=query.cursor, limit=query.limit), notebook_out)


@router.get(
    "/projects/{project}/notebook-files/{notebook}", auth=gate(_SEE), response=NotebookFileOut
)
def get_notebook(request: HttpRequest, project: str, notebook: str) -> NotebookFileOut:
    """Get a notebook."""
    return notebook_out(gated_notebook(request))


@router.delete(
    "/projects/{project}/notebook-files/{notebook}", auth=gate(_CHANGE), response={204: None}
)
def delete_notebook(request: HttpRequest, project: str, notebook: str) -> Status[None]:
    """Delete a notebook with its versions. It can be restored for three days.

    Its file in a workspace remains, and the next save starts a new history.
    """
    files_deletion.delete_notebook(file=gated_notebook(request))
    return Status(204, None)


@router.post(
    "/projects/{project}/notebook-files/{notebook}/undelete",
    auth=gate(_TAKE_BACK),
    response=NotebookFileOut,
)
def undelete_notebook(request: HttpRequest, project: str, notebook: str) -> NotebookFileOut:
    """Restore a deleted notebook."""
    return shown(files_deletion.undelete_notebook(file=gated_notebook(request)))


@router.get(
    "/projects/{project}/notebook-files/{notebook}/versions",
    auth=gate(_SEE),
    response=PageOf[NotebookVersionOut],
)
def list_notebook_versions(
    request: HttpRequest, project: str, notebook: str, page: PageParameters
) -> PageOf[NotebookVersionOut]:
    """List the versions of a notebook, newest first."""
    notebook_versions = NotebookVersion.objects.complete().filter(file=gated_notebook(request))
    return page_of(paginate(notebook_versions, cursor=page.cursor, limit=page.limit), version_out)


@router.get(
    "/projects/{project}/notebook-files/{notebook}/versions/{number}/content",
    auth=gate(_SEE),
    response=None,
    openapi_extra=DOWN,
)
def download_notebook_version(
    request: HttpRequest,
    project: str,
    notebook: str,
    number: Number,
    query: Query[NotebookContentQuery],
) -> HttpResponse:
    """Download a version as the .ipynb that was saved."""
    try:
        version = version_of(gated_notebook(request), number)
    except InvalidInput as error:
        raise NotFound from error
    content = read_version(version, with_outputs=query.outputs)
    return notebook_answer(content, version.file.path)


@router.post(
    "/projects/{project}/notebook-files/{notebook}/restore",
    auth=gate(_CHANGE),
    response=NotebookVersionOut,
)
def restore_notebook_version(
    request: HttpRequest, project: str, notebook: str, payload: RestoreIn
) -> NotebookVersionOut:
    """Restore an old version as the newest one. Versions in between remain."""
    version = version_of(gated_notebook(request), payload.version)
    made = restore_version(version=version, by=require_principal(request).user)
    return version_out(made)


@router.post(
    "/projects/{project}/notebook-files/{notebook}/branch",
    auth=gate(_CHANGE),
    response={201: NotebookFileOut},
)
def branch_notebook(
    request: HttpRequest, project: str, notebook: str, payload: BranchIn
) -> Status[NotebookFileOut]:
    """Create a notebook from a version of this one."""
    version = version_of(gated_notebook(request), payload.version)
    by = require_principal(request).user
    made = branch_version(version=version, path=payload.path, by=by)
    return Status(201, shown(made.file))
