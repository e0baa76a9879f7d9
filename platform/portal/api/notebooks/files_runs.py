"""Notebooks as jobs: verifications and runs with parameters."""

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router, Status

from portal.accounts.principal import require_principal
from portal.api.notebooks.file_serializers import run_out
from portal.api.notebooks.files import DOWN, PathQuery, notebook_answer
from portal.api.routing import gate
from portal.api.uploads import body_of
from portal.api.v1.serializers import PageParameters, page_of
from portal.core.errors import NotFound
from portal.core.pagination import Page, paginate
from portal.notebooks.file_gates import (
    NotebookRole,
    NotebookRunRole,
    OwnJob,
    gated_notebook,
    gated_own_job,
    gated_run,
)
from portal.notebooks.models import NotebookRun
from portal.notebooks.services.files import bytes_of, clean_path, version_of
from portal.notebooks.services.files_runs import (
    NotebookRunRequest,
    record_check_report,
    run_of_job,
    start_run,
    store_output,
)
from portal.storage.services import open_file
from portal.workloads.explanations import Explainer
from slipway.schemas.accounts import Role, Scope
from slipway.schemas.base import PageOf
from slipway.schemas.notebook_files import CheckReport, NotebookRunOut, RunIn, VerifyIn

router = Router(tags=["Notebook files"])
_RUN = NotebookRole(Role.CONTRIBUTOR, Scope.WORKLOADS_WRITE)
_SEE_RUN = NotebookRunRole(Role.VIEWER, Scope.WORKLOADS_READ)
_BYTES = {"schema": {"type": "string", "format": "binary"}}
_UP = {"requestBody": {"required": True, "content": {"application/octet-stream": _BYTES}}}


def _started(
    request: HttpRequest, number: int | None, wish: NotebookRunRequest
) -> Status[NotebookRunOut]:
    by = require_principal(request).user
    run = start_run(version=version_of(gated_notebook(request), number), by=by, wish=wish)
    project = run.workload.project
    fresh = run_of_job(project=project, workload_id=run.pk)
    return Status(201, run_out(fresh, Explainer(by)))


@router.post(
    "/projects/{project}/notebook-files/{notebook}/verify",
    auth=gate(_RUN),
    response={201: NotebookRunOut},
)
def verify_notebook(
    request: HttpRequest, project: str, notebook: str, payload: VerifyIn
) -> Status[NotebookRunOut]:
    """Run a version in a clean kernel, as a job, and report differing outputs."""
    wish = NotebookRunRequest(
        purpose="verify",
        tier=payload.tier,
        requirements=payload.requirements,
        environment=payload.environment,
    )
    return _started(request, payload.version, wish)


@router.post(
    "/projects/{project}/notebook-files/{notebook}/run",
    auth=gate(_RUN),
    response={201: NotebookRunOut},
)
def run_notebook(
    request: HttpRequest, project: str, notebook: str, payload: RunIn
) -> Status[NotebookRunOut]:
    """Run a version as a job, with values for its cell tagged `parameters`."""
    wish = NotebookRunRequest(
        purpose="run",
        tier=payload.tier,
        name=payload.name,
        params=payload.params,
        requirements=payload.requirements,
        environment=payload.environment,
        max_hours=payload.max_hours,
        pool=payload.pool,
    )
    return _started(request, payload.version, wish)


@router.get(
    "/projects/{project}/notebook-files/{notebook}/runs",
    auth=gate(NotebookRole(Role.VIEWER, Scope.WORKLOADS_READ)),
    response=PageOf[NotebookRunOut],
)
def list_notebook_runs(
    request: HttpRequest, project: str, notebook: str, page: PageParameters
) -> PageOf[NotebookRunOut]:
    """List the verifications and runs of a notebook, newest first."""
    file = gated_notebook(request)
    notebook_runs = NotebookRun.objects.of_project(file.project).filter(version__file=file)
    rows: Page[NotebookRun] = paginate(notebook_runs, cursor=page.cursor, limit=page.limit)
    explainer = Explainer(require_principal(request).user)
    return page_of(rows, lambda notebook_run: run_out(notebook_run, explainer))


@router.get("/projects/{project}/notebook-runs/{job}", auth=gate(_SEE_RUN), response=NotebookRunOut)
def get_notebook_run(request: HttpRequest, project: str, job: str) -> NotebookRunOut:
    """Get a notebook job, with the result of its verification."""
    return run_out(gated_run(request), Explainer(require_principal(request).user))


@router.get(
    "/projects/{project}/notebook-runs/{job}/output",
    auth=gate(_SEE_RUN),
    response=None,
    openapi_extra=DOWN,
)
def download_notebook_output(request: HttpRequest, project: str, job: str) -> HttpResponse:
    """Download the output notebook, complete or so far."""
    notebook_run = gated_run(request)
    if notebook_run.output is None:
        raise NotFound
    return notebook_answer(b"".join(open_file(file=notebook_run.output)), notebook_run.path)


@router.put(
    "/projects/{project}/notebook-runs/{job}/output",
    auth=gate(OwnJob()),
    response=NotebookRunOut,
    openapi_extra=_UP,
)
def upload_notebook_output(
    request: HttpRequest, project: str, job: str, query: Query[PathQuery]
) -> NotebookRunOut:
    """Store the output notebook of a job, replacing the last one. Only the job may."""
    workload = gated_own_job(request)
    content = bytes_of(body_of(request))
    kept = store_output(workload=workload, path=clean_path(query.path), content=content)
    return run_out(kept, Explainer(workload.submitted_by))


@router.put(
    "/projects/{project}/notebook-runs/{job}/report",
    auth=gate(OwnJob()),
    response=NotebookRunOut,
)
def upload_verification_report(
    request: HttpRequest, project: str, job: str, payload: CheckReport
) -> NotebookRunOut:
    """Store the result of a verification, once. Only the job may."""
    workload = gated_own_job(request)
    notebook_run = run_of_job(project=workload.project, workload_id=workload.pk)
    kept = record_check_report(run=notebook_run, report=payload)
    return run_out(kept, Explainer(workload.submitted_by))
