"""Presenters of jobs: labels of states, duration and cost."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from portal.accounts.models import Project, User
from portal.accounts.principal import Principal
from portal.core.errors import NotFound
from portal.training.models import Job, JobQuerySet
from portal.web.workloads.presenters import WorkloadStatus, present_leases, step_of
from portal.workloads.explanations import Explainer
from portal.workloads.kept_tasks import kept_until_text
from portal.workloads.lifecycle import WAITING
from portal.workloads.models import Workload
from slipway.schemas.workloads import WorkloadState

MOST_LOOKED_AT = 2000  # of each queue: jobs further back have many ahead of them
_S = WorkloadState
# Filters of a list, and their states.
GROUPS: dict[str, tuple[str, frozenset[WorkloadState]]] = {
    "running": ("Running", frozenset({_S.PLACED, _S.STARTING, _S.RUNNING, _S.STOPPING})),
    "waiting": ("Waiting", WAITING),
    "succeeded": ("Succeeded", frozenset({_S.SUCCEEDED})),
    "failed": ("Failed", frozenset({_S.FAILED, _S.LOST})),
    "stopped": ("Stopped", frozenset({_S.STOPPED})),
}


@dataclass(frozen=True, kw_only=True)
class JobStatus(WorkloadStatus):
    """Status of a job."""

    job: Job


def jobs_of(project: Project) -> JobQuerySet:
    """Return the jobs of a project with what a list of them shows."""
    return Job.objects.of_project(project).prefetch_related("workload__leases__node")


def visible_jobs(principal: Principal) -> JobQuerySet:
    """Return the jobs of every project the person sees, with what a list of them shows."""
    jobs = Job.objects.filter(workload__project__in=principal.projects().live())
    jobs = jobs.select_related("workload__project", "workload__tier", "workload__submitted_by")
    return jobs.prefetch_related("workload__leases__node", "workload__tier__prices")


def job_of(project: Project, job_id: str) -> Job:
    """Return one job by the id of its workload, which is the public one, or raise NotFound."""
    job = jobs_of(project).filter(workload_id=job_id).first()
    if job is None:
        raise NotFound
    return job


def job_status(job: Job, viewer: User) -> JobStatus:
    """Return the status of one job."""
    why = Explainer(viewer).explain(job.workload)
    return JobStatus.of(job.workload, why, job=job)


def job_statuses(
    jobs: Sequence[Job], viewer: User, *, explains_first: bool = False
) -> list[JobStatus]:
    """Return the status of several jobs, with a fixed number of queries.

    Waiting jobs have their position in the queue. With `explains_first`, the first in the queue has
    the full explanation, for jobs of one project.
    """
    positions = _queue_positions(jobs)
    explainer = Explainer(viewer) if explains_first else None
    return [
        JobStatus.of(job.workload, _short_reason(job.workload, positions, explainer), job=job)
        for job in jobs
    ]


def _queue_positions(jobs: Sequence[Job]) -> dict[str, int]:
    """Return the places in the queues of their projects of jobs that wait, from 1."""
    waiting = {job.workload.project_id for job in jobs if job.workload.status == _S.QUEUED}
    if not waiting:
        return {}
    queues = Workload.objects.queued().filter(project__in=waiting)
    reached: Counter[str] = Counter()
    positions: dict[str, int] = {}
    for pk, project_id in queues.values_list("pk", "project_id")[:MOST_LOOKED_AT]:
        reached[project_id] += 1
        positions[pk] = reached[project_id]
    return positions


def _short_reason(
    workload: Workload, positions: dict[str, int], explainer: Explainer | None
) -> str:
    state = workload.status
    if workload.is_kept:
        return f"Failed: {kept_until_text(workload)}"
    if state == _S.QUEUED:
        place = positions.get(workload.pk)
        if place == 1:
            return explainer.explain(workload) if explainer else "Waiting: next in its queue."
        ahead = "many are" if place is None else f"{place - 1} are" if place > 2 else "1 is"
        return f"Waiting: {ahead} ahead of it in the queue of its project."
    if state in (_S.PLACED, _S.STARTING, _S.RUNNING):
        return _location_text(workload)
    if state == _S.SUBMITTED:
        return f"Held back: {workload.hold or 'it is being admitted.'}"
    return workload.reason_text


def _location_text(workload: Workload) -> str:
    leases = present_leases(workload)
    names = sorted({lease.node.name for lease in leases})
    place = f"node {names[0]}" if len(names) == 1 else f"{len(names)} nodes"
    verb = "Running" if workload.status == _S.RUNNING else "Starting"
    step = step_of(leases)
    return f"{verb} on {place}" + (f", at step {step}." if step is not None else ".")
