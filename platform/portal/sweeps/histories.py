"""Earlier trials that a suggestion depends on, read from rows: a few hundred for any sweep.

TPE models the best tenth of the trials, 25 at most, and the others. So the best and the newest are
enough, and a suggestion costs as much after 10,000 trials as after a few hundred. With several
metrics the best are those on the front.
"""

from collections.abc import Sequence

from django.db.models import QuerySet

from portal.sweeps.fronts import front_of
from portal.sweeps.models import Sweep, Trial, TrialRung
from portal.sweeps.ports import PastTrial
from slipway.schemas.sweeps import MAX_ON_FRONT, ParameterValues, TrialState

# Their suggestions depend on the number of a trial alone.
_WITHOUT_HISTORY = ("random", "grid", "qmc")
_BEST, _NEWEST = 25, 150
# A genetic algorithm chooses parents from many.
_NEWEST_OF_GENETIC = 600
_COLUMNS = (*("pk", "number", "values", "value", "state", "other_values", "constraint_values"),)
_Row = tuple[str, int, ParameterValues, float | None, str, list[float], list[float]]


def history_of(sweep: Sweep) -> Sequence[PastTrial]:
    """Return the earlier trials that matter, in the order of their numbers.

    Those of CMA-ES are all that are complete, in the order of their ends.
    """
    if sweep.algorithm in _WITHOUT_HISTORY:
        return []
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
            violations=[
                bound.violation(measured)
                for bound, measured in zip(bounds, constrained, strict=False)
            ],
        )
        for pk, number, values, value, state, others, constrained in rows
    ]


def _rows(trials: QuerySet[Trial]) -> list[_Row]:
    return list(trials.values_list(*_COLUMNS))
