"""Presenters of sweeps: state, curve of the best value so far, front, rows of trials."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.urls import reverse

from portal.experiments.models import Run
from portal.experiments.services.job_runs import run_id_of
from portal.sweeps.fronts import front_of
from portal.sweeps.models import Sweep, Trial
from portal.sweeps.services.repeats import Repeat, Repeats
from portal.sweeps.summaries import SweepSummary, costs_of_trials
from portal.workloads.lifecycle import ENDS
from slipway.schemas.experiments import MOST_COMPARED
from slipway.schemas.money import dollars
from slipway.schemas.sweeps import MAX_ON_FRONT, Metric, SweepQuote, SweepState, TrialState

# A chart draws this many trials; the best values so far are always all of them.
MOST_POINTS = 1000
MOST_IN_SLICES = 500
MOST_SLICES = 12
_TONES: dict[str, str] = {
    SweepState.RUNNING: "strong",
    SweepState.PAUSED: "warn",
    SweepState.FINISHED: "ok",
    SweepState.FAILED: "bad",
    TrialState.COMPLETE: "ok",
}


@dataclass(frozen=True)
class SweepStatus:
    """Status of a sweep or a trial, as the part that shows states reads it."""

    label: str
    tone: str
    is_active: bool

    @classmethod
    def of(cls, state: str) -> "SweepStatus":
        """Return the status of a state of a sweep or of a trial."""
        return cls(str(state), _TONES.get(state, ""), state == SweepState.RUNNING)


@dataclass(frozen=True)
class SweepRow:
    """A sweep in a list. `ended` is the number of trials that have ended."""

    sweep: Sweep
    status: SweepStatus
    summary: SweepSummary
    ended: int

    @classmethod
    def of(cls, sweep: Sweep, summary: SweepSummary) -> "SweepRow":
        """Return the row of a sweep."""
        ended = sum(summary.counts.values()) - summary.counts.get(TrialState.RUNNING, 0)
        return cls(sweep, SweepStatus.of(sweep.state), summary, ended)


@dataclass(frozen=True)
class TrialRow:
    """A trial in the table. `run` is the id of its run, "" before its job has started.

    `values` are names, values with six digits, and exact values; `measured` are the values of the
    metrics.
    """

    trial: Trial
    status: SweepStatus
    values: Sequence[tuple[str, str, str]]
    measured: Sequence[float | None]
    cost: int
    run: str


def trial_rows(trials: Sequence[Trial], *, metrics: int = 1) -> list[TrialRow]:
    """Return the rows of trials with so many metrics, with a fixed number of queries."""
    costs = costs_of_trials(trials)
    run_ids = {trial.pk: run_id_of(trial.job_id) for trial in trials}
    runs = set(Run.objects.filter(run_uuid__in=run_ids.values()).values_list("run_uuid", flat=True))
    return [
        TrialRow(
            trial,
            SweepStatus.of(trial.state),
            shown_values(trial),
            measured_values(trial, metrics),
            costs.get(trial.pk, 0),
            run_ids[trial.pk] if run_ids[trial.pk] in runs else "",
        )
        for trial in trials
    ]


def measured_values(trial: Trial, metrics: int) -> list[float | None]:
    """Return the values of the metrics of a trial, None for those that it does not have yet."""
    values = [trial.value, *trial.other_values]
    return [*values, *[None] * (metrics - len(values))]


def shown_values(trial: Trial) -> list[tuple[str, str, str]]:
    """Return the parameters of a trial: name, value with six digits, exact value."""
    return shown_parameters(trial.values)


def shown_parameters(values: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return parameters: name, value with six digits, exact value."""
    return [
        (name, f"{value:.6g}" if isinstance(value, float) else str(value), str(value))
        for name, value in values.items()
    ]


def curve_of(sweep: Sweep) -> str:
    """Return the data of the chart as JSON: complete trials, and the best value so far.

    `trials` are the newest MOST_POINTS feasible ones as [number, value], `infeasible` the others.
    `best` has one point for each improvement, and the last trial.
    """
    complete = Trial.objects.filter(sweep=sweep, state=TrialState.COMPLETE).order_by("number")
    rows = complete.values_list("number", "value", "is_feasible")
    return curve_json(sweep.metric, sweep.goal, list(rows))


def curve_json(metric: str, goal: str, rows: Sequence[tuple[int, float | None, bool]]) -> str:
    """Return the data of the chart from complete trials: number, value, whether it is feasible."""
    points = [(number, value) for number, value, is_feasible in rows if is_feasible]
    infeasible = [(number, value) for number, value, is_feasible in rows if not is_feasible]
    best: list[tuple[int, float]] = []
    for number, value in points:
        if value is None:
            continue
        is_better = not best or (value > best[-1][1] if goal == "max" else value < best[-1][1])
        if is_better:
            best.append((number, value))
    if best and points[-1][0] != best[-1][0]:
        best.append((points[-1][0], best[-1][1]))
    return json.dumps(
        {
            "metric": metric,
            "trials": points[-MOST_POINTS:],
            "infeasible": infeasible[-MOST_POINTS:],
            "best": best,
        }
    )


@dataclass(frozen=True)
class Slices:
    """Charts of the metric over each parameter alone, of the newest MOST_IN_SLICES complete trials.

    `data` has `metrics`, `parameters` (name, whether the scale is logarithmic, choices or None) and
    `trials` as [number, values of the metrics, values of the parameters], None for a parameter that
    the trial does not have. `left_out` are the names of parameters beyond MOST_SLICES.
    """

    data: dict[str, Any]
    left_out: Sequence[str]

    @classmethod
    def of(cls, sweep: Sweep) -> "Slices | None":
        """Return the slices of a sweep, None while fewer than two trials are complete."""
        complete = Trial.objects.filter(sweep=sweep, state=TrialState.COMPLETE)
        rows = complete.order_by("-number").values_list("number", "value", "other_values", "values")
        newest = [
            (number, [value, *others], values)
            for number, value, others, values in rows[:MOST_IN_SLICES]
        ]
        spaces = {
            name: (space.log, space.choices or None) for name, space in sweep.parameters.items()
        }
        metrics = [f"{metric.name} ({metric.goal})" for metric in sweep.objectives]
        return cls.from_rows(metrics, spaces, newest)

    @classmethod
    def from_rows(
        cls,
        metrics: Sequence[str],
        spaces: Mapping[str, tuple[bool, Sequence[Any] | None]],
        newest: Sequence[tuple[int, Sequence[float | None], Mapping[str, Any]]],
    ) -> "Slices | None":
        """Return the slices of trials, newest first: number, measured values, parameters.

        `spaces` has for each parameter whether its scale is logarithmic, and its choices.
        """
        if len(newest) < 2:
            return None
        names = list(spaces)
        parameters = [
            {"name": name, "log": spaces[name][0], "choices": spaces[name][1]}
            for name in names[:MOST_SLICES]
        ]
        trials = [
            [number, list(measured), [values.get(name) for name in names[:MOST_SLICES]]]
            for number, measured, values in reversed(newest)
        ]
        data = {"metrics": list(metrics), "parameters": parameters, "trials": trials}
        return cls(data, names[MOST_SLICES:])


@dataclass(frozen=True)
class ShownFront:
    """The Pareto front of a sweep: rows of its table, their total, and the chart's data as JSON.

    In `data`, `front` and `others` are trials as [number, value of each metric]; the others are the
    newest MOST_POINTS.
    """

    metrics: Sequence[Metric]
    rows: Sequence[TrialRow]
    count: int
    data: str

    @classmethod
    def of(cls, sweep: Sweep) -> "ShownFront":
        """Return the front of a sweep."""
        trials = front_of(sweep)
        shown = trials[:MAX_ON_FRONT]
        complete = Trial.objects.filter(sweep=sweep, state=TrialState.COMPLETE)
        rows = complete.order_by("-number").values_list("number", "value", "other_values")
        numbers = {trial.number for trial in shown}
        data = {
            "metrics": [f"{metric.name} ({metric.goal})" for metric in sweep.objectives],
            "front": [[trial.number, trial.value, *trial.other_values] for trial in shown],
            "others": [
                [number, value, *others]
                for number, value, others in rows[:MOST_POINTS]
                if number not in numbers
            ],
        }
        objectives = sweep.objectives
        rows_shown = trial_rows(shown, metrics=len(objectives))
        return cls(objectives, rows_shown, len(trials), json.dumps(data))


def price_lines(quote: SweepQuote) -> tuple[str, ...]:
    """Return the price of repeats and what it stands for, a sentence each."""
    hourly = f"{dollars(quote.nano_usd_per_hour)} an hour while all {quote.trials} run."
    if quote.expected_nano_usd is not None:
        hourly += f" Expected in total: {dollars(quote.expected_nano_usd)}."
    return (
        f"{quote.trials} jobs with the parameters of the trial start, each with another seed.",
        hourly,
        "The page of the sweep shows the mean and the spread of their values.",
    )


@dataclass(frozen=True)
class ShownRepeats:
    """The repeats of a trial in the table, with the states of their jobs."""

    group: Repeats
    items: Sequence[tuple[Repeat, SweepStatus]]

    @classmethod
    def of(cls, group: Repeats) -> "ShownRepeats":
        """Return the repeats of a trial."""
        return cls(
            group, [(item, SweepStatus.of(item.row.job.workload.state)) for item in group.items]
        )

    @property
    def is_active(self) -> bool:
        """True while a job has not ended."""
        return any(item.row.job.workload.status not in ENDS for item in self.group.items)


def compared_runs(sweep: Sweep) -> list[dict[str, str]]:
    """Return the runs of the newest complete trials, MOST_COMPARED at most, as charts read them."""
    complete = Trial.objects.filter(sweep=sweep, state=TrialState.COMPLETE).order_by("-number")
    slug = sweep.project.slug
    return [
        {
            "id": run_id_of(job_id),
            "name": f"trial {number}",
            "url": reverse("project_run", args=[slug, run_id_of(job_id)]),
        }
        for number, job_id in complete.values_list("number", "job")[:MOST_COMPARED]
    ]
