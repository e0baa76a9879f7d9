"""Contents of a dataset version: files, tables, differences, uses."""

from collections.abc import Iterable
from typing import Annotated

from django.http import HttpRequest, HttpResponse
from django.utils.http import content_disposition_header
from ninja import Query, Router
from pydantic import BaseModel, Field

from portal.accounts.principal import require_principal
from portal.api.routing import gate
from portal.api.v1.dataset_serializers import preview_out, table_out, use_out
from portal.api.v1.serializers import ListParameters, announce_rest
from portal.core.errors import InvalidInput, NotFound
from portal.core.streams import ByteStream
from portal.datasets.bytes import archive, content_of, entries_of, join_chunks, manifest
from portal.datasets.differences import difference
from portal.datasets.gates import VersionRole, gated_version, version_of
from portal.datasets.models import Version
from portal.datasets.services.uses import Use, page_of_uses, record_use, with_models
from portal.workloads.models import Workload
from slipway.schemas.accounts import Role, Scope
from slipway.schemas.base import Line
from slipway.schemas.datasets import (
    MAX_FILE_BYTES,
    DataTableOut,
    DifferenceOut,
    PreviewOut,
    Sha256,
    UseIn,
    UseOut,
    VersionState,
)

router = Router(tags=["Datasets"])
_SEE = VersionRole(Role.VIEWER, Scope.FILES_READ)
_USE = VersionRole(Role.CONTRIBUTOR, Scope.FILES_READ)
_AT = "/projects/{project}/datasets/{dataset}/versions/{version}"
_BYTES = {"schema": {"type": "string", "format": "binary"}}


def _answer(kind: str) -> dict[str, object]:
    return {"responses": {200: {"description": "The bytes", "content": {kind: _BYTES}}}}


class DatasetContentQuery(BaseModel):
    """Path of the file, and offset of the first byte."""

    path: Annotated[Line, Field(min_length=1, max_length=1000)]
    offset: int = Field(default=0, ge=0, le=MAX_FILE_BYTES)


class ArchiveQuery(BaseModel):
    """Files after the given key (the SHA-256 of a path) that are smaller than the limit."""

    after: Sha256 | None = None
    below_bytes: int | None = Field(default=None, ge=1, le=MAX_FILE_BYTES)


class PreviewQuery(BaseModel):
    """Table (by default the first), and range of rows."""

    table: Annotated[Line, Field(max_length=1000)] = ""
    offset: int = Field(default=0, ge=0, le=100_000)
    limit: int = Field(default=50, ge=1, le=200)


class SinceQuery(BaseModel):
    """The version to compare with, by default the previous one."""

    since: int | None = Field(default=None, ge=1, le=999_999_999)


@router.get(
    f"{_AT}/manifest",
    auth=gate(_SEE),
    response=None,
    openapi_extra=_answer("application/x-ndjson"),
)
def download_dataset_manifest(
    request: HttpRequest, project: str, dataset: str, version: str
) -> ByteStream:
    """Stream every file with its digest and pieces, one line of JSON each, sorted by key."""
    return _streamed(manifest(gated_version(request)), "application/x-ndjson")


@router.get(
    f"{_AT}/content",
    auth=gate(_SEE),
    response=None,
    openapi_extra=_answer("application/octet-stream"),
)
def download_dataset_file(
    request: HttpRequest,
    project: str,
    dataset: str,
    version: str,
    query: Query[DatasetContentQuery],
) -> ByteStream:
    """Download one file from an offset. Each piece is verified."""
    file = entries_of(gated_version(request), query.path)
    size = file[0].size_bytes
    if query.offset > size:
        raise InvalidInput(
            f"The file has {size} bytes.", field="offset", next_step="Ask for a smaller offset."
        )
    answer = _streamed(content_of(file, offset=query.offset), "application/octet-stream")
    answer.headers["Content-Length"] = str(size - query.offset)
    name = query.path.rpartition("/")[2]
    answer.headers["Content-Disposition"] = (
        content_disposition_header(as_attachment=True, filename=name) or "attachment"
    )
    return answer


@router.get(
    f"{_AT}/archive", auth=gate(_SEE), response=None, openapi_extra=_answer("application/x-tar")
)
def download_dataset_archive(
    request: HttpRequest, project: str, dataset: str, version: str, query: Query[ArchiveQuery]
) -> ByteStream:
    """Download the files as a tar, sorted by key. Continue with `after`."""
    version_row = gated_version(request)
    chunks = archive(version_row, after=query.after or "", below_bytes=query.below_bytes)
    return _streamed(chunks, "application/x-tar")


def _streamed(chunks: Iterable[bytes], kind: str) -> ByteStream:
    answer = ByteStream(join_chunks(chunks), content_type=kind)
    answer.headers["Cache-Control"] = "private, no-store"
    return answer


@router.get(f"{_AT}/tables", auth=gate(_SEE), response=list[DataTableOut])
def list_dataset_tables(
    request: HttpRequest, project: str, dataset: str, version: str
) -> list[DataTableOut]:
    """List the tables of a version with their schema and statistics."""
    tables = gated_version(request).tables.defer("preview").order_by("name")
    return [table_out(table) for table in tables]


@router.get(f"{_AT}/preview", auth=gate(_SEE), response=PreviewOut)
def preview_dataset_table(
    request: HttpRequest, project: str, dataset: str, version: str, query: Query[PreviewQuery]
) -> PreviewOut:
    """Get the first rows of a table. The first 200 are stored."""
    tables = gated_version(request).tables.order_by("name")
    table = tables.filter(name=query.table).first() if query.table else tables.first()
    if table is None:
        raise NotFound(
            "There is no such table in this version.",
            next_step="List its tables, or leave the table out for the first one.",
        )
    rows = table.preview[query.offset : query.offset + query.limit]
    return preview_out(table, rows, query.offset)


@router.get(f"{_AT}/changes", auth=gate(_SEE), response=DifferenceOut)
def compare_dataset_versions(
    request: HttpRequest, project: str, dataset: str, version: str, query: Query[SinceQuery]
) -> DifferenceOut:
    """Compare a version with an earlier one: files, tables, columns, distributions."""
    version_row = gated_version(request)
    return difference(since=since_of(version_row, query.since), version=version_row)


def since_of(version: Version, number: int | None) -> Version:
    """Return the version to compare with: the given or the previous one. Raises NotFound."""
    if number is not None:
        since = version_of(version.dataset, str(number))
    else:
        ready = Version.objects.ready().complete().filter(dataset=version.dataset)
        since = ready.filter(number__lt=version.number or 0).order_by("-number").first()
    if since is None:
        raise NotFound(
            "There is no earlier version to compare with.",
            next_step="Name another version in `since`, or add a version to the dataset first.",
        )
    return since


@router.get(f"{_AT}/uses", auth=gate(_SEE), response=list[UseOut])
def list_dataset_uses(
    request: HttpRequest,
    response: HttpResponse,
    project: str,
    dataset: str,
    version: str,
    query: ListParameters,
) -> list[UseOut]:
    """List the jobs and runs that read a version, and the models they produced.

    The header `X-Slipway-Next-Cursor` is present if there are more. Pass it as `cursor`.
    """
    gated = gated_version(request)
    page = page_of_uses(gated, cursor=query.cursor, limit=query.limit)
    uses = with_models(announce_rest(response, page).items, gated.dataset.project_id)
    return [use_out(use) for use in uses]


@router.post(f"{_AT}/uses", auth=gate(_USE), response=UseOut)
def record_dataset_use(
    request: HttpRequest, project: str, dataset: str, version: str, payload: UseIn
) -> UseOut:
    """Record that a job (identified by its token), an MLflow run, or both read a version."""
    principal, version_row = require_principal(request), gated_version(request)
    if version_row.state != VersionState.READY:
        raise NotFound(
            "Only ready versions can be read.",
            next_step="Commit the draft and wait for its checks, or read an earlier version.",
        )
    workload = None
    if principal.token is not None:
        workloads = Workload.objects.filter(project=version_row.dataset.project)
        workload = workloads.filter(pk=principal.token.pk).first()
    row = record_use(
        version=version_row, by=principal.user, workload=workload, run_id=payload.run or ""
    )
    return use_out(Use(row, []))
