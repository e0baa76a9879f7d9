"""Counts and costs of runs of pipelines, for pages and the API: a few queries for any number."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from django.db.models import Count

from portal.core import clock
from portal.pipelines.models import PipelineRun, StepJob, StepRun, StepSweep
from portal.sweeps.models import Sweep, Trial
from portal.sweeps.summaries import costs_of_sweeps
from portal.workloads.costs import lease_cost, price_steps, unix_ms
from portal.workloads.models import Lease
from slipway.schemas.pipelines import StepState
from slipway.schemas.sweeps import TrialState


@dataclass(frozen=True)
class PipelineSummary:
    """Numbers of a run. Money in nano-USD."""

    counts: dict[str, int] = field(default_factory=dict)
    cost_nano_usd: int = 0


def summaries_of(runs: Sequence[PipelineRun]) -> dict[str, PipelineSummary]:
    """Return the summaries by the ids of runs."""
    ids = [run.pk for run in runs]
    counts: dict[str, Counter[str]] = {}
    with_sweeps: set[str] = set()
    steps = StepRun.objects.filter(run__in=ids, item__isnull=True).order_by()
    numbers = steps.values_list("run", "state", "kind").annotate(number=Count("pk"))
    for run_id, state, kind, number in numbers:
        counts.setdefault(run_id, Counter())[state] += number
        if kind == "sweep":
            with_sweeps.add(run_id)
    jobs = StepJob.objects.filter(step_run__run__in=ids).order_by()
    sweeps = StepSweep.objects.filter(step_run__run__in=with_sweeps).order_by()
    costs = _costs(
        dict(jobs.values_list("job", "step_run__run")),
        dict(sweeps.values_list("sweep", "step_run__run")) if with_sweeps else {},
    )
    return {
        run.pk: PipelineSummary(dict(counts.get(run.pk, {})), costs.get(run.pk, 0)) for run in runs
    }


def step_of_job(job_id: str) -> StepRun | None:
    """Return the step, with its run, that a job belongs to, or None."""
    names = ("step_run__step", "step_run__item", "step_run__run__name")
    jobs = StepJob.objects.filter(job=job_id).select_related("step_run__run").only(*names)
    job = jobs.first()
    return None if job is None else job.step_run


def step_of_sweep(sweep_id: str) -> StepRun | None:
    """Return the step, with its run, that a sweep belongs to, or None."""
    names = ("step_run__step", "step_run__item", "step_run__run__name")
    sweeps = StepSweep.objects.filter(sweep=sweep_id).select_related("step_run__run").only(*names)
    sweep = sweeps.first()
    return None if sweep is None else sweep.step_run


def reasons_of_sweeps(rows: Iterable[StepRun]) -> dict[str, str]:
    """Return why the sweeps of running steps go on or are paused, by their ids, in two queries."""
    ids = [row.sweep_id for row in rows if row.sweep_id and row.status == StepState.RUNNING]
    if not ids:
        return {}
    ended = Trial.objects.filter(sweep__in=ids).exclude(state=TrialState.RUNNING).order_by()
    counts = dict(ended.values_list("sweep").annotate(number=Count("pk")))
    sweeps = Sweep.objects.filter(pk__in=ids).only("trials", "explanation")
    return {
        sweep.pk: sweep.explanation
        or f"{counts.get(sweep.pk, 0)} of {sweep.trials} trials have ended."
        for sweep in sweeps
    }


def costs_of_steps(rows: Iterable[StepRun]) -> dict[str, int]:
    """Return what the work of each step has cost so far, in nano-USD, by the ids of steps."""
    kinds = {row.pk: row.kind for row in rows}
    jobs = StepJob.objects.filter(step_run__in=list(kinds)).order_by()
    with_sweeps = [pk for pk, kind in kinds.items() if kind == "sweep"]
    sweeps = StepSweep.objects.filter(step_run__in=with_sweeps).order_by()
    return _costs(
        dict(jobs.values_list("job", "step_run")),
        dict(sweeps.values_list("sweep", "step_run")) if with_sweeps else {},
    )


def _costs(group_of: Mapping[str, str], group_of_sweep: Mapping[str, str]) -> dict[str, int]:
    """Return the cost of jobs and of sweeps, added up by group."""
    leases = list(Lease.objects.filter(workload__in=list(group_of)))
    steps = price_steps({lease.tier_id for lease in leases}) if leases else {}
    now_ms = unix_ms(clock.now())
    costs: Counter[str] = Counter()
    for lease in leases:
        cost = lease_cost(lease, steps.get(lease.tier_id, ()), until_ms=now_ms)
        costs[group_of[lease.workload_id]] += cost
    if group_of_sweep:
        for sweep_id, cost in costs_of_sweeps(list(group_of_sweep)).items():
            costs[group_of_sweep[sweep_id]] += cost
    return dict(costs)
