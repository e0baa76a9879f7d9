"""Events, logs, resource usage and checkpoints of jobs."""

from collections.abc import Iterator

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router
from pydantic import BaseModel, Field

from portal.accounts.principal import require_principal
from portal.api.job_stream.authorization import right_of
from portal.api.job_stream.hub import JobStreamHub
from portal.api.job_stream.stream import StreamRequest, news_of
from portal.api.routing import gate
from portal.api.v1.job_serializers import checkpoint_out
from portal.api.v1.serializers import ListParameters, PageParameters, announce_rest, page_of
from portal.api.v1.workload_serializers import event_out, sample_out
from portal.core.errors import InvalidInput
from portal.core.pagination import paginate
from portal.core.streams import ByteStream, EventStream
from portal.training.gates import JobRole, gated_job
from portal.training.models import Checkpoint
from portal.workloads.models import Workload, WorkloadEvent
from portal.workloads.services.logs import RankLog, log_of, read_log
from portal.workloads.services.samples import page_of_samples
from slipway.schemas.accounts import Role, Scope
from slipway.schemas.base import PageOf
from slipway.schemas.training import LOG_READ_BYTES, CheckpointOut, SampleOut
from slipway.schemas.workloads import WorkloadEventOut

router = Router(tags=["Jobs"])
_SEE = JobRole(Role.VIEWER, Scope.WORKLOADS_READ)
_EVENTS = {
    "responses": {
        200: {
            "description": "Server-sent events: state, log, sample, end",
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        }
    }
}
_LOG = {
    "responses": {
        200: {
            "description": "The bytes of the log",
            "content": {
                "application/octet-stream": {"schema": {"type": "string", "format": "binary"}}
            },
        }
    }
}


class JobLogQuery(BaseModel):
    """A range of one rank's log. `attempt` defaults to the latest."""

    rank: int = Field(default=0, ge=0, le=65_535)
    attempt: int | None = Field(default=None, ge=1, le=2**31 - 1)
    offset: int = Field(default=0, ge=0, le=2**53)
    limit: int = Field(default=LOG_READ_BYTES, ge=1, le=LOG_READ_BYTES)


class FollowQuery(BaseModel):
    """`rank` and `attempt` filter the log. `logs=false` omits it."""

    rank: int | None = Field(default=None, ge=0, le=65_535)
    attempt: int | None = Field(default=None, ge=1, le=2**31 - 1)
    logs: bool = True


@router.get(
    "/projects/{project}/jobs/{job}/follow",
    auth=gate(_SEE),
    response=None,
    openapi_extra=_EVENTS,
)
def follow_job(
    request: HttpRequest, project: str, job: str, query: Query[FollowQuery]
) -> EventStream:
    """Stream a job live, as server-sent events, at most a second behind.

    `state` (JobProgress) is sent immediately and with each change, `log` (LogPiece) ordered by
    offset within one attempt and rank, `sample` (SampleOut), and `end` when the job has ended and
    everything was sent. Reconnect with the id of the last event in Last-Event-ID to continue.
    Without `rank`, the logs of the first 512 ranks are sent.
    """
    viewer = require_principal(request).user
    JobStreamHub.limit.check(viewer.pk)
    wish = StreamRequest(
        job=gated_job(request),
        viewer=viewer,
        right=right_of(request),
        rank=query.rank,
        attempt=query.attempt,
        logs=query.logs,
        last_id=request.headers.get("Last-Event-ID", ""),
    )
    return EventStream(news_of(wish))


@router.get(
    "/projects/{project}/jobs/{job}/events", auth=gate(_SEE), response=PageOf[WorkloadEventOut]
)
def list_job_events(
    request: HttpRequest, project: str, job: str, page: PageParameters
) -> PageOf[WorkloadEventOut]:
    """List the events of a job, newest first."""
    workload_events = WorkloadEvent.objects.filter(workload=gated_job(request).workload)
    return page_of(paginate(workload_events, cursor=page.cursor, limit=page.limit), event_out)


@router.get(
    "/projects/{project}/jobs/{job}/logs", auth=gate(_SEE), response=None, openapi_extra=_LOG
)
def get_job_log(
    request: HttpRequest, project: str, job: str, query: Query[JobLogQuery]
) -> ByteStream:
    """Get raw bytes of one rank's log.

    `X-Log-Attempt` is its attempt, `X-Log-Offset` the offset of the first byte, `X-Log-Size` the
    current size, and `X-Log-Complete` says whether the log will not grow.
    """
    workload = gated_job(request).workload
    log = _log_of(workload, query.attempt, query.rank)
    length = max(0, min(query.limit, log.size_bytes - query.offset))
    pieces: Iterator[bytes] = iter(())
    if length:
        pieces = read_log(
            workload=workload,
            attempt=log.attempt,
            rank=query.rank,
            start=query.offset,
            length=length,
        )
    answer = ByteStream(pieces, content_type="application/octet-stream")
    answer.headers["Content-Length"] = str(length)
    answer.headers["X-Log-Attempt"] = str(log.attempt)
    answer.headers["X-Log-Offset"] = str(query.offset)
    answer.headers["X-Log-Size"] = str(log.size_bytes)
    answer.headers["X-Log-Complete"] = "true" if log.is_complete else "false"
    answer.headers["Cache-Control"] = "private, no-store"
    return answer


def _log_of(workload: Workload, attempt: int | None, rank: int) -> RankLog:
    """Return the log, an empty one if the job has not started."""
    ranks = workload.nodes * workload.procs
    if rank >= ranks:
        raise InvalidInput(
            f"The job has {ranks} ranks: 0 to {ranks - 1}."
            if ranks > 1
            else "The job has one rank: 0.",
            code="no_such_rank",
            field="rank",
            next_step="Request one of these.",
        )
    if attempt is None and workload.epoch == 0:
        return RankLog(1, rank, 0, is_complete=workload.status.is_final)
    return log_of(workload=workload, attempt=attempt or workload.epoch, rank=rank)


@router.get("/projects/{project}/jobs/{job}/samples", auth=gate(_SEE), response=list[SampleOut])
def list_job_samples(
    request: HttpRequest, response: HttpResponse, project: str, job: str, query: ListParameters
) -> list[SampleOut]:
    """List CPU, memory and GPU usage of the current attempt, oldest first."""
    workload = gated_job(request).workload
    page = page_of_samples(
        workload=workload, attempt=workload.epoch, cursor=query.cursor, limit=query.limit
    )
    return [sample_out(sample) for sample in announce_rest(response, page).items]


@router.get(
    "/projects/{project}/jobs/{job}/checkpoints", auth=gate(_SEE), response=list[CheckpointOut]
)
def list_job_checkpoints(
    request: HttpRequest, response: HttpResponse, project: str, job: str, query: ListParameters
) -> list[CheckpointOut]:
    """List the verified checkpoints of a job, newest step first.

    The header `X-Slipway-Next-Cursor` is present if there are more. Pass it as `cursor`.
    """
    checkpoints = Checkpoint.objects.filter(job=gated_job(request))
    page = paginate(checkpoints, cursor=query.cursor, limit=query.limit, by="step")
    return [checkpoint_out(checkpoint) for checkpoint in announce_rest(response, page).items]
