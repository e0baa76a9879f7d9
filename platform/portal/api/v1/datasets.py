"""Datasets and drafts of versions."""

from typing import Annotated

from django.http import HttpRequest
from ninja import Query, Router, Status
from pydantic import BaseModel, Field

from portal.accounts.gates import ProjectRole, gated_project
from portal.accounts.principal import require_principal
from portal.api.routing import gate
from portal.api.uploads import body_of
from portal.api.v1.dataset_serializers import dataset_out, file_out, version_out
from portal.api.v1.serializers import PageParameters, SearchParameters, page_of
from portal.core.pagination import paginate, paginate_sorted
from portal.core.streams import release_connection
from portal.datasets.gates import DatasetRole, VersionRole, gated_dataset, gated_version
from portal.datasets.models import Dataset, Version
from portal.datasets.services import datasets as dataset_services
from portal.datasets.services.datasets import (
    delete_version,
    describe_dataset,
    restore_version,
)
from portal.datasets.services.drafts import (
    accept_pieces,
    append_piece,
    commit_draft,
    declare_files,
    open_draft,
)
from slipway.schemas.accounts import Role, Scope
from slipway.schemas.base import Line, PageOf
from slipway.schemas.datasets import (
    MAX_FILE_BYTES,
    CommitIn,
    DataFileOut,
    DatasetEdit,
    DatasetIn,
    DatasetOut,
    DatasetVersionOut,
    DraftIn,
    FilesIn,
    MissingPieces,
    PiecesStored,
    UploadProgress,
)

router = Router(tags=["Datasets"])
_SEE = ProjectRole(Role.VIEWER, Scope.FILES_READ)
_WRITE = ProjectRole(Role.CONTRIBUTOR, Scope.FILES_WRITE)
_SEE_DATASET = DatasetRole(Role.VIEWER, Scope.FILES_READ)
_WRITE_DATASET = DatasetRole(Role.CONTRIBUTOR, Scope.FILES_WRITE)
_RESTORE_DATASET = DatasetRole(Role.CONTRIBUTOR, Scope.FILES_WRITE, deleted=True)
_SEE_VERSION = VersionRole(Role.VIEWER, Scope.FILES_READ)
_WRITE_VERSION = VersionRole(Role.CONTRIBUTOR, Scope.FILES_WRITE)
_RESTORE_VERSION = VersionRole(Role.CONTRIBUTOR, Scope.FILES_WRITE, deleted=True)
_OCTETS = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}


class AppendQuery(BaseModel):
    """Offset of the next bytes of `path`, a file of `size_bytes`."""

    path: Annotated[Line, Field(min_length=1, max_length=1000)]
    offset: int = Field(ge=0, le=MAX_FILE_BYTES)
    size_bytes: int = Field(ge=0, le=MAX_FILE_BYTES)


def _shown(dataset: Dataset) -> DatasetOut:
    return dataset_out(Dataset.objects.of_project(dataset.project).with_totals().get(pk=dataset.pk))


@router.get("/projects/{project}/datasets", auth=gate(_SEE), response=PageOf[DatasetOut])
def list_datasets(
    request: HttpRequest, project: str, query: SearchParameters
) -> PageOf[DatasetOut]:
    """List the project's datasets, newest first."""
    datasets = Dataset.objects.of_project(gated_project(request)).current().matching(query.q)
    return page_of(
        paginate(datasets.with_totals(), cursor=query.cursor, limit=query.limit), dataset_out
    )


@router.post("/projects/{project}/datasets", auth=gate(_WRITE), response={201: DatasetOut})
def create_dataset(request: HttpRequest, project: str, payload: DatasetIn) -> Status[DatasetOut]:
    """Create an empty dataset."""
    made = dataset_services.create_dataset(
        project=gated_project(request),
        by=require_principal(request).user,
        name=payload.name,
        description=payload.description,
    )
    return Status(201, _shown(made))


@router.get("/projects/{project}/datasets/{dataset}", auth=gate(_SEE_DATASET), response=DatasetOut)
def get_dataset(request: HttpRequest, project: str, dataset: str) -> DatasetOut:
    """Get a dataset."""
    return _shown(gated_dataset(request))


@router.patch(
    "/projects/{project}/datasets/{dataset}", auth=gate(_WRITE_DATASET), response=DatasetOut
)
def update_dataset(
    request: HttpRequest, project: str, dataset: str, payload: DatasetEdit
) -> DatasetOut:
    """Change the description of a dataset."""
    changed = describe_dataset(dataset=gated_dataset(request), description=payload.description)
    return _shown(changed)


@router.delete(
    "/projects/{project}/datasets/{dataset}", auth=gate(_WRITE_DATASET), response={204: None}
)
def delete_dataset(request: HttpRequest, project: str, dataset: str) -> Status[None]:
    """Delete a dataset with its versions. It can be restored for three days."""
    dataset_services.delete_dataset(dataset=gated_dataset(request))
    return Status(204, None)


@router.post(
    "/projects/{project}/datasets/{dataset}/restore",
    auth=gate(_RESTORE_DATASET),
    response=DatasetOut,
)
def restore_dataset(request: HttpRequest, project: str, dataset: str) -> DatasetOut:
    """Restore a deleted dataset."""
    return _shown(dataset_services.restore_dataset(dataset=gated_dataset(request)))


@router.post(
    "/projects/{project}/datasets/{dataset}/pieces",
    auth=gate(_WRITE_DATASET),
    response=PiecesStored,
    openapi_extra=_OCTETS,
)
def upload_dataset_pieces(request: HttpRequest, project: str, dataset: str) -> PiecesStored:
    """Upload pieces that drafts of the project miss, as frames, at most 32 MiB.

    A frame is the 32 bytes of a piece's SHA-256, its length as 8 bytes (big endian), its bytes.
    """
    project_row, user = gated_dataset(request).project, require_principal(request).user
    release_connection()
    kept, size_bytes = accept_pieces(project=project_row, by=user, chunks=body_of(request))
    return PiecesStored(kept=kept, size_bytes=size_bytes)


@router.get(
    "/projects/{project}/datasets/{dataset}/versions",
    auth=gate(_SEE_DATASET),
    response=PageOf[DatasetVersionOut],
)
def list_dataset_versions(
    request: HttpRequest, project: str, dataset: str, query: PageParameters
) -> PageOf[DatasetVersionOut]:
    """List the ready versions, newest first."""
    versions = Version.objects.ready().complete().filter(dataset=gated_dataset(request))
    return page_of(paginate(versions, cursor=query.cursor, limit=query.limit), version_out)


@router.post(
    "/projects/{project}/datasets/{dataset}/versions",
    auth=gate(_WRITE_DATASET),
    response={201: DatasetVersionOut},
)
def create_dataset_version(
    request: HttpRequest, project: str, dataset: str, payload: DraftIn
) -> Status[DatasetVersionOut]:
    """Create a draft of a version. It has only an id until it is committed and checked."""
    by = require_principal(request).user
    draft = open_draft(dataset=gated_dataset(request), by=by, note=payload.note)
    return Status(201, version_out(draft))


@router.get(
    "/projects/{project}/datasets/{dataset}/versions/{version}",
    auth=gate(_SEE_VERSION),
    response=DatasetVersionOut,
)
def get_dataset_version(
    request: HttpRequest, project: str, dataset: str, version: str
) -> DatasetVersionOut:
    """Get a version by its number, `latest`, or the id of a draft."""
    return version_out(gated_version(request))


@router.delete(
    "/projects/{project}/datasets/{dataset}/versions/{version}",
    auth=gate(_WRITE_VERSION),
    response={204: None},
)
def delete_dataset_version(
    request: HttpRequest, project: str, dataset: str, version: str
) -> Status[None]:
    """Delete a version, which can be restored for three days, or a draft for good."""
    delete_version(version=gated_version(request))
    return Status(204, None)


@router.post(
    "/projects/{project}/datasets/{dataset}/versions/{version}/restore",
    auth=gate(_RESTORE_VERSION),
    response=DatasetVersionOut,
)
def restore_dataset_version(
    request: HttpRequest, project: str, dataset: str, version: str
) -> DatasetVersionOut:
    """Restore a deleted version."""
    return version_out(restore_version(version=gated_version(request)))


@router.get(
    "/projects/{project}/datasets/{dataset}/versions/{version}/files",
    auth=gate(_SEE_VERSION),
    response=PageOf[DataFileOut],
)
def list_dataset_files(
    request: HttpRequest, project: str, dataset: str, version: str, query: SearchParameters
) -> PageOf[DataFileOut]:
    """List the files of a version by path. `q` searches in the paths."""
    files = gated_version(request).entries.files()
    if query.q:
        files = files.filter(path__icontains=query.q)
    page = paginate_sorted(files, order="path", cursor=query.cursor, limit=query.limit)
    return page_of(page, file_out)


@router.post(
    "/projects/{project}/datasets/{dataset}/versions/{version}/files",
    auth=gate(_WRITE_VERSION),
    response=MissingPieces,
)
def add_dataset_files(
    request: HttpRequest, project: str, dataset: str, version: str, payload: FilesIn
) -> MissingPieces:
    """Add files to a draft. The response lists the pieces to upload."""
    missing = declare_files(draft=gated_version(request), files=payload.files)
    return MissingPieces(missing=missing)


@router.post(
    "/projects/{project}/datasets/{dataset}/versions/{version}/append",
    auth=gate(_WRITE_VERSION),
    response=UploadProgress,
    openapi_extra=_OCTETS,
)
def append_to_dataset_file(
    request: HttpRequest, project: str, dataset: str, version: str, query: Query[AppendQuery]
) -> UploadProgress:
    """Upload the next 16 MiB of a file of a draft, without knowing its digest in advance.

    Offset 0 starts the file again. A 409 `wrong_offset` contains the expected offset.
    """
    draft, user = gated_version(request), require_principal(request).user
    arrived = append_piece(
        draft=draft,
        by=user,
        path=query.path,
        offset=query.offset,
        size_bytes=query.size_bytes,
        chunks=body_of(request),
    )
    return UploadProgress(path=query.path, received_bytes=arrived, size_bytes=query.size_bytes)


@router.post(
    "/projects/{project}/datasets/{dataset}/versions/{version}/commit",
    auth=gate(_WRITE_VERSION),
    response=DatasetVersionOut,
)
def commit_dataset_version(
    request: HttpRequest, project: str, dataset: str, version: str, payload: CommitIn
) -> DatasetVersionOut:
    """Commit a draft. After checks it gets its number, or is refused with the reason."""
    draft = commit_draft(
        draft=gated_version(request),
        allow_bad_rows=payload.allow_bad_rows,
        settings=payload.settings,
    )
    return version_out(draft)
