"""Importance of the parameters of sweeps, kept up to date while trials end.

It is estimated from complete trials alone, again and again while they grow in number: each time
there are a quarter more, and once more at the end. So all estimates of a sweep together take a few
seconds of a processor.
"""

from datetime import timedelta

import structlog
from django.db.models import Count

from portal.core import clock
from portal.sweeps.factories import importance_estimator
from portal.sweeps.models import Sweep, Trial
from portal.sweeps.ports import PastTrial
from slipway.schemas.sweeps import LEAST_FOR_IMPORTANCE, SweepState, TrialState

log = structlog.get_logger(__name__)
# The time of an estimate grows with the square of the number: 0.5 s for 200.
MOST_TRIALS = 200
_GROWTH = 1.25
_AFTER_THE_END = timedelta(days=1)
_AT_ONCE = 4


def update_importances() -> int:
    """Estimate the importance for sweeps with many new trials, a few at once; return how many."""
    recent = Sweep.objects.recent(clock.now() - _AFTER_THE_END)
    complete = Trial.objects.filter(sweep__in=recent.values("pk"), state=TrialState.COMPLETE)
    counts = dict(complete.order_by().values_list("sweep").annotate(number=Count("pk")))
    sweeps = recent.filter(pk__in=counts).order_by("pk")
    due = [sweep for sweep in sweeps if _is_due(sweep, counts[sweep.pk])]
    return sum(map(_update, due[:_AT_ONCE]))


def _is_due(sweep: Sweep, complete: int) -> bool:
    if complete < LEAST_FOR_IMPORTANCE or complete <= sweep.importance_of:
        return False
    is_open = sweep.status in (SweepState.RUNNING, SweepState.PAUSED)
    return not is_open or complete >= sweep.importance_of * _GROWTH


def _update(sweep: Sweep) -> int:
    rows = Trial.objects.filter(sweep=sweep, state=TrialState.COMPLETE, value__isnull=False)
    trials = [
        PastTrial(number=number, values=values, value=value, is_running=False)
        for number, values, value in rows.order_by("number").values_list(
            "number", "values", "value"
        )
    ]
    # Spread over the whole sweep: its later trials alone are all near the best.
    spread = trials[:: -(-len(trials) // MOST_TRIALS)]
    importance = dict(importance_estimator().estimate(sweep.parameters, spread))
    log.info("importance_estimated", sweep=sweep.pk, trials=len(spread))
    same = Sweep.objects.filter(pk=sweep.pk, importance_of=sweep.importance_of)
    return same.update(importance=importance, importance_of=len(trials))
