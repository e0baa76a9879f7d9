"""Earlier trials that a suggestion depends on, read from rows: a few hundred for any sweep.

TPE models the best tenth of the trials, 25 at most, and the others. So the best and the newest are
enough, and a suggestion costs as much after 10,000 trials as after a few hundred. With several
metrics the best are those on the front.
"""

from collections.abc import Sequence

from django.db.models import QuerySet

from portal.sweeps.fronts import front_of
from portal.sweeps.models import PriorTrial, Sweep, Trial, TrialRung
from portal.sweeps.ports import PastTrial
from slipway.schemas.sweeps import (
    LEARN_NOTHING,
    MAX_ON_FRONT,
    Constraint,
    ParameterValues,
    TrialState,
)

_BEST, _NEWEST = 25, 150
# A genetic algorithm chooses parents from many.
_NEWEST_OF_GENETIC = 600
_Row = tuple[str, int, ParameterValues, float | None, str, list[float], list[float]]


def history_of(sweep: Sweep) -> Sequence[PastTrial]:
    """Return the earlier trials that matter, in the order of their numbers.

    Those of CMA-ES are all that are complete, in the order of their ends. Trials of a warm start
    come first, with numbers below 0.
    """
    if sweep.algorithm in LEARN_NOTHING:
        return []
    return [*_prior_trials(sweep), *_own_trials(sweep)]


def _own_trials(sweep: Sweep) -> list[PastTrial]:
    trials = Trial.objects.filter(sweep=sweep)
    complete = trials.filter(state=TrialState.COMPLETE)
    if sweep.algorithm == "cma-es":
        return _past_trials(sweep, _rows(complete.order_by("ended_at", "number")))
    newest = _NEWEST_OF_GENETIC if sweep.algorithm == "nsga-ii" else _NEWEST
    by_id = {
        row[0]: row
        for part in (_best(sweep, complete), trials.order_by("-number")[:newest], trials.running())
        for row in _rows(part)
    }
    history = _past_trials(sweep, list(by_id.values()))
    return sorted(history, key=lambda trial: trial.number)


def _prior_trials(sweep: Sweep) -> list[PastTrial]:
    if not sweep.warm_start:
        return []
    priors = list(PriorTrial.objects.filter(sweep=sweep).order_by("number"))
    return [
        PastTrial(
            number=prior.number - len(priors),
            values=prior.values,
            value=prior.value,
            is_running=False,
            other_values=prior.other_values,
            violations=_violations(sweep.bounds, prior.constraint_values),
        )
        for prior in priors
    ]


def _best(sweep: Sweep, complete: QuerySet[Trial]) -> QuerySet[Trial]:
    if sweep.other_metrics:
        return complete.filter(pk__in=[trial.pk for trial in front_of(sweep)[:MAX_ON_FRONT]])
    feasible = complete.filter(is_feasible=True)
    return feasible.order_by("-value" if sweep.goal == "max" else "value")[:_BEST]


def _past_trials(sweep: Sweep, rows: Sequence[_Row]) -> list[PastTrial]:
    bounds = sweep.bounds
    pruned = [row[0] for row in rows if row[4] == TrialState.PRUNED]
    cut = TrialRung.objects.filter(trial__in=pruned, is_cut=True) if pruned else ()
    counts = {rung.trial_id: rung.count for rung in cut}
    return [
        PastTrial(
            number=number,
            values=values,
            value=value,
            is_running=state == TrialState.RUNNING,
            pruned_after=counts.get(pk, 0) if state == TrialState.PRUNED else None,
            other_values=others,
            violations=_violations(bounds, constrained),
        )
        for pk, number, values, value, state, others, constrained in rows
    ]


def _violations(bounds: Sequence[Constraint], values: Sequence[float]) -> list[float]:
    """Return a number for each constraint, none before the trial is complete."""
    return [bound.violation(value) for bound, value in zip(bounds, values, strict=False)]


def _rows(trials: QuerySet[Trial]) -> list[_Row]:
    return list(
        trials.values_list(
            "pk", "number", "values", "value", "state", "other_values", "constraint_values"
        )
    )
