"""Operations on training jobs and code snapshots."""

from typing import Annotated

from django.http import HttpRequest
from ninja import Query, Router, Status
from pydantic import Field

from portal.accounts.gates import ProjectRole, gated_project
from portal.accounts.models import User
from portal.accounts.principal import require_principal
from portal.api.routing import gate
from portal.api.uploads import body_of
from portal.api.v1.files import promised_by
from portal.api.v1.job_serializers import job_out, snapshot_out
from portal.api.v1.serializers import PageQuery, page_of
from portal.core.errors import NotFound
from portal.core.pagination import Page, paginate
from portal.core.streams import ByteStream, release_connection
from portal.spend.presenters import with_cost
from portal.storage.services import open_file
from portal.training.gates import JobRole, gated_job
from portal.training.models import Job
from portal.training.services import jobs as job_services
from portal.training.services.jobs import (
    admission_request,
    submit_job,
)
from portal.training.services.snapshots import ingest_snapshot, snapshot_of
from portal.workloads.explanations import Explainer
from slipway.schemas.accounts import Role, Scope
from slipway.schemas.base import Line, PageOf
from slipway.schemas.training import JobEdit, JobIn, JobOut, Quote, SnapshotOut
from slipway.schemas.workloads import WorkloadState

router = Router(tags=["Jobs"])
_SEE = ProjectRole(Role.VIEWER, Scope.WORKLOADS_READ)
_RUN = ProjectRole(Role.CONTRIBUTOR, Scope.WORKLOADS_WRITE)
_BYTES = {"schema": {"type": "string", "format": "binary"}}
_TAR_UP = {
    "requestBody": {"required": True, "content": {"application/octet-stream": _BYTES}},
}
_TAR_DOWN = {
    "responses": {200: {"description": "The tar", "content": {"application/x-tar": _BYTES}}}
}
Short = Annotated[Line, Field(max_length=254)]


class JobsQuery(PageQuery):
    """Filters, all of which must match."""

    state: WorkloadState | None = None
    q: Annotated[Line, Field(max_length=100)] = ""
    submitted_by: Short = ""
    tier: Short = ""


def shown(job: Job, viewer: User) -> JobOut:
    """Serialize a job after a change."""
    fresh = Job.objects.of_project(job.workload.project).get(pk=job.pk)
    return job_out(fresh, Explainer(viewer))


@router.post(
    "/projects/{project}/snapshots",
    auth=gate(_RUN),
    response={201: SnapshotOut},
    openapi_extra=_TAR_UP,
)
def upload_snapshot(request: HttpRequest, project: str) -> Status[SnapshotOut]:
    """Upload code as a tar, of type application/octet-stream and at most 500 MiB.

    Declare the SHA-256 in X-Slipway-Sha256 (hex) to have the bytes verified. The same bytes give
    the same snapshot.
    """
    project_row, user = gated_project(request), require_principal(request).user
    promised = promised_by(request)
    release_connection()
    made = ingest_snapshot(project=project_row, by=user, chunks=body_of(request), promised=promised)
    return Status(201, snapshot_out(made))


@router.get(
    "/projects/{project}/snapshots/{digest}",
    auth=gate(_SEE),
    response=None,
    openapi_extra=_TAR_DOWN,
)
def download_snapshot(request: HttpRequest, project: str, digest: str) -> ByteStream:
    """Download the code of a job, as the tar that was uploaded. It is verified."""
    snapshot = snapshot_of(gated_project(request), digest)
    if snapshot is None:
        raise NotFound
    answer = ByteStream(open_file(file=snapshot.file), content_type="application/x-tar")
    answer.headers["Content-Length"] = str(snapshot.file.blob.size_bytes)
    answer.headers["Content-Disposition"] = f'attachment; filename="{snapshot.digest[:12]}.tar"'
    answer.headers["Cache-Control"] = "private, no-store"
    return answer


@router.get("/projects/{project}/jobs", auth=gate(_SEE), response=PageOf[JobOut])
def list_jobs(request: HttpRequest, project: str, query: Query[JobsQuery]) -> PageOf[JobOut]:
    """List the project's jobs, newest first."""
    jobs = Job.objects.of_project(gated_project(request)).matching(
        state=query.state or "", text=query.q, submitted_by=query.submitted_by, tier=query.tier
    )
    page: Page[Job] = paginate(jobs, cursor=query.cursor, limit=query.limit)
    explainer = Explainer(require_principal(request).user)
    return page_of(page, lambda job: job_out(job, explainer))


@router.post("/projects/{project}/jobs", auth=gate(_RUN), response={201: JobOut})
def create_job(request: HttpRequest, project: str, payload: JobIn) -> Status[JobOut]:
    """Submit a job. Requests that can never run are refused before anything is queued."""
    user = require_principal(request).user
    job = submit_job(project=gated_project(request), by=user, requested=payload)
    return Status(201, shown(job, user))


@router.post("/projects/{project}/jobs/quote", auth=gate(_RUN), response=Quote)
def quote_job(request: HttpRequest, project: str, payload: JobIn) -> Quote:
    """Get the price of a job, and whether it could start now. Nothing is queued.

    The snapshot need not be uploaded yet.
    """
    project_row, by = gated_project(request), require_principal(request).user
    quote = job_services.quote_job(project=project_row, spec=payload)
    return with_cost(quote, admission_request(project=project_row, by=by, spec=payload))


@router.get(
    "/projects/{project}/jobs/{job}",
    auth=gate(JobRole(Role.VIEWER, Scope.WORKLOADS_READ)),
    response=JobOut,
)
def get_job(request: HttpRequest, project: str, job: str) -> JobOut:
    """Get a job."""
    explainer = Explainer(require_principal(request).user)
    return job_out(gated_job(request), explainer, with_files=True)


@router.post(
    "/projects/{project}/jobs/{job}/cancel",
    auth=gate(JobRole(Role.CONTRIBUTOR, Scope.WORKLOADS_WRITE)),
    response=JobOut,
)
def cancel_job(request: HttpRequest, project: str, job: str) -> JobOut:
    """Cancel a job. Its ranks may save a checkpoint first. An ended job stays unchanged."""
    user = require_principal(request).user
    return shown(job_services.cancel_job(job=gated_job(request), by=user), user)


@router.post(
    "/projects/{project}/jobs/{job}/resume",
    auth=gate(JobRole(Role.CONTRIBUTOR, Scope.WORKLOADS_WRITE)),
    response=JobOut,
)
def resume_job(request: HttpRequest, project: str, job: str) -> JobOut:
    """Resume a job that a budget stopped, from its latest checkpoint."""
    user = require_principal(request).user
    return shown(job_services.resume_job(job=gated_job(request), by=user), user)


@router.post(
    "/projects/{project}/jobs/{job}/clone",
    auth=gate(JobRole(Role.CONTRIBUTOR, Scope.WORKLOADS_WRITE)),
    response={201: JobOut},
)
def clone_job(request: HttpRequest, project: str, job: str, payload: JobEdit) -> Status[JobOut]:
    """Submit a copy of a job, with changes. `params` and `args` replace all of its own."""
    user = require_principal(request).user
    made = job_services.clone_job(job=gated_job(request), by=user, edit=payload)
    return Status(201, shown(made, user))
