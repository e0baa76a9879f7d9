"""Counts, best trial and cost of sweeps, for pages and the API: a few queries for any number."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.db.models import Case, CharField, Count, F, OuterRef, Subquery, When

from portal.core import clock
from portal.sweeps.models import Sweep, Trial, TrialJob
from portal.workloads.costs import cost_of_workloads, unix_ms
from slipway.schemas.sweeps import SweepState, TrialState


@dataclass(frozen=True)
class SweepSummary:
    """Numbers of a sweep. Money in nano-USD; what is expected is None until a trial has ended."""

    counts: dict[str, int] = field(default_factory=dict)
    best: Trial | None = None
    cost_nano_usd: int = 0
    expected_nano_usd: int | None = None
    expected_end: datetime | None = None


def summaries_of(sweeps: Sequence[Sweep]) -> dict[str, SweepSummary]:
    """Return the summaries by the ids of sweeps."""
    ids = [sweep.pk for sweep in sweeps]
    counts: dict[str, dict[str, int]] = {}
    rows = Trial.objects.filter(sweep__in=ids).order_by().values_list("sweep", "state")
    for sweep_id, state, number in rows.annotate(number=Count("pk")):
        counts.setdefault(sweep_id, {})[state] = number
    best = _best_of(ids)
    return {
        sweep.pk: _summary(sweep, counts.get(sweep.pk, {}), best.get(sweep.pk)) for sweep in sweeps
    }


def _best_of(ids: Sequence[str]) -> dict[str, Trial]:
    complete = Trial.objects.filter(sweep=OuterRef("pk"), state=TrialState.COMPLETE)
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


def _summary(sweep: Sweep, counts: dict[str, int], best: Trial | None) -> SweepSummary:
    if not counts:
        return SweepSummary()
    now = clock.now()
    jobs = TrialJob.objects.filter(trial__sweep=sweep)
    cost = cost_of_workloads(jobs.values("job"), until_ms=unix_ms(now))
    ended = Trial.objects.filter(sweep=sweep, ended_at__isnull=False)
    times = list(ended.values_list("created_at", "ended_at"))
    if sweep.status != SweepState.RUNNING or not times:
        return SweepSummary(counts, best, cost)
    left = sweep.trials - len(times)
    seconds = sum((end - begin).total_seconds() for begin, end in times if end) / len(times)
    of_ended = jobs.filter(trial__ended_at__isnull=False).values("job")
    each = cost_of_workloads(of_ended, until_ms=unix_ms(now)) / len(times)
    return SweepSummary(
        counts,
        best,
        cost,
        expected_nano_usd=max(cost, round(each * sweep.trials)),
        expected_end=now + timedelta(seconds=seconds * math.ceil(left / sweep.parallel)),
    )
