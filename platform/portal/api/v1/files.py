"""Files: upload, download, list, link, delete."""

from datetime import timedelta
from typing import Any

import orjson
from django.conf import settings
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.http import content_disposition_header, urlencode
from ninja import Query, Router, Status
from pydantic import BaseModel

from portal.accounts.gates import ProjectRole, gated_project
from portal.accounts.models import Project
from portal.accounts.principal import require_principal
from portal.api import idempotency
from portal.api.problems import plain_problem
from portal.api.routing import gate
from portal.api.uploads import body_of
from portal.api.v1.serializers import SearchParameters, page_of, user_out
from portal.core.errors import InvalidInput, SlipwayError
from portal.core.pagination import paginate
from portal.core.ranges import Unsatisfiable, part_of
from portal.core.streams import ByteStream, release_connection
from portal.storage import services
from portal.storage.digests import sha256_from, structured
from portal.storage.gates import LINK_PARAMETER, FileRole, UploadLink, gated_file, gated_grant
from portal.storage.models import StoredFile
from portal.storage.ports import StoredBytes, UploadDeclaration
from portal.storage.services import (
    add_file,
    clean_file_name,
    discard_bytes,
    link_to_download,
    link_to_upload,
    open_file,
    receive_bytes,
)
from portal.storage.signing import SignedLink
from slipway.schemas.accounts import Role, Scope
from slipway.schemas.base import PageOf
from slipway.schemas.files import DownloadLinkIn, FileName, FileOut, LinkOut, UploadLinkIn

router = Router(tags=["Files"])
_DIGEST_HEADERS = ("X-Slipway-Sha256", "Content-Digest", "Repr-Digest")
_BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}
_CONTENT = {
    "responses": {
        200: {
            "description": "The bytes",
            "content": {
                "application/octet-stream": {"schema": {"type": "string", "format": "binary"}}
            },
        }
    }
}


class UploadQuery(BaseModel):
    """Name of the new file."""

    name: FileName


class ContentQuery(BaseModel):
    """A link replaces a token or a session."""

    link: str | None = None


def file_out(file: StoredFile) -> FileOut:
    return FileOut(
        id=file.pk,
        project=file.project.slug,
        name=file.name,
        size_bytes=file.blob.size_bytes,
        sha256=file.blob.sha256,
        created_at=file.created_at,
        created_by=user_out(file.created_by),
    )


def promised_by(request: HttpRequest) -> UploadDeclaration:
    """Return the declared size and digest from the headers."""
    sha256s = {
        sha256_from(request.headers[name], field=name)
        for name in _DIGEST_HEADERS
        if name in request.headers
    }
    if len(sha256s) > 1:
        raise InvalidInput(
            "The headers declare different digests.",
            code="invalid_digest",
            field=_DIGEST_HEADERS[0],
            next_step="Send one of them.",
        )
    length = request.META.get("CONTENT_LENGTH") or ""
    return UploadDeclaration(
        sha256=sha256s.pop() if sha256s else None,
        size_bytes=int(length) if length.isdigit() else None,
    )


def _keep(
    request: HttpRequest, project: Project, name: str, stored: StoredBytes, file_id: str | None
) -> HttpResponse:
    """Commit the file together with the response under its Idempotency-Key, if any."""
    principal = require_principal(request)
    key = idempotency.key_of(request)
    with transaction.atomic():
        record = None
        if key is not None:
            fingerprint = idempotency.fingerprint_of(request, stored.sha256.encode())
            record, fresh = idempotency.claim(principal.key, key, fingerprint)
            if not fresh:
                transaction.on_commit(lambda: discard_bytes(stored))
                return idempotency.replay(record)
        file = add_file(
            project=project, by=principal.user, name=name, stored=stored, file_id=file_id
        )
        shown = orjson.dumps(file_out(file).model_dump())
        answer = HttpResponse(shown, status=201, content_type="application/json")
        if record is not None:
            idempotency.remember(record, answer)
        return answer


def _take(
    request: HttpRequest, project: Project, name: str, file_id: str | None = None
) -> HttpResponse:
    name = clean_file_name(name)
    release_connection()
    stored = receive_bytes(chunks=body_of(request), promised=promised_by(request))
    try:
        return _keep(request, project, name, stored, file_id)
    except SlipwayError:
        discard_bytes(stored)
        raise


@router.post(
    "/projects/{project}/files",
    auth=gate(ProjectRole(Role.CONTRIBUTOR, Scope.FILES_WRITE)),
    response={201: FileOut},
    openapi_extra=_BODY,
)
def upload_file(request: HttpRequest, project: str, query: Query[UploadQuery]) -> HttpResponse:
    """Upload a file. The body is its bytes, of type application/octet-stream.

    Declare the SHA-256 in X-Slipway-Sha256 (hex) or Content-Digest (RFC 9530) to have the bytes
    verified.
    """
    return _take(request, gated_project(request), query.name)


@router.get(
    "/projects/{project}/files",
    auth=gate(ProjectRole(Role.VIEWER, Scope.FILES_READ)),
    response=PageOf[FileOut],
)
def list_files(request: HttpRequest, project: str, query: SearchParameters) -> PageOf[FileOut]:
    """List the project's files, newest first."""
    stored_files = StoredFile.objects.filter(project=gated_project(request)).matching(query.q)
    stored_files = stored_files.select_related("project", "blob", "created_by")
    return page_of(paginate(stored_files, cursor=query.cursor, limit=query.limit), file_out)


@router.post(
    "/projects/{project}/files/signed-url",
    auth=gate(ProjectRole(Role.CONTRIBUTOR, Scope.FILES_WRITE)),
    response={201: LinkOut},
)
def create_upload_link(
    request: HttpRequest, project: str, payload: UploadLinkIn
) -> Status[LinkOut]:
    """Create a link that uploads one file, once, without a token."""
    link = link_to_upload(
        project=gated_project(request),
        by=require_principal(request),
        name=payload.name,
        lifetime=timedelta(seconds=payload.expires_in_seconds),
    )
    return Status(201, _link_out(link))


@router.get(
    "/files/{file_id}", auth=gate(FileRole(Role.VIEWER, Scope.FILES_READ)), response=FileOut
)
def get_file(request: HttpRequest, file_id: str) -> FileOut:
    """Get a file."""
    return file_out(gated_file(request))


@router.delete(
    "/files/{file_id}",
    auth=gate(FileRole(Role.CONTRIBUTOR, Scope.FILES_WRITE)),
    response={204: None},
)
def delete_file(request: HttpRequest, file_id: str) -> Status[None]:
    """Delete a file. Its bytes are freed a day later, if no other file uses them."""
    services.delete_file(file=gated_file(request))
    return Status(204, None)


@router.post(
    "/files/{file_id}/signed-url",
    auth=gate(FileRole(Role.VIEWER, Scope.FILES_READ)),
    response={201: LinkOut},
)
def create_download_link(
    request: HttpRequest, file_id: str, payload: DownloadLinkIn
) -> Status[LinkOut]:
    """Create a link that downloads the file without a token."""
    link = link_to_download(
        file=gated_file(request),
        by=require_principal(request),
        lifetime=timedelta(seconds=payload.expires_in_seconds),
    )
    return Status(201, _link_out(link))


@router.get(
    "/files/{file_id}/content",
    auth=gate(FileRole(Role.VIEWER, Scope.FILES_READ, linked=True)),
    response=None,
    openapi_extra=_CONTENT,
)
def download_file(
    request: HttpRequest, file_id: str, query: Query[ContentQuery]
) -> HttpResponse | ByteStream:
    """Download the bytes, or a range of them. A full download is verified."""
    file = gated_file(request)
    etag = f'"{file.blob.sha256}"'
    size_bytes = file.blob.size_bytes
    requested = request.headers.get("Range")
    if request.headers.get("If-Range", etag) != etag:
        requested = None
    try:
        part = part_of(requested, size_bytes)
    except Unsatisfiable:
        answer = plain_problem(request, 416, f"The file has {size_bytes} bytes.")
        answer.headers["Content-Range"] = f"bytes */{size_bytes}"
        return answer
    if part is None:
        stream = ByteStream(open_file(file=file))
        stream.headers["Content-Length"] = str(size_bytes)
    else:
        stream = ByteStream(open_file(file=file, start=part.start, length=part.length), status=206)
        last = part.start + part.length - 1
        stream.headers["Content-Range"] = f"bytes {part.start}-{last}/{size_bytes}"
        stream.headers["Content-Length"] = str(part.length)
    # Never shown in the portal's own pages, whatever the bytes claim to be.
    stream.headers["Content-Type"] = "application/octet-stream"
    stream.headers["Content-Disposition"] = _attachment(file.name)
    stream.headers["Cache-Control"] = "private, no-store"
    stream.headers["Accept-Ranges"] = "bytes"
    stream.headers["ETag"] = etag
    stream.headers["Repr-Digest"] = structured(file.blob.sha256)
    return stream


@router.put(
    "/files/{file_id}/content",
    auth=gate(UploadLink(Role.CONTRIBUTOR, Scope.FILES_WRITE)),
    response={201: FileOut},
    openapi_extra=_BODY,
)
def upload_file_by_link(
    request: HttpRequest, file_id: str, query: Query[ContentQuery]
) -> HttpResponse:
    """Upload a file by a link."""
    return _take(request, gated_project(request), gated_grant(request).name, file_id)


def _attachment(name: str) -> str:
    return content_disposition_header(as_attachment=True, filename=name) or "attachment"


def _link_out(link: SignedLink) -> LinkOut:
    grant = link.grant
    path: Any = reverse("api:download_file", kwargs={"file_id": grant.file_id})
    return LinkOut(
        url=f"{settings.SLIPWAY_URL}{path}?{urlencode({LINK_PARAMETER: link.text})}",
        method=grant.method,
        file_id=grant.file_id,
        expires_at=grant.expires_at,
    )
