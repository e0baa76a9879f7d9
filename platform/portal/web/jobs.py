"""Presenters of jobs: labels of states, duration and cost."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from portal.accounts.models import Project, User
from portal.accounts.principal import Principal
from portal.core import clock
from portal.core.errors import NotFound
from portal.training.models import Job, JobQuerySet
from portal.training.services.jobs import cost_of, price_of
from portal.workloads.costs import unix_ms
from portal.workloads.explanations import Explainer
from portal.workloads.lifecycle import ENDS, WAITING
from portal.workloads.models import Lease, Workload
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
_WORDS = {
    _S.SUBMITTED: ("held", "warn"),
    _S.ADMITTED: ("waiting", "warn"),
    _S.QUEUED: ("waiting", "warn"),
    _S.PLACED: ("starting", "strong"),
    _S.STARTING: ("starting", "strong"),
    _S.RUNNING: ("running", "strong"),
    _S.STOPPING: ("stopping", "warn"),
    _S.SUCCEEDED: ("succeeded", "ok"),
    _S.FAILED: ("failed", "bad"),
    _S.STOPPED: ("stopped", ""),
    _S.LOST: ("lost", "bad"),
}


@dataclass(frozen=True)
class JobStatus:
    """Status of a job: its state in one word, an explanation, duration and cost so far.

    `began` is when it started to run, or when it was submitted if it has not started. `until` is
    None while the duration still grows. Money in nano-USD. `rate` is the present cost per hour.
    """

    job: Job
    workload: Workload
    word: str
    tone: str
    why: str
    began: datetime
    until: datetime | None
    cost: int
    rate: int
    step: int | None

    @property
    def is_over(self) -> bool:
        """True if the job has ended."""
        return self.workload.status in ENDS

    @property
    def is_active(self) -> bool:
        """True if the job holds hardware now."""
        return not self.is_over and self.workload.status not in WAITING

    @property
    def is_waiting(self) -> bool:
        """True if the job waits in the queue."""
        return self.workload.status in WAITING

    @property
    def lasted(self) -> timedelta:
        """Duration of the run, or of the wait so far."""
        return (self.until or clock.now()) - self.began


def jobs_of(project: Project) -> JobQuerySet:
    """Return the jobs of a project with what a list of them shows."""
    return Job.objects.of_project(project).prefetch_related("workload__leases__node")


def jobs_in_sight(principal: Principal) -> JobQuerySet:
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


def standing_of(job: Job, viewer: User) -> JobStatus:
    """Return the status of one job."""
    return _standing(job, Explainer(viewer).explain(job.workload))


def standings_of(
    jobs: Sequence[Job], viewer: User, *, explains_first: bool = False
) -> list[JobStatus]:
    """Return the status of several jobs, with a fixed number of queries.

    Waiting jobs have their position in the queue. With `explains_first`, the first in the queue has
    the full explanation, for jobs of one project.
    """
    positions = _positions(jobs)
    explainer = Explainer(viewer) if explains_first else None
    return [_standing(job, _brief(job.workload, positions, explainer)) for job in jobs]


def _positions(jobs: Sequence[Job]) -> dict[str, int]:
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


def _brief(workload: Workload, positions: dict[str, int], explainer: Explainer | None) -> str:
    state = workload.status
    if state == _S.QUEUED:
        place = positions.get(workload.pk)
        if place == 1:
            return explainer.explain(workload) if explainer else "Waiting: it is next in its queue."
        ahead = "many go" if place is None else f"{place - 1} go" if place > 2 else "1 goes"
        return f"Waiting: {ahead} first in the queue of its project."
    if state in (_S.PLACED, _S.STARTING, _S.RUNNING):
        return _where(workload)
    if state == _S.SUBMITTED:
        return f"Held back: {workload.hold or 'it is being admitted.'}"
    return workload.reason_text


def _where(workload: Workload) -> str:
    leases = _present(workload)
    names = sorted({lease.node.name for lease in leases})
    place = f"node {names[0]}" if len(names) == 1 else f"{len(names)} nodes"
    verb = "Running" if workload.status == _S.RUNNING else "Starting"
    step = _step(leases)
    return f"{verb} on {place}" + (f", at step {step}." if step is not None else ".")


def _present(workload: Workload) -> list[Lease]:
    return [lease for lease in workload.leases.all() if lease.epoch == workload.epoch]


def _step(leases: Sequence[Lease]) -> int | None:
    return min((lease.step for lease in leases if lease.step is not None), default=None)


def _standing(job: Job, why: str) -> JobStatus:
    workload = job.workload
    word, tone = _WORDS[workload.status]
    runs = any(lease.is_open for lease in workload.leases.all())
    waits = workload.status in WAITING
    return JobStatus(
        job=job,
        workload=workload,
        word=word,
        tone=tone,
        why=why,
        began=workload.waits_since if waits else workload.started_at or workload.created_at,
        until=workload.ended_at,
        cost=cost_of(workload, until_ms=unix_ms(clock.now())),
        rate=price_of(workload) if runs else 0,
        step=_step(_present(workload)),
    )
