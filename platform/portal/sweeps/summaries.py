"""Counts, best trial and cost of sweeps, for pages and the API: a few queries for any number."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.db.models import (
    Avg,
    Case,
    CharField,
    Count,
    DurationField,
    ExpressionWrapper,
    F,
    OuterRef,
    Subquery,
    When,
)

from portal.core import clock
from portal.sweeps.models import Sweep, Trial, TrialJob, TrialRepeat
from portal.workloads.costs import lease_cost, price_steps, unix_ms
from portal.workloads.models import Lease
from slipway.schemas.sweeps import SweepState, TrialState

# Databases limit the number of variables of a query.
_AT_ONCE = 10_000
_TRIAL = ("trial__sweep", "trial__state")
# Costs of repeats are beside those of the states of trials.
_REPEATS = "repeats"


@dataclass(frozen=True)
class SweepSummary:
    """Numbers of a sweep. Money in nano-USD; what is expected is None until a trial has ended.

    `saved_nano_usd` is how much less the pruned trials have cost than as many complete ones, None
    while there are none of either. With several metrics there is no best trial. `infeasible` of the
    complete trials violate a constraint.
    """

    counts: dict[str, int] = field(default_factory=dict)
    best: Trial | None = None
    infeasible: int = 0
    cost_nano_usd: int = 0
    expected_nano_usd: int | None = None
    expected_end: datetime | None = None
    saved_nano_usd: int | None = None


def summaries_of(sweeps: Sequence[Sweep]) -> dict[str, SweepSummary]:
    """Return the summaries by the ids of sweeps."""
    ids = [sweep.pk for sweep in sweeps]
    counts: dict[str, dict[str, int]] = {}
    rows = Trial.objects.filter(sweep__in=ids).order_by().values_list("sweep", "state")
    for sweep_id, state, number in rows.annotate(number=Count("pk")):
        counts.setdefault(sweep_id, {})[state] = number
    infeasible = _infeasible_of([sweep.pk for sweep in sweeps if sweep.constraints])
    best = _best_of([sweep.pk for sweep in sweeps if not sweep.other_metrics])
    costs = _costs_of(ids)
    durations = _durations_of(ids)
    return {
        sweep.pk: _summary(
            sweep,
            counts.get(sweep.pk, {}),
            best.get(sweep.pk),
            infeasible.get(sweep.pk, 0),
            costs.get(sweep.pk, _Cost()),
            durations.get(sweep.pk),
        )
        for sweep in sweeps
    }


def costs_of_sweeps(ids: Sequence[str]) -> dict[str, int]:
    """Return what the jobs of sweeps have cost so far, in nano-USD, by the ids of sweeps."""
    return {sweep_id: cost.total for sweep_id, cost in _costs_of(ids).items()}


def costs_of_trials(trials: Iterable[Trial]) -> dict[str, int]:
    """Return what the jobs of each trial have cost so far, in nano-USD, by the ids of trials."""
    rows = TrialJob.objects.filter(trial__in=[trial.pk for trial in trials])
    trial_of = dict(rows.values_list("job", "trial"))
    costs: dict[str, int] = {}
    for workload_id, cost in _costs_of_workloads(trial_of).items():
        trial_id = trial_of[workload_id]
        costs[trial_id] = costs.get(trial_id, 0) + cost
    return costs


@dataclass
class _Cost:
    """Cost of the jobs of a sweep in nano-USD, by the states of their trials."""

    by_state: dict[str, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """Cost of all jobs."""
        return sum(self.by_state.values())

    @property
    def of_ended(self) -> int:
        """Cost of the jobs whose trial has ended."""
        return self.total - self.by_state.get(TrialState.RUNNING, 0) - self.of_repeats

    @property
    def of_repeats(self) -> int:
        """Cost of the jobs that repeat trials with other seeds."""
        return self.by_state.get(_REPEATS, 0)

    def saved(self, counts: dict[str, int]) -> int | None:
        """Return how much less pruned trials have cost than as many complete ones."""
        complete, pruned = counts.get(TrialState.COMPLETE), counts.get(TrialState.PRUNED)
        if not complete or not pruned:
            return None
        whole = self.by_state.get(TrialState.COMPLETE, 0) * pruned // complete
        return max(0, whole - self.by_state.get(TrialState.PRUNED, 0))


def _costs_of(sweep_ids: Sequence[str]) -> dict[str, _Cost]:
    rows = TrialJob.objects.filter(trial__sweep__in=sweep_ids)
    jobs = {job: (sweep, state) for job, sweep, state in rows.values_list("job", *_TRIAL)}
    repeats = TrialRepeat.objects.filter(trial__sweep__in=sweep_ids)
    jobs |= {job: (sweep, _REPEATS) for job, sweep in repeats.values_list("job", "trial__sweep")}
    costs: dict[str, _Cost] = {}
    for workload_id, nano_usd in _costs_of_workloads(jobs).items():
        sweep_id, state = jobs[workload_id]
        by_state = costs.setdefault(sweep_id, _Cost()).by_state
        by_state[state] = by_state.get(state, 0) + nano_usd
    return costs


def _costs_of_workloads(ids: Iterable[str]) -> dict[str, int]:
    """Return what workloads have cost so far. Those without a lease are left out."""
    until_ms = unix_ms(clock.now())
    leases: list[Lease] = []
    workload_ids = list(ids)
    for start in range(0, len(workload_ids), _AT_ONCE):
        leases += Lease.objects.filter(workload__in=workload_ids[start : start + _AT_ONCE])
    steps = price_steps({lease.tier_id for lease in leases}) if leases else {}
    costs: dict[str, int] = {}
    for lease in leases:
        cost = lease_cost(lease, steps.get(lease.tier_id, ()), until_ms=until_ms)
        costs[lease.workload_id] = costs.get(lease.workload_id, 0) + cost
    return costs


def _durations_of(sweep_ids: Sequence[str]) -> dict[str, timedelta]:
    """Return the mean duration of the trials that have ended, by the ids of sweeps."""
    duration = ExpressionWrapper(F("ended_at") - F("created_at"), output_field=DurationField())
    ended = Trial.objects.filter(sweep__in=sweep_ids, ended_at__isnull=False).order_by()
    return dict(ended.values_list("sweep").annotate(mean=Avg(duration)))


def _infeasible_of(ids: Sequence[str]) -> dict[str, int]:
    if not ids:
        return {}
    trials = Trial.objects.filter(sweep__in=ids, state=TrialState.COMPLETE, is_feasible=False)
    return dict(trials.order_by().values_list("sweep").annotate(number=Count("pk")))


def _best_of(ids: Sequence[str]) -> dict[str, Trial]:
    complete = Trial.objects.filter(
        sweep=OuterRef("pk"), state=TrialState.COMPLETE, is_feasible=True
    )
    highest = complete.order_by("-value", "number").values("pk")[:1]
    lowest = complete.order_by("value", "number").values("pk")[:1]
    trial = Case(
        When(goal="max", then=Subquery(highest)),
        default=Subquery(lowest),
        output_field=CharField(),
    )
    sweeps = Sweep.objects.filter(pk__in=ids).order_by().annotate(best=trial)
    by_sweep = dict(sweeps.values_list("pk", F("best")))
    trials = Trial.objects.in_bulk([pk for pk in by_sweep.values() if pk])
    return {sweep: trials[pk] for sweep, pk in by_sweep.items() if pk}


def _summary(
    sweep: Sweep,
    counts: dict[str, int],
    best: Trial | None,
    infeasible: int,
    cost: _Cost,
    duration: timedelta | None,
) -> SweepSummary:
    ended = sum(counts.values()) - counts.get(TrialState.RUNNING, 0)
    # A trial may end between the queries, so there can be a duration without an ended trial.
    if sweep.status != SweepState.RUNNING or duration is None or not ended:
        return SweepSummary(counts, best, infeasible, cost.total, saved_nano_usd=cost.saved(counts))
    rounds = math.ceil((sweep.trials - ended) / sweep.parallel)
    return SweepSummary(
        counts,
        best,
        infeasible,
        cost.total,
        expected_nano_usd=max(
            cost.total, cost.of_repeats + round(cost.of_ended / ended * sweep.trials)
        ),
        expected_end=clock.now() + duration * rounds,
        saved_nano_usd=cost.saved(counts),
    )
