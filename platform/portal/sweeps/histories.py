"""Earlier trials that a suggestion depends on, read from rows: a few hundred for any sweep.

TPE models the best tenth of the trials, 25 at most, and the others. So the best and the newest are
enough, and a suggestion costs as much after 10,000 trials as after a few hundred.
"""

from collections.abc import Sequence

from django.db.models import QuerySet

from portal.sweeps.models import Sweep, Trial, TrialRung
from portal.sweeps.ports import PastTrial
from slipway.schemas.sweeps import ParameterValues, TrialState

# Their suggestions depend on the number of a trial alone.
_WITHOUT_HISTORY = ("random", "grid", "qmc")
_BEST, _NEWEST = 25, 150


def history_of(sweep: Sweep) -> Sequence[PastTrial]:
    """Return the earlier trials that matter, in the order of their numbers.

    Those of CMA-ES are all that are complete, in the order of their ends.
    """
    if sweep.algorithm in _WITHOUT_HISTORY:
        return []
    trials = Trial.objects.filter(sweep=sweep)
    complete = trials.filter(state=TrialState.COMPLETE)
    if sweep.algorithm == "cma-es":
        rows = _rows(complete.order_by("ended_at", "number"))
        return [PastTrial(row[1], row[2], row[3], is_running=False) for row in rows]
    best = complete.order_by("-value" if sweep.goal == "max" else "value")[:_BEST]
    by_id = {
        row[0]: row
        for part in (best, trials.order_by("-number")[:_NEWEST], trials.running())
        for row in _rows(part)
    }
    pruned = [pk for pk, row in by_id.items() if row[4] == TrialState.PRUNED]
    cut = TrialRung.objects.filter(trial__in=pruned, is_cut=True) if pruned else ()
    counts = {rung.trial_id: rung.count for rung in cut}
    history = [
        PastTrial(
            number=number,
            values=values,
            value=value,
            is_running=state == TrialState.RUNNING,
            pruned_after=counts.get(pk, 0) if state == TrialState.PRUNED else None,
        )
        for pk, number, values, value, state in by_id.values()
    ]
    return sorted(history, key=lambda trial: trial.number)


def _rows(
    trials: QuerySet[Trial],
) -> Sequence[tuple[str, int, ParameterValues, float | None, str]]:
    return list(trials.values_list("pk", "number", "values", "value", "state"))
