"""The agent's side of requests about files: claiming them, answering them, moving their bytes."""

from collections.abc import Iterable, Iterator

from portal.compute.logs import log_store
from portal.compute.models import Node
from portal.core import clock
from portal.core.errors import Conflict, NotFound, TooLarge
from portal.notebooks.models import WorkspaceRequest
from slipway.schemas.workspace_files import (
    MAX_TRANSFER_BYTES,
    FileAnswer,
    FileReport,
    FileRequest,
)

# Headers and the directory of a zip with as many files as one may have.
_PACKING_BYTES = 64 * 1024**2
_MOST_LISTED = 50
_ABANDONED_AT_ONCE = 500


def requests_of(*, node: Node) -> list[FileRequest]:
    """Return what the agent of a node should claim, oldest first."""
    waiting = WorkspaceRequest.objects.waiting_at(node)[:_MOST_LISTED]
    return [FileRequest(id=row.pk, **row.request) for row in waiting]


def claim_request(*, node: Node, request_id: str) -> None:
    """Give a request to the agent of its node. Raises NotFound, Conflict if it is not waiting."""
    row = _row(node, request_id)
    if not WorkspaceRequest.objects.move(row.pk, states=("waiting",), target="claimed"):
        raise _over()


def accept_report(*, node: Node, request_id: str, report: FileReport) -> None:
    """Store the answer of an agent. Raises NotFound, Conflict when nobody waits for it."""
    row = _row(node, request_id)
    # A download that fails after its first bytes ends with another answer.
    states = ("claimed",) if report.state == "streaming" else ("claimed", "streaming")
    answer = report.answer.model_dump(mode="json")
    if not WorkspaceRequest.objects.move(row.pk, states=states, target=report.state, answer=answer):
        raise _over()


def append_content(*, node: Node, request_id: str, offset: int, pieces: Iterable[bytes]) -> int:
    """Store bytes of a download at `offset` and return the next offset.

    Raises NotFound, Conflict when nobody waits for them, TooLarge.
    """
    row = _row(node, request_id)
    if row.state != "streaming":
        raise _over()
    for piece in pieces:
        if offset + len(piece) > MAX_TRANSFER_BYTES + _PACKING_BYTES:
            raise TooLarge(
                f"More than {MAX_TRANSFER_BYTES // 1024**3} GiB are not transferred.",
                next_step="Stop sending it.",
            )
        log_store().append(row.transfer_key, offset, piece)
        offset += len(piece)
    # The reader may have left, and deleted what had been sent, while this piece arrived.
    if not WorkspaceRequest.objects.unfinished().filter(pk=row.pk, state="streaming").exists():
        log_store().delete(row.transfer_key)
        raise _over()
    return offset


def upload_of(*, node: Node, request_id: str) -> tuple[Iterator[bytes], int]:
    """Return the bytes of an upload and their size, for the node that has claimed it."""
    row = _row(node, request_id)
    if row.state != "claimed" or row.request["operation"] != "write":
        raise _over()
    size: int = row.request["size_bytes"]
    return log_store().read(row.transfer_key, 0, size), size


def failed(detail: str) -> FileAnswer:
    """Return the answer to a request that nobody has fulfilled."""
    return FileAnswer(ok=False, code="failed", detail=detail)


def drop_expired() -> int:
    """Delete old requests with their bytes. Returns their number."""
    due = WorkspaceRequest.objects.filter(expires_at__lt=clock.now())
    rows = list(due.order_by("pk")[:_ABANDONED_AT_ONCE])
    for row in rows:
        log_store().delete(row.transfer_key)
    WorkspaceRequest.objects.filter(pk__in=[row.pk for row in rows]).delete()
    return len(rows)


def _row(node: Node, request_id: str) -> WorkspaceRequest:
    row = WorkspaceRequest.objects.filter(pk=request_id, node=node).first()
    if row is None:
        raise NotFound
    return row


def _over() -> Conflict:
    return Conflict(
        "Nobody waits for this request any more.",
        code="request_over",
        next_step="Stop working on it.",
    )
