"""Adapter that runs notebooks as jobs, since the apps notebooks and training are independent."""

from collections.abc import Iterable

from portal.accounts.models import Project, User
from portal.notebooks.ports import NotebookJobSpec, register_jobs
from portal.spend.presenters import with_cost
from portal.storage.ports import UploadDeclaration
from portal.training.services.jobs import admission_request, quote_job, submit_job
from portal.training.services.snapshots import ingest_snapshot
from portal.workloads.models import Workload
from slipway.schemas.training import JobIn, Quote

_NO_CODE = "0" * 64


class TrainingJobs:
    """Implementation of `notebooks.ports.Jobs` by the app training."""

    def store_code(self, *, project: Project, by: User, tar: Iterable[bytes]) -> str:
        """Store code and return its digest."""
        return ingest_snapshot(
            project=project, by=by, chunks=tar, promised=UploadDeclaration()
        ).digest

    def submit(self, *, project: Project, by: User, code: str, spec: NotebookJobSpec) -> Workload:
        """Queue the job."""
        return submit_job(project=project, by=by, requested=_body(code, spec)).workload

    def quote(self, *, project: Project, by: User, spec: NotebookJobSpec) -> Quote:
        """Return the cost estimate of the job. The code need not be stored yet."""
        body = _body(_NO_CODE, spec)
        quote = quote_job(project=project, spec=body)
        return with_cost(quote, admission_request(project=project, by=by, spec=body))


def _body(code: str, requested: NotebookJobSpec) -> JobIn:
    return JobIn(
        name=requested.name,
        snapshot=code,
        script=requested.script,
        args=[*requested.args],
        params=dict(requested.params),
        tier=requested.tier,
        requirements=requested.requirements,
        environment=requested.environment,
        max_hours=requested.max_hours,
        pool=requested.pool,
    )


register_jobs(TrainingJobs())
