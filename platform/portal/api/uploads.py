"""Requests with a file as their body, and streaming of that body."""

import re
from collections.abc import Iterator

from django.http import HttpRequest, UnreadablePostError

from portal.core.errors import InvalidInput, SlipwayError

UPLOAD_TYPE = "application/octet-stream"
_UPLOADS = {
    "POST": re.compile(
        r"\A/(?:api/v1/projects/[^/]+/(?:files|snapshots|notebook-files"
        r"|workspace-files/content"
        r"|datasets/[^/]+/(?:pieces|versions/[^/]+/append))"
        r"|p/[^/]+/jobs/code)\Z"
    ),
    "PUT": re.compile(
        r"\A/api/(?:v1/(?:files/[^/]+/content"
        r"|projects/[^/]+/notebook-runs/[^/]+/output)"
        r"|agent/v1/(?:(?:logs|checkpoints)/[^/]+/\d+/\d+|file-requests/[^/]+/content))\Z"
    ),
}
_CHUNK_BYTES = 1024 * 1024


class WrongType(SlipwayError):
    status = 415
    default_code = "unsupported_media_type"
    title = "Send application/octet-stream"


def is_upload(method: str, path: str, content_type: str) -> bool:
    """Return whether the body is a file, which is neither limited nor spooled.

    Every other request, whatever its type, has the limit of ordinary bodies.
    """
    address = _UPLOADS.get(method)
    is_file = content_type.partition(";")[0].strip().lower() == UPLOAD_TYPE
    return is_file and address is not None and address.match(path) is not None


def body_of(request: HttpRequest) -> Iterator[bytes]:
    """Yield the body in pieces of at most 1 MiB. Raises InvalidInput if it is truncated."""
    if not is_upload(request.method or "", request.path, request.content_type or ""):
        raise WrongType(
            f"Files must be sent as {UPLOAD_TYPE}, not as {request.content_type or 'nothing'}.",
            next_step=f"Send the raw bytes with Content-Type: {UPLOAD_TYPE}.",
        )
    return _pieces(request)


def _pieces(request: HttpRequest) -> Iterator[bytes]:
    try:
        while piece := request.read(_CHUNK_BYTES):
            yield piece
    except UnreadablePostError as error:
        raise InvalidInput(
            "The upload was interrupted; nothing was stored.",
            code="upload_cut_off",
            next_step="Send the file again.",
        ) from error
