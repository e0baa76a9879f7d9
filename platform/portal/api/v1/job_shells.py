"""Operations on shells in the tasks of running jobs."""

from contextlib import suppress

from django.http import HttpRequest
from ninja import Query, Router, Status
from pydantic import BaseModel, Field

from portal.accounts.principal import require_principal
from portal.api.job_stream.authorization import right_of
from portal.api.routing import gate
from portal.api.shells.door import ask
from portal.api.shells.stream import ShellStream, shell_events
from portal.core.errors import Conflict, Unavailable
from portal.core.streams import EventStream
from portal.training.gates import ShellOpener, ShellOwner, gated_job, gated_shell
from portal.workloads.models import ShellSession
from portal.workloads.services.shells import door_of, end_shell, open_shell
from slipway.schemas.shells import ShellIn, ShellInput, ShellOut, ShellSize

router = Router(tags=["Jobs"])
_PATH = "/projects/{project}/jobs/{job}/shells"
_EVENTS = {
    "responses": {
        200: {
            "description": "Server-sent events: ready, output, end",
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        }
    }
}


class ShellOutputQuery(BaseModel):
    """The window that the shell starts in, and the offset from which the output is sent."""

    rows: int = Field(default=24, ge=1, le=1000)
    columns: int = Field(default=80, ge=1, le=1000)
    offset: int = Field(default=0, ge=0, le=2**53)


@router.post(_PATH, auth=gate(ShellOpener()), response={201: ShellOut})
def create_job_shell(
    request: HttpRequest, project: str, job: str, payload: ShellIn
) -> Status[ShellOut]:
    """Open a shell in a running task, with the rights and variables of the rank.

    It starts when its output is first followed.
    """
    job_row = gated_job(request)
    user = require_principal(request).user
    shell = open_shell(workload=job_row.workload, rank=payload.rank, by=user)
    answer = ShellOut(
        id=shell.pk,
        job=job_row.pk,
        rank=shell.rank,
        attempt=shell.lease.epoch,
        node=shell.lease.node.name,
        created_at=shell.created_at,
    )
    return Status(201, answer)


@router.get(
    f"{_PATH}/{{shell}}/output", auth=gate(ShellOwner()), response=None, openapi_extra=_EVENTS
)
def follow_job_shell(
    request: HttpRequest, project: str, job: str, shell: str, query: Query[ShellOutputQuery]
) -> EventStream:
    """Stream the output of a shell, as server-sent events."""
    wish = ShellStream(
        shell=_open(gated_shell(request)),
        right=right_of(request),
        rows=query.rows,
        columns=query.columns,
        offset=query.offset,
    )
    return EventStream(shell_events(wish))


@router.put(f"{_PATH}/{{shell}}/input", auth=gate(ShellOwner()), response={204: None})
def add_job_shell_input(
    request: HttpRequest, project: str, job: str, shell: str, payload: ShellInput
) -> Status[None]:
    """Type into a shell. Repeating the request with the same offset types nothing twice."""
    shell_row = _open(gated_shell(request))
    typed = {"op": "input", "offset": payload.offset, "data": payload.data}
    ask(door_of(shell_row), {**typed, "shell": shell_row.pk})
    return Status(204, None)


@router.put(f"{_PATH}/{{shell}}/size", auth=gate(ShellOwner()), response={204: None})
def update_job_shell_size(
    request: HttpRequest, project: str, job: str, shell: str, payload: ShellSize
) -> Status[None]:
    """Change the size of the window of a shell."""
    shell_row = _open(gated_shell(request))
    size = {"op": "resize", "rows": payload.rows, "columns": payload.columns}
    ask(door_of(shell_row), {**size, "shell": shell_row.pk})
    return Status(204, None)


@router.delete(f"{_PATH}/{{shell}}", auth=gate(ShellOwner()), response={204: None})
def delete_job_shell(request: HttpRequest, project: str, job: str, shell: str) -> Status[None]:
    """End a shell. Repeating the request changes nothing."""
    shell_row = gated_shell(request)
    if shell_row.ended_at is None:
        # Without followers it ends by itself.
        with suppress(Conflict, Unavailable):
            ask(door_of(shell_row), {"op": "close", "shell": shell_row.pk})
        end_shell(shell=shell_row, reason="closed")
    return Status(204, None)


def _open(shell: ShellSession) -> ShellSession:
    if shell.ended_at is not None:
        raise Conflict("The shell has ended.", code="shell_ended", next_step="Open another shell.")
    return shell
