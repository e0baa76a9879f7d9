"""Pareto fronts: trials than which no other is as good in all metrics and better in any."""

from collections.abc import Sequence

from portal.sweeps.models import Sweep, Trial
from slipway.schemas.sweeps import Goal, TrialState

# Trials that are compared with each other: the newest ones.
MOST_COMPARED = 2000


def front_of(sweep: Sweep) -> list[Trial]:
    """Return the front of a sweep, the best by the first metric first."""
    feasible = Trial.objects.filter(sweep=sweep, state=TrialState.COMPLETE, is_feasible=True)
    newest = feasible.order_by("-number")[:MOST_COMPARED]
    rows = list(newest.values_list("pk", "value", "other_values"))
    ids = [pk for pk, _, _ in rows]
    points = [[float(value or 0.0), *others] for _, value, others in rows]
    goals = [metric.goal for metric in sweep.objectives]
    places = front(points, goals)
    trials = Trial.objects.in_bulk([ids[place] for place in places])
    return [trials[ids[place]] for place in places if ids[place] in trials]


def front(points: Sequence[Sequence[float]], goals: Sequence[Goal]) -> list[int]:
    """Return the places of the points on the front, the best by the first metric first."""
    losses = [
        tuple(-value if goal == "max" else value for value, goal in zip(point, goals, strict=True))
        for point in points
    ]
    best: list[int] = []
    # In this order nothing that comes later is better than something before it.
    for place in sorted(range(len(losses)), key=lambda place: losses[place]):
        if not any(_dominates(losses[other], losses[place]) for other in best):
            best.append(place)
    return best


def _dominates(first: tuple[float, ...], second: tuple[float, ...]) -> bool:
    return first != second and all(a <= b for a, b in zip(first, second, strict=True))
