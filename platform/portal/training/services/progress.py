"""Progress of a job, from its leases, checkpoints and logs."""

from dataclasses import dataclass

from portal.core import clock
from portal.training.models import Job
from portal.workloads.costs import unix_ms, workload_cost
from portal.workloads.services.logs import ranks_with_logs


@dataclass(frozen=True)
class JobProgress:
    """Values of a job that change while it runs, in addition to its workload.

    `step` is that of the slowest task that reports one, `resumable_step` the newest checkpoint's.
    `first_step_after_s` counts from submission.
    """

    cost_nano_usd: int
    first_step_after_s: float | None
    step: int | None
    resumable_step: int | None
    log_ranks: list[int]


def progress_of(job: Job) -> JobProgress:
    """Return how far a job of `JobQuerySet.of_project` has come."""
    workload = job.workload
    leases = list(workload.leases.all())
    first = [lease.first_step_at for lease in leases if lease.first_step_at]
    steps = [lease.step for lease in leases if lease.epoch == workload.epoch and lease.step]
    return JobProgress(
        cost_nano_usd=workload_cost(workload, until_ms=unix_ms(clock.now())),
        first_step_after_s=(min(first) - job.created_at).total_seconds() if first else None,
        step=min(steps) if steps else None,
        resumable_step=max((saved.step for saved in job.checkpoints.all()), default=None),
        log_ranks=ranks_with_logs(workload=workload, leases=leases),
    )
