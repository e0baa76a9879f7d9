"""Workloads of a project: list, inspect, stop."""

from typing import Annotated

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router
from pydantic import BaseModel, Field

from portal.accounts.gates import ProjectRole, gated_project, gated_role
from portal.accounts.principal import require_principal
from portal.api.routing import gate
from portal.api.v1.serializers import ListQuery, PageParameters, PageQuery, announce_rest, page_of
from portal.api.v1.workload_serializers import (
    event_out,
    log_out,
    moves_out,
    sample_out,
    task_out,
    workload_out,
)
from portal.core.pagination import paginate
from portal.core.streams import ByteStream
from portal.workloads.explanations import Explainer
from portal.workloads.gates import WorkloadRole, gated_workload
from portal.workloads.models import Lease, Workload, WorkloadEvent
from portal.workloads.ports import kind_of
from portal.workloads.services import cancellation
from portal.workloads.services.logs import log_of, logs_of, read_log, tasks_without_logs
from portal.workloads.services.samples import page_of_samples
from slipway.schemas.accounts import Role, Scope
from slipway.schemas.base import Line, PageOf
from slipway.schemas.training import SampleOut
from slipway.schemas.workloads import (
    WorkloadDetailOut,
    WorkloadEventOut,
    WorkloadOut,
    WorkloadState,
    WorkloadStop,
)

router = Router(tags=["Workloads"])
MAX_LOG_READ_BYTES = 4 * 1024**2
_MOST_EVENTS = 200
_SEE = WorkloadRole(Role.VIEWER, Scope.WORKLOADS_READ)
_CHANGE = WorkloadRole(Role.CONTRIBUTOR, Scope.WORKLOADS_WRITE)
_BYTES = {
    "responses": {
        200: {
            "description": "The bytes of the log",
            "content": {
                "application/octet-stream": {"schema": {"type": "string", "format": "binary"}}
            },
        }
    }
}


class WorkloadsQuery(PageQuery):
    """Filters, all of which must match."""

    state: WorkloadState | None = None
    kind: Annotated[Line, Field(max_length=32)] = ""
    parent: Annotated[Line, Field(max_length=32)] = ""
    q: Annotated[Line, Field(max_length=100)] = ""


class AttemptQuery(BaseModel):
    """Attempt, by default the latest."""

    attempt: int | None = Field(default=None, ge=1, le=2**31 - 1)


class SamplesQuery(AttemptQuery, ListQuery):
    """A range of the samples of an attempt."""


class LogQuery(AttemptQuery):
    """A range of the log of one rank."""

    rank: int = Field(default=0, ge=0, le=65_535)
    offset: int = Field(default=0, ge=0, le=2**53)
    limit: int = Field(default=MAX_LOG_READ_BYTES, ge=1, le=MAX_LOG_READ_BYTES)


@router.get(
    "/projects/{project}/workloads",
    auth=gate(ProjectRole(Role.VIEWER, Scope.WORKLOADS_READ)),
    response=PageOf[WorkloadOut],
)
def list_workloads(
    request: HttpRequest, project: str, query: Query[WorkloadsQuery]
) -> PageOf[WorkloadOut]:
    """List running, waiting and ended workloads of the project, newest first."""
    workloads = Workload.objects.filter(project=gated_project(request))
    if query.state is not None:
        workloads = workloads.filter(state=query.state)
    if query.kind:
        workloads = workloads.filter(kind=query.kind)
    if query.parent:
        workloads = workloads.filter(parent=query.parent)
    if query.q:
        workloads = workloads.filter(name__icontains=query.q)
    workloads = workloads.select_related("project", "tier", "submitted_by", "team")
    explainer = Explainer(require_principal(request).user)
    page = paginate(workloads, cursor=query.cursor, limit=query.limit)
    return page_of(page, lambda workload: workload_out(workload, explainer))


@router.get("/projects/{project}/workloads/{workload}", auth=gate(_SEE), response=WorkloadDetailOut)
def get_workload(request: HttpRequest, project: str, workload: str) -> WorkloadDetailOut:
    """Get a workload: state and reason, tasks, events, logs."""
    workload_row = gated_workload(request)
    explainer = Explainer(require_principal(request).user)
    shown = workload_out(workload_row, explainer)
    leases = Lease.objects.of_epoch(workload_row).select_related("node").order_by("index")
    every_event = WorkloadEvent.objects.filter(workload=workload_row)
    events = list(every_event.order_by("-pk")[:_MOST_EVENTS])
    return WorkloadDetailOut(
        **shown.model_dump(),
        tasks=[task_out(lease) for lease in leases],
        moves=moves_out(workload_row, explainer),
        events=[event_out(event) for event in reversed(events)],
        events_left_out=every_event.count() - len(events),
        logs=[log_out(log) for log in logs_of(workload=workload_row)],
        tasks_without_logs=tasks_without_logs(workload=workload_row),
        log_tail=workload_row.log_tail,
    )


@router.post(
    "/projects/{project}/workloads/{workload}/stop", auth=gate(_CHANGE), response=WorkloadOut
)
def stop_workload(
    request: HttpRequest, project: str, workload: str, payload: WorkloadStop
) -> WorkloadOut:
    """Stop a workload. Repeating the request changes nothing."""
    user = require_principal(request).user
    workload_row = gated_workload(request)
    kind = kind_of(workload_row.kind)
    kind.check_stop(workload=workload_row, by=user, role=gated_role(request))
    cancellation.stop_workload(workload=workload_row, by=user, message=payload.message)
    workload_row.refresh_from_db()
    return workload_out(workload_row, Explainer(user))


@router.get(
    "/projects/{project}/workloads/{workload}/events",
    auth=gate(_SEE),
    response=PageOf[WorkloadEventOut],
)
def list_workload_events(
    request: HttpRequest, project: str, workload: str, page: PageParameters
) -> PageOf[WorkloadEventOut]:
    """List the events of a workload, newest first."""
    workload_events = WorkloadEvent.objects.filter(workload=gated_workload(request))
    return page_of(paginate(workload_events, cursor=page.cursor, limit=page.limit), event_out)


@router.get(
    "/projects/{project}/workloads/{workload}/log",
    auth=gate(_SEE),
    response=None,
    openapi_extra=_BYTES,
)
def get_workload_log(
    request: HttpRequest, project: str, workload: str, query: Query[LogQuery]
) -> ByteStream:
    """Get a range of a rank's log.

    Continue at `X-Slipway-Next-Offset`. Once `X-Slipway-Complete` is `true` and a read returns
    nothing, the log is complete.
    """
    workload_row = gated_workload(request)
    attempt = query.attempt or max(1, workload_row.epoch)
    log = log_of(workload=workload_row, attempt=attempt, rank=query.rank)
    length = max(0, min(query.limit, log.size_bytes - query.offset))
    pieces = read_log(
        workload=workload_row, attempt=attempt, rank=query.rank, start=query.offset, length=length
    )
    response = ByteStream(pieces, content_type="application/octet-stream")
    response.headers["Content-Length"] = str(length)
    response.headers["X-Slipway-Next-Offset"] = str(query.offset + length)
    response.headers["X-Slipway-Complete"] = "true" if log.is_complete else "false"
    return response


@router.get(
    "/projects/{project}/workloads/{workload}/samples",
    auth=gate(_SEE),
    response=list[SampleOut],
)
def list_workload_samples(
    request: HttpRequest,
    response: HttpResponse,
    project: str,
    workload: str,
    query: Query[SamplesQuery],
) -> list[SampleOut]:
    """List resource usage of the tasks of an attempt, oldest first."""
    workload_row = gated_workload(request)
    page = page_of_samples(
        workload=workload_row,
        attempt=query.attempt or workload_row.epoch,
        cursor=query.cursor,
        limit=query.limit,
    )
    return [sample_out(sample) for sample in announce_rest(response, page).items]
