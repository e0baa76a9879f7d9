"""Transfer of checkpoints between nodes and the store."""

from collections.abc import Iterator

from django.http import HttpRequest
from ninja import Router, Status

from portal.api.agent.requires import agent_gate
from portal.api.uploads import body_of
from portal.compute.gates import NodeToken, gated_node
from portal.core.streams import ByteStream, release_connection
from portal.training.services.checkpoint_copies import copy_for, store_copy

router = Router(tags=["Checkpoints"])
_PATH = "/checkpoints/{task_id}/{int:epoch}/{int:step}"


@router.put(_PATH, auth=agent_gate(NodeToken()), response={204: None})
def upload_checkpoint(request: HttpRequest, task_id: str, epoch: int, step: int) -> Status[None]:
    """Store a checkpoint. The body is the tar of `slipway.schemas.checkpoints`."""
    length = request.META.get("CONTENT_LENGTH") or ""
    store_copy(
        node=gated_node(request),
        task_id=task_id,
        epoch=epoch,
        step=step,
        chunks=_arriving(request),
        size_bytes=int(length) if length.isdigit() else None,
    )
    return Status(204, None)


def _arriving(request: HttpRequest) -> Iterator[bytes]:
    """Yield the body as it arrives. No database connection is held meanwhile."""
    release_connection()
    yield from body_of(request)


@router.get(_PATH, auth=agent_gate(NodeToken()), response=None)
def download_checkpoint(request: HttpRequest, task_id: str, epoch: int, step: int) -> ByteStream:
    """Stream the checkpoint from which a task resumes."""
    pieces, size = copy_for(node=gated_node(request), task_id=task_id, epoch=epoch, step=step)
    response = ByteStream(pieces, content_type="application/x-tar")
    response.headers["Content-Length"] = str(size)
    return response
