"""Warm starts: what earlier sweeps and runs of the project have measured, as trials to learn from.

They are copied when the sweep starts, so what it suggests does not depend on what becomes of those
runs.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from portal.accounts.models import Project
from portal.core.errors import InvalidInput
from portal.experiments.factories import tracker
from portal.experiments.ports import RunFacts
from portal.experiments.services.job_runs import run_id_of
from portal.experiments.services.queries import search_of
from portal.sweeps.models import PriorTrial, Sweep, Trial
from slipway.schemas.sweeps import (
    ParameterSpace,
    ParameterValues,
    SweepIn,
    TrialState,
    applies,
    ordered,
)

# The newest runs of each source. More would make suggestions slow.
MOST_PRIOR = 200
_SWEEP_IDS = "swp_"
_TOLERANCE = 1e-6


class Unusable(Exception):
    """A run that cannot be a trial of this sweep. Its text is why."""


@dataclass
class WarmStart:
    """The trials of a warm start, not saved yet, and why other runs were left out."""

    trials: list[PriorTrial] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)

    @property
    def note(self) -> str:
        """The sentence that people read, "" without a warm start."""
        if not self.trials:
            return ""
        count = len(self.trials)
        text = f"Learns from {count} earlier trial{'' if count == 1 else 's'}"
        return f"{text}; {self.reasons}." if self.left_out else f"{text}."

    @property
    def reasons(self) -> str:
        """Number of runs that were left out, by reason."""
        parts = ", ".join(f"{count} {reason}" for reason, count in self.left_out.most_common(5))
        return f"{self.left_out.total()} left out: {parts}"


def warm_start_of(*, project: Project, requested: SweepIn) -> WarmStart:
    """Read the sources of a warm start. Nothing is saved.

    Raises InvalidInput for a source that does not exist, or if none of their runs can be used.
    """
    result = WarmStart()
    seen: set[str] = set()
    for source in requested.warm_start:
        for run in _runs_of(project, source):
            if run.id not in seen:
                seen.add(run.id)
                _add(result, requested, run)
    if requested.warm_start and not result.trials:
        reason = result.reasons if result.left_out else "they have no finished runs"
        raise InvalidInput(
            f"The warm start has no trial that this sweep can use: {reason}.",
            field="warm_start",
            next_step="Name a sweep or runs with the same metrics, and parameters in the ranges.",
        )
    extra = len(result.trials) - MOST_PRIOR
    if extra > 0:
        result.left_out[f"beyond the first {MOST_PRIOR}"] += extra
    result.trials = result.trials[:MOST_PRIOR]
    for number, trial in enumerate(reversed(result.trials)):
        trial.number = number
    return result


def _add(result: WarmStart, requested: SweepIn, run: RunFacts) -> None:
    try:
        result.trials.append(_prior(requested, run))
    except Unusable as reason:
        result.left_out[str(reason)] += 1


def _runs_of(project: Project, source: str) -> Sequence[RunFacts]:
    """Return the newest finished runs of a source, with their parameters and metrics."""
    if source.startswith(_SWEEP_IDS):
        return _runs_of_sweep(project, source)
    try:
        search = search_of(
            project_id=project.pk, filter_text=source, columns=None, limit=MOST_PRIOR
        )
    except InvalidInput as error:
        raise InvalidInput(
            f"The filter of the warm start cannot be read: {error.message}",
            field="warm_start",
            next_step=error.next_step,
        ) from error
    return [run for run in tracker().search(search).items if run.status == "FINISHED"]


def _runs_of_sweep(project: Project, sweep_id: str) -> Sequence[RunFacts]:
    sweep = Sweep.objects.of_project(project).filter(pk=sweep_id).first()
    if sweep is None:
        raise InvalidInput(
            f"There is no sweep {sweep_id} in {project.name}.",
            field="warm_start",
            next_step="List the sweeps of the project: slipway sweep list",
        )
    complete = Trial.objects.filter(sweep=sweep, state=TrialState.COMPLETE).order_by("-number")
    jobs = list(complete.values_list("job", flat=True)[:MOST_PRIOR])
    return tracker().runs(project.pk, [run_id_of(job) for job in jobs])


def _prior(requested: SweepIn, run: RunFacts) -> PriorTrial:
    """Return a run as a trial of a sweep, or raise Unusable."""
    values = _values(requested.parameters, run.params)
    first, *others = _measured(
        run, [requested.metric.name, *(metric.name for metric in requested.other_metrics)]
    )
    bounds = requested.constraints
    constrained = _measured(run, [bound.metric for bound in bounds])
    return PriorTrial(
        run_id=run.id,
        values=values,
        value=first,
        other_values=others,
        constraint_values=constrained,
        is_feasible=all(
            bound.violation(value) <= 0 for bound, value in zip(bounds, constrained, strict=True)
        ),
    )


def _measured(run: RunFacts, names: Iterable[str]) -> list[float]:
    values = []
    for name in names:
        value = run.metrics.get(name)
        if value is None or not math.isfinite(value):
            raise Unusable(f"without a value of {name}")
        values.append(value)
    return values


def _values(parameters: Mapping[str, ParameterSpace], params: Mapping[str, str]) -> ParameterValues:
    values: ParameterValues = {}
    for name in ordered(parameters):
        space = parameters[name]
        if not applies(space, values):
            continue
        if name not in params:
            raise Unusable(f"without the parameter {name}")
        value = value_in(space, params[name])
        if value is None:
            raise Unusable(f"with {name} outside its range")
        values[name] = value
    return values


def value_in(space: ParameterSpace, text: str) -> float | int | str | None:
    """Return a logged parameter as a value of a space, None if the space does not have it."""
    if space.type == "choice":
        return text if text in space.choices else None
    try:
        number = float(text)
    except ValueError:
        return None
    low, high = float(space.low or 0), float(space.high or 0)
    if not low <= number <= high:  # also not for NaN
        return None
    step = space.step or (1 if space.type == "int" else None)
    if step is None:
        return number
    steps = (number - low) / step
    if abs(steps - round(steps)) > _TOLERANCE:
        return None
    return int(number) if space.type == "int" else number
