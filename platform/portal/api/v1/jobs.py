"""Training jobs: submitted, followed, cancelled, cloned."""

from typing import Annotated

from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from ninja import Query, Router, Status
from pydantic import BaseModel, Field

from portal.accounts.gates import ProjectRole, gated_project
from portal.accounts.models import Project, User
from portal.accounts.principal import require_principal
from portal.api.routing import gate
from portal.api.uploads import body_of
from portal.api.v1.files import promised_by
from portal.api.v1.shapes import PageParameters, PageQuery, page_of
from portal.core import clock
from portal.core.errors import NotFound
from portal.core.pagination import Page, paginate
from portal.storage.services import discard_bytes, open_file, receive_bytes
from portal.training.models import Job, Snapshot
from portal.training.services.jobs import cancel_job, clone_job, cost_of, quote_job, submit_job
from portal.training.services.snapshots import keep_snapshot
from portal.workloads.explaining import Explainer, position_of
from portal.workloads.models import Lease, UsageSample, Workload, WorkloadEvent
from portal.workloads.services.logs import log_of, logs_of, read_log
from slipway.schemas.accounts import Role, Scope
from slipway.schemas.base import Line, PageOf
from slipway.schemas.training import (
    GitFacts,
    JobEdit,
    JobIn,
    JobOut,
    Quote,
    SampleOut,
    SnapshotOut,
)
from slipway.schemas.workloads import ReasonCode, WorkloadEventOut, WorkloadOut, WorkloadState

router = Router(tags=["Jobs"])
MAX_LOG_READ_BYTES = 4 * 1024**2
_SEE = ProjectRole(Role.VIEWER, Scope.WORKLOADS_READ)
_RUN = ProjectRole(Role.CONTRIBUTOR, Scope.WORKLOADS_WRITE)
_TAR = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}
Short = Annotated[Line, Field(max_length=254)]


class JobsQuery(PageQuery):
    """Filters; all that are given must match."""

    state: WorkloadState | None = None
    q: Annotated[Line, Field(max_length=100)] = ""
    submitted_by: Short = ""
    tier: Short = ""


class LogQuery(BaseModel):
    """A range of one rank's log; `attempt` is the newest unless named."""

    rank: int = Field(default=0, ge=0, le=65_535)
    attempt: int | None = Field(default=None, ge=1, le=100_000)
    offset: int = Field(default=0, ge=0, le=2**44)
    limit: int = Field(default=MAX_LOG_READ_BYTES, ge=1, le=MAX_LOG_READ_BYTES)


def workload_out(workload: Workload, explainer: Explainer) -> WorkloadOut:
    """Describe a workload to the person the explainer speaks to."""
    return WorkloadOut(
        id=workload.pk,
        project=workload.project.slug,
        kind=workload.kind,
        name=workload.name,
        state=workload.status,
        explanation=explainer.explain(workload),
        reason=ReasonCode(workload.reason) if workload.reason else None,
        next_step=workload.next_step or None,
        tier=workload.tier.slug,
        nodes=workload.nodes,
        procs=workload.procs,
        attempt=workload.epoch,
        priority=workload.priority,
        queue_position=position_of(workload),
        submitted_by=workload.submitted_by.email,
        created_at=workload.created_at,
        started_at=workload.started_at,
        ended_at=workload.ended_at,
    )


def snapshot_out(snapshot: Snapshot) -> SnapshotOut:
    return SnapshotOut(
        digest=snapshot.digest, size_bytes=snapshot.file.blob.size_bytes, files=snapshot.files
    )


def job_out(job: Job, explainer: Explainer) -> JobOut:
    """Describe a job; its leases are read for cost and steps."""
    workload = job.workload
    leases = list(workload.leases.all())
    now_ms = int(clock.now().timestamp() * 1000)
    first = [lease.first_step_at for lease in leases if lease.first_step_at]
    steps = [lease.step for lease in leases if lease.epoch == workload.epoch and lease.step]
    return JobOut(
        workload=workload_out(workload, explainer),
        script=job.script,
        args=job.args,
        params=job.params,
        strategy=job.strategy or None,
        snapshot=snapshot_out(job.snapshot),
        git=GitFacts.model_validate(job.git) if job.git else None,
        environment=workload.environment or None,
        cloned_from=job.cloned_from_id,
        nano_usd_per_hour=workload.tier.nano_usd_per_hour * workload.nodes,
        cost_nano_usd=cost_of(workload, until_ms=now_ms),
        first_step_after_s=(min(first) - workload.created_at).total_seconds() if first else None,
        step=min(steps) if steps else None,
        log_ranks=sorted({log.rank for log in logs_of(workload=workload)}),
    )


def _job(project: Project, job_id: str) -> Job:
    job = Job.objects.of_project(project).prefetch_related("workload__leases").filter(pk=job_id)
    found = job.first()
    if found is None:
        raise NotFound
    return found


def _shown(job: Job, viewer: User) -> JobOut:
    return job_out(_job(job.workload.project, job.pk), Explainer(viewer))


@router.post(
    "/projects/{project}/snapshots",
    auth=gate(_RUN),
    response={201: SnapshotOut},
    openapi_extra=_TAR,
)
def upload_snapshot(request: HttpRequest, project: str) -> Status[SnapshotOut]:
    """Upload code as a tar; the same bytes again are the same snapshot."""
    stored = receive_bytes(chunks=body_of(request), promised=promised_by(request))
    try:
        snapshot = keep_snapshot(
            project=gated_project(request), by=require_principal(request).user, stored=stored
        )
    except BaseException:
        discard_bytes(stored)
        raise
    return Status(201, snapshot_out(snapshot))


@router.get("/projects/{project}/snapshots/{digest}", auth=gate(_SEE), response=None)
def download_snapshot(request: HttpRequest, project: str, digest: str) -> StreamingHttpResponse:
    """Download the code a job ran."""
    found = Snapshot.objects.filter(project=gated_project(request), digest=digest)
    snapshot = found.select_related("file__blob").first()
    if snapshot is None:
        raise NotFound
    answer = StreamingHttpResponse(open_file(file=snapshot.file), content_type="application/x-tar")
    answer.headers["Content-Disposition"] = f'attachment; filename="{digest[:12]}.tar"'
    return answer


@router.get("/projects/{project}/jobs", auth=gate(_SEE), response=PageOf[JobOut])
def list_jobs(request: HttpRequest, project: str, query: Query[JobsQuery]) -> PageOf[JobOut]:
    """List the project's jobs, newest first."""
    jobs = Job.objects.of_project(gated_project(request)).matching(
        state=query.state or "", text=query.q, submitted_by=query.submitted_by, tier=query.tier
    )
    jobs = jobs.prefetch_related("workload__leases")
    page: Page[Job] = paginate(jobs, cursor=query.cursor, limit=query.limit)
    explainer = Explainer(require_principal(request).user)
    return page_of(page, lambda job: job_out(job, explainer))


@router.post("/projects/{project}/jobs", auth=gate(_RUN), response={201: JobOut})
def make_job(request: HttpRequest, project: str, payload: JobIn) -> Status[JobOut]:
    """Submit a job."""
    user = require_principal(request).user
    job = submit_job(project=gated_project(request), by=user, wanted=payload)
    return Status(201, _shown(job, user))


@router.post("/projects/{project}/jobs/quote", auth=gate(_RUN), response=Quote)
def quote(request: HttpRequest, project: str, payload: JobIn) -> Quote:
    """Say what a job would cost and whether it could start now; nothing is queued."""
    return quote_job(project=gated_project(request), wanted=payload)


@router.get("/projects/{project}/jobs/{job}", auth=gate(_SEE), response=JobOut)
def show_job(request: HttpRequest, project: str, job: str) -> JobOut:
    """Show one job."""
    found = _job(gated_project(request), job)
    return job_out(found, Explainer(require_principal(request).user))


@router.post("/projects/{project}/jobs/{job}/cancel", auth=gate(_RUN), response=JobOut)
def end_job(request: HttpRequest, project: str, job: str) -> JobOut:
    """End a job; one that has ended stays as it is."""
    user = require_principal(request).user
    return _shown(cancel_job(job=_job(gated_project(request), job), by=user), user)


@router.post("/projects/{project}/jobs/{job}/clone", auth=gate(_RUN), response={201: JobOut})
def submit_again(request: HttpRequest, project: str, job: str, payload: JobEdit) -> Status[JobOut]:
    """Submit the same again, with changes."""
    user = require_principal(request).user
    made = clone_job(job=_job(gated_project(request), job), by=user, edit=payload)
    return Status(201, _shown(made, user))


@router.get(
    "/projects/{project}/jobs/{job}/events", auth=gate(_SEE), response=PageOf[WorkloadEventOut]
)
def list_events(
    request: HttpRequest, project: str, job: str, page: PageParameters
) -> PageOf[WorkloadEventOut]:
    """Tell the job's story, newest line first."""
    found = WorkloadEvent.objects.filter(workload=_job(gated_project(request), job).workload)
    return page_of(paginate(found, cursor=page.cursor, limit=page.limit), event_out)


def event_out(event: WorkloadEvent) -> WorkloadEventOut:
    return WorkloadEventOut(
        at=event.created_at, attempt=event.attempt, kind=event.kind, message=event.message
    )


@router.get("/projects/{project}/jobs/{job}/logs", auth=gate(_SEE), response=None)
def show_log(request: HttpRequest, project: str, job: str, query: Query[LogQuery]) -> HttpResponse:
    """Return bytes of one rank's log, raw; `X-Log-Size` and `X-Log-Complete` say how far it is."""
    workload = _job(gated_project(request), job).workload
    attempt = query.attempt or workload.epoch
    log = log_of(workload=workload, attempt=attempt, rank=query.rank)
    pieces = read_log(
        workload=workload,
        attempt=attempt,
        rank=query.rank,
        start=query.offset,
        length=query.limit,
    )
    answer = HttpResponse(b"".join(pieces), content_type="application/octet-stream")
    answer.headers["X-Log-Size"] = str(log.size_bytes)
    answer.headers["X-Log-Complete"] = "true" if log.is_complete else "false"
    answer.headers["X-Log-Attempt"] = str(attempt)
    return answer


@router.get("/projects/{project}/jobs/{job}/samples", auth=gate(_SEE), response=list[SampleOut])
def list_samples(request: HttpRequest, project: str, job: str) -> list[SampleOut]:
    """Return the use of CPU, memory and GPU of the present attempt, oldest first."""
    workload = _job(gated_project(request), job).workload
    leases = {lease.pk: lease.index for lease in Lease.objects.of_epoch(workload)}
    newest = UsageSample.objects.filter(lease__in=leases).order_by("-at")[:2000]
    return [
        SampleOut(
            at=sample.at,
            task=leases[sample.lease_id],
            cpu_percent=sample.cpu_percent,
            memory_bytes=sample.memory_bytes,
            gpu_percent=sample.gpu_percent,
            gpu_memory_bytes=sample.gpu_memory_bytes,
        )
        for sample in reversed(newest)
    ]
