"""Files of workspaces that people read and change through the agent of their node."""

from collections.abc import Iterator

from django.http import HttpRequest
from ninja import Query, Router, Status
from pydantic import BaseModel, Field

from portal.api.agent.requires import agent_gate
from portal.api.uploads import body_of
from portal.compute.gates import NodeToken, gated_node
from portal.core.streams import ByteStream, release_connection
from portal.notebooks.services.workspace_transfers import (
    accept_report,
    append_content,
    claim_request,
    upload_of,
)
from slipway.schemas.agent import LogAnswer
from slipway.schemas.workspace_files import FileReport

router = Router(tags=["File requests"])
_PATH = "/file-requests/{request_id}"


class FileOffsetQuery(BaseModel):
    """Offset of the first byte of the body in the file."""

    offset: int = Field(ge=0, le=2**53)


@router.post(f"{_PATH}/claim", auth=agent_gate(NodeToken()), response={204: None})
def claim_file_request(request: HttpRequest, request_id: str) -> Status[None]:
    """Take over a request of the desired state, so that it is done once."""
    claim_request(node=gated_node(request), request_id=request_id)
    return Status(204, None)


@router.post(f"{_PATH}/reports", auth=agent_gate(NodeToken()), response={204: None})
def report_file_request(request: HttpRequest, request_id: str, payload: FileReport) -> Status[None]:
    """Accept the answer to a request."""
    accept_report(node=gated_node(request), request_id=request_id, report=payload)
    return Status(204, None)


@router.put(f"{_PATH}/content", auth=agent_gate(NodeToken()), response=LogAnswer)
def upload_file_content(
    request: HttpRequest, request_id: str, query: Query[FileOffsetQuery]
) -> LogAnswer:
    """Accept bytes of a file that somebody downloads."""
    end = append_content(
        node=gated_node(request),
        request_id=request_id,
        offset=query.offset,
        pieces=_arriving(request),
    )
    return LogAnswer(next_offset=end)


def _arriving(request: HttpRequest) -> Iterator[bytes]:
    """Yield the body as it arrives. No database connection is held meanwhile."""
    release_connection()
    yield from body_of(request)


@router.get(f"{_PATH}/content", auth=agent_gate(NodeToken()), response=None)
def download_file_content(request: HttpRequest, request_id: str) -> ByteStream:
    """Stream the file that somebody uploads."""
    pieces, size = upload_of(node=gated_node(request), request_id=request_id)
    response = ByteStream(pieces, content_type="application/octet-stream")
    response.headers["Content-Length"] = str(size)
    return response
