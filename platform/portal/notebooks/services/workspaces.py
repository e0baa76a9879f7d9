"""Files of workspaces, for people: list, read, write, create, move and delete.

The files are on nodes, and may belong to hostile code. So the portal never opens them: it stores a
request, the agent of the node claims it and answers (`workspace_transfers`). Bytes pass through
the log store, so any process of the portal can serve either side.
"""

import time
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from django.db import transaction

from portal.accounts import audit
from portal.compute.logs import log_store
from portal.compute.models import Node
from portal.core.errors import (
    Conflict,
    Forbidden,
    InvalidInput,
    NotFound,
    RateLimited,
    SlipwayError,
    TooLarge,
    Unavailable,
)
from portal.core.notify import listener
from portal.core.streams import release_connection
from portal.notebooks.models import WorkspaceRequest, transfer_deadline
from portal.notebooks.services.workspace_places import (
    Workspace,
    away_next_step,
    node_views,
    nodes_with_workspace,
    unreachable_reason,
)
from portal.notebooks.services.workspace_transfers import failed
from slipway.schemas.workspace_files import (
    MAX_TRANSFER_BYTES,
    FileAnswer,
    FileEntry,
    FileRequest,
    WorkspaceArea,
    WorkspaceEntry,
    WorkspaceFolder,
    WorkspaceOperation,
)

_CLAIMED_WITHIN_S = 30.0
_ANSWERED_WITHIN_S = 60.0
# A large tree takes long to delete, and a large upload to copy.
_CHANGED_WITHIN_S = 600.0
_STREAM_SILENT_S = 180.0
_STREAM_POLL_S = 0.02
_CHECKED_EVERY_S = 0.5
_MOST_A_PERSON = 6
_PERSONAL = "a file of their personal folder"
_Field = Literal["path", "target"]
_STATES_AFTER_CLAIM = frozenset({"claimed", "streaming", "ended"})
_VERBS = {
    "write": "workspace.upload",
    "mkdir": "workspace.folder",
    "move": "workspace.move",
    "delete": "workspace.delete",
}


@dataclass(frozen=True)
class FileDownload:
    """The bytes of a file, or of a folder as a zip, whose size is None."""

    name: str
    is_folder: bool
    size_bytes: int | None
    pieces: "ArrivingBytes"

    @property
    def content_type(self) -> str:
        """The type of the bytes, never one that a browser shows."""
        return "application/zip" if self.is_folder else "application/octet-stream"


def list_folder(workspace: Workspace, **query: object) -> WorkspaceFolder:
    """List a folder. `query` has `path`, `order`, `search`, `hidden`, `offset` and `limit`."""
    row = _submit(workspace, "list", **query)
    answer = _answer(row, field="path")
    path = str(query.get("path") or "")
    nodes = nodes_with_workspace(
        project=workspace.project, person=workspace.person, area=workspace.area
    )
    return WorkspaceFolder(
        node=workspace.node.name,
        area=workspace.area,
        path=path,
        entries=[_entry(entry, path) for entry in answer.entries],
        total=answer.total,
        offset=row.request["offset"],
        is_cut=answer.is_cut,
        nodes=node_views(nodes),
    )


def open_download(
    workspace: Workspace, *, path: str, hidden: bool = False, limit_bytes: int = MAX_TRANSFER_BYTES
) -> FileDownload:
    """Open a file, or a folder as a zip. Raises Conflict, NotFound and TooLarge.

    The caller reads or closes `pieces`. They raise ConnectionError if the file is incomplete.
    """
    row = _submit(workspace, "read", path=path, hidden=hidden, limit_bytes=limit_bytes)
    answer = _answer(row, field="path", states=("streaming", "ended"))
    is_folder = answer.kind == "folder"
    default = "personal" if workspace.area == "personal" else workspace.project.slug
    name = path.rpartition("/")[2] or default
    name = f"{name}.zip" if is_folder else name
    return FileDownload(name, is_folder, answer.size_bytes, ArrivingBytes(row))


def write_file(
    workspace: Workspace,
    *,
    path: str,
    pieces: Iterable[bytes],
    replace: bool,
    parents: bool = False,
) -> WorkspaceEntry:
    """Store the content of a file as a whole. Call it outside a transaction.

    `parents` creates the folders that are missing above it. Raises Conflict if there is a file and
    it may not be replaced, and TooLarge.
    """
    row = _create(
        workspace, "write", state="receiving", path=path, replace=replace, parents=parents
    )
    size = 0
    try:
        for piece in pieces:
            if size + len(piece) > MAX_TRANSFER_BYTES:
                raise TooLarge(
                    f"A file may have {MAX_TRANSFER_BYTES // 1024**3} GiB.",
                    code="file_too_large",
                    field="content",
                    next_step="Upload it in parts, or fetch it in a terminal of JupyterLab.",
                )
            log_store().append(row.transfer_key, size, piece)
            size += len(piece)
        row.request["size_bytes"] = size
        with transaction.atomic():
            is_current = WorkspaceRequest.objects.move(
                row.pk, states=("receiving",), target="waiting", request=row.request
            )
            Node.objects.wake([row.node_id])
        if not is_current:
            raise Conflict(
                "The upload took longer than an hour, so it was not stored.",
                code="upload_too_slow",
                field="content",
                next_step="Upload it in parts, or fetch it in a terminal of JupyterLab.",
            )
        return _changed(workspace, row)
    finally:
        _forget(row)


def make_folder(workspace: Workspace, *, path: str, parents: bool = False) -> WorkspaceEntry:
    """Create a folder. Raises Conflict if there is something of that name.

    With `parents` it may exist, and missing folders above it are created.
    """
    return _changed(workspace, _submit(workspace, "mkdir", path=path, parents=parents))


def move_entry(
    workspace: Workspace,
    *,
    path: str,
    target: str,
    target_area: WorkspaceArea | None = None,
    replace: bool = False,
) -> WorkspaceEntry:
    """Rename or move a file or folder, also to the other area of the same person and node.

    Raises Conflict if there is something of that name. `replace` lets a file replace a file.
    """
    is_across = target_area is not None and target_area != workspace.area
    row = _submit(
        workspace,
        "move",
        path=path,
        target=target,
        target_folder=workspace.folder_of(target_area) if is_across and target_area else "",
        replace=replace,
    )
    return _changed(workspace, row, field="target", target_area=target_area)


def delete_entry(workspace: Workspace, *, path: str) -> None:
    """Delete a file, or a folder with all that is in it."""
    row = _submit(workspace, "delete", path=path)
    _answer(row, field="path", within_s=_CHANGED_WITHIN_S)
    _record(workspace, row, workspace.area)


def _changed(
    workspace: Workspace,
    row: WorkspaceRequest,
    *,
    field: _Field = "path",
    target_area: WorkspaceArea | None = None,
) -> WorkspaceEntry:
    answer = _answer(row, field=field, within_s=_CHANGED_WITHIN_S)
    _record(workspace, row, target_area or workspace.area)
    path: str = row.request["target"] if field == "target" else row.request["path"]
    return _entry(answer.entries[0], path.rpartition("/")[0])


def _record(workspace: Workspace, row: WorkspaceRequest, target_area: WorkspaceArea) -> None:
    """Record a change. Names in a personal folder concern nobody else."""
    path: str = row.request["path"] if workspace.area == "shared" else _PERSONAL
    after: dict[str, object] = {"node": workspace.node.name}
    if row.request["target"] and (target_area == "shared" or workspace.area == "shared"):
        after["target"] = row.request["target"] if target_area == "shared" else _PERSONAL
    with transaction.atomic():
        audit.record(
            _VERBS[row.request["operation"]],
            kind="workspace",
            target=row,
            label=path,
            project=workspace.project,
            after=after,
        )


def _submit(
    workspace: Workspace, operation: WorkspaceOperation, **details: object
) -> WorkspaceRequest:
    with transaction.atomic():
        row = _create(workspace, operation, state="waiting", **details)
        Node.objects.wake([row.node_id])
    return row


def _create(
    workspace: Workspace, operation: WorkspaceOperation, *, state: str, **details: object
) -> WorkspaceRequest:
    reason = unreachable_reason(workspace.node)
    if reason:
        raise Unavailable(
            reason,
            code="node_unreachable",
            next_step=away_next_step(workspace),
            retry_after_s=30,
        )
    open_requests = WorkspaceRequest.objects.unfinished().filter(person=workspace.person)
    if open_requests.count() >= _MOST_A_PERSON:
        raise RateLimited(
            f"{_MOST_A_PERSON} of your requests about workspace files are in progress.",
            code="too_many_transfers",
            next_step="Wait until a download or upload has ended.",
            retry_after_s=5,
        )
    request = FileRequest(id="", folder=workspace.folder, operation=operation, **details)
    return WorkspaceRequest.objects.create(
        project=workspace.project,
        person=workspace.person,
        node=workspace.node,
        request=request.model_dump(mode="json", exclude={"id"}),
        state=state,
        expires_at=transfer_deadline(),
    )


def _answer(
    row: WorkspaceRequest,
    *,
    field: _Field,
    states: tuple[str, ...] = ("ended",),
    within_s: float = _ANSWERED_WITHIN_S,
) -> FileAnswer:
    """Wait for the answer of the agent. Raises what explains a refusal."""
    try:
        if not _wait(row, _STATES_AFTER_CLAIM, _CLAIMED_WITHIN_S) and _withdraw(row):
            raise Unavailable(
                f"The node {row.node.name} did not respond. Nothing was changed.",
                code="node_silent",
                next_step="Try again. If it stays silent, ask an administrator whether its agent "
                "runs and is as new as the portal.",
                retry_after_s=10,
            )
        if not _wait(row, frozenset(states), within_s):
            raise Unavailable(
                f"The node {row.node.name} has not finished within {within_s:.0f} s.",
                code="node_slow",
                next_step="Reload the folder to see what has been done.",
                retry_after_s=30,
            )
    except BaseException:
        _forget(row)
        raise
    answer = FileAnswer.model_validate(row.answer)
    if row.state == "ended" and not (answer.ok and row.request["operation"] == "read"):
        _forget(row)
    if not answer.ok:
        raise _refusal(answer, field, row)
    return answer


def _wait(row: WorkspaceRequest, states: frozenset[str], within_s: float) -> bool:
    """Wait until the request is in one of `states`, without a database connection."""
    deadline = time.monotonic() + within_s
    while True:
        known = listener.notification_count()
        row.refresh_from_db(fields=["state", "answer"])
        if row.state in states:
            return True
        if time.monotonic() >= deadline:
            return False
        release_connection()
        listener.wait(known)


def _withdraw(row: WorkspaceRequest) -> bool:
    """End a request that no agent has claimed. Returns False if one has, at this moment."""
    answer = failed("Nobody waits for it any more.").model_dump(mode="json")
    return WorkspaceRequest.objects.move(
        row.pk, states=("receiving", "waiting"), target="ended", answer=answer
    )


def _forget(row: WorkspaceRequest) -> None:
    """Delete a request, so that an agent that still works on it stops, and its bytes."""
    WorkspaceRequest.objects.filter(pk=row.pk).delete()
    log_store().delete(row.transfer_key)


class ArrivingBytes:
    """The bytes of a download. Closing it makes the agent stop, even if nothing was read."""

    def __init__(self, row: WorkspaceRequest) -> None:
        self._row = row
        self._pieces = _arriving(row)

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        return next(self._pieces)

    def close(self) -> None:
        """Stop the transfer."""
        self._pieces.close()
        _forget(self._row)


def _arriving(row: WorkspaceRequest) -> Generator[bytes, None, None]:
    """Yield the bytes of a download while they arrive. Raises ConnectionError."""
    store, offset = log_store(), 0
    heard = checked = time.monotonic()
    ended = row.state == "ended"
    try:
        while True:
            size = store.size(row.transfer_key)
            if size > offset:
                for piece in store.read(row.transfer_key, offset, size - offset):
                    offset += len(piece)
                    yield piece
                heard = time.monotonic()
                continue
            if ended:
                break
            if time.monotonic() - checked >= _CHECKED_EVERY_S or not offset:
                checked = time.monotonic()
                row.refresh_from_db(fields=["state", "answer"])
                release_connection()
                ended = row.state == "ended"
                if ended:
                    continue
            if time.monotonic() - heard > _STREAM_SILENT_S:
                break
            time.sleep(_STREAM_POLL_S)
        if not ended or not FileAnswer.model_validate(row.answer).ok:
            raise ConnectionError("the node stopped sending the file")
    finally:
        _forget(row)


def _entry(entry: FileEntry, folder: str) -> WorkspaceEntry:
    try:
        modified = datetime.fromtimestamp(entry.modified, UTC)
    except (OverflowError, ValueError, OSError):  # user code may set any time
        modified = datetime.fromtimestamp(0, UTC)
    return WorkspaceEntry(
        name=entry.name,
        path=f"{folder}/{entry.name}" if folder else entry.name,
        kind=entry.kind,
        size_bytes=entry.size_bytes,
        modified_at=modified,
    )


def _refusal(answer: FileAnswer, field: str, row: WorkspaceRequest) -> SlipwayError:
    """Return the error for a refusal of the agent."""
    code, detail = answer.code, answer.detail
    match code:
        case "not_found":
            return NotFound(detail, next_step="Reload the folder; somebody may have moved it.")
        case "exists":
            step = "Choose another name, or delete what is there, or replace it if it is a file."
            return Conflict(detail, code=code, field=field, next_step=step)
        case "denied":
            step = "Change the permissions in a terminal of JupyterLab (`chmod u+rwX`)."
            return Forbidden(detail, code="file_permissions", field=field, next_step=step)
        case "invalid":
            return InvalidInput(detail, field=field, next_step="Choose another name or folder.")
        case "too_large":
            limit = row.request["limit_bytes"]
            step = f"At most {limit // 1024**2} MiB. Work with it in JupyterLab."
            return TooLarge(detail, code=code, field=field, next_step=step)
        case "disk_full" | "folder_full":
            step = "Delete files that nobody needs, or ask an administrator for more disk space."
            return Conflict(detail, code=code, field="content", next_step=step)
        case "is_link" | "special" | "is_folder":
            step = "Open it in a terminal of JupyterLab, or delete it here."
            return Conflict(detail, code=code, field=field, next_step=step)
        case "changed" | "too_deep" | "too_many":
            step = "Nothing was moved. Stop what writes there, or move it in a terminal (`mv`)."
            return Conflict(detail, code=code, field="path", next_step=step)
        case "no_workspace":
            step = "Launch a notebook on this node. Its start creates the folder."
            return Conflict(detail, code=code, next_step=step)
        case _:
            return Unavailable(
                detail or "The node could not do this.",
                code="node_failed",
                next_step="Try again, or look at it in JupyterLab.",
                retry_after_s=10,
            )
