"""Counts and costs of runs of pipelines, for pages and the API: a few queries for any number."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from django.db.models import Count

from portal.core import clock
from portal.pipelines.models import PipelineRun, StepJob, StepRun
from portal.workloads.costs import lease_cost, price_steps, unix_ms
from portal.workloads.models import Lease


@dataclass(frozen=True)
class PipelineSummary:
    """Numbers of a run. Money in nano-USD."""

    counts: dict[str, int] = field(default_factory=dict)
    cost_nano_usd: int = 0


def summaries_of(runs: Sequence[PipelineRun]) -> dict[str, PipelineSummary]:
    """Return the summaries by the ids of runs."""
    ids = [run.pk for run in runs]
    counts: dict[str, dict[str, int]] = {}
    steps = StepRun.objects.filter(run__in=ids, item__isnull=True).order_by()
    for run_id, state, number in steps.values_list("run", "state").annotate(number=Count("pk")):
        counts.setdefault(run_id, {})[state] = number
    jobs = StepJob.objects.filter(step_run__run__in=ids).order_by()
    costs = _costs(dict(jobs.values_list("job", "step_run__run")))
    return {run.pk: PipelineSummary(counts.get(run.pk, {}), costs.get(run.pk, 0)) for run in runs}


def step_of_job(job_id: str) -> StepRun | None:
    """Return the step, with its run, that a job belongs to, or None."""
    names = ("step_run__step", "step_run__item", "step_run__run__name")
    jobs = StepJob.objects.filter(job=job_id).select_related("step_run__run").only(*names)
    job = jobs.first()
    return None if job is None else job.step_run


def costs_of_steps(rows: Iterable[StepRun]) -> dict[str, int]:
    """Return what the jobs of each step have cost so far, in nano-USD, by the ids of steps."""
    jobs = StepJob.objects.filter(step_run__in=[row.pk for row in rows]).order_by()
    return _costs(dict(jobs.values_list("job", "step_run")))


def _costs(group_of: Mapping[str, str]) -> dict[str, int]:
    """Return the cost of workloads, added up by group."""
    leases = list(Lease.objects.filter(workload__in=list(group_of)))
    steps = price_steps({lease.tier_id for lease in leases}) if leases else {}
    now_ms = unix_ms(clock.now())
    costs: dict[str, int] = {}
    for lease in leases:
        group = group_of[lease.workload_id]
        cost = lease_cost(lease, steps.get(lease.tier_id, ()), until_ms=now_ms)
        costs[group] = costs.get(group, 0) + cost
    return costs
