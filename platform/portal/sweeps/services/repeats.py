"""Repeats: jobs with the values of one trial and other seeds, to see how far its value is luck.

They are jobs of whoever asks for them. Their values are read from their runs whenever they are
shown, so nothing has to be recorded when they end.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count, islice
from statistics import fmean, stdev

from django.db import IntegrityError, transaction

from portal.accounts import audit
from portal.accounts.models import Project, User
from portal.core.errors import Conflict, InvalidInput
from portal.experiments.factories import tracker
from portal.experiments.services.job_runs import run_id_of
from portal.spend.presenters import with_cost
from portal.sweeps.models import Sweep, Trial, TrialRepeat
from portal.sweeps.summaries import summaries_of
from portal.training.services.jobs import admission_request, quote_job, submit_job
from portal.workloads.lifecycle import ENDS
from portal.workloads.services.cancellation import stop_workload
from slipway.schemas.sweeps import RepeatIn, SweepQuote, TrialState
from slipway.schemas.training import JobIn
from slipway.schemas.workloads import WorkloadState

_USUAL = 3
_MOST_SHOWN = 200


@dataclass(frozen=True)
class Repeat:
    """A repeat and its value, None until its job has succeeded and if it logged none."""

    row: TrialRepeat
    value: float | None


@dataclass(frozen=True)
class Repeats:
    """The repeats of one trial, by seed."""

    trial: Trial
    items: Sequence[Repeat]

    @property
    def values(self) -> list[float]:
        """The values there are so far."""
        return [item.value for item in self.items if item.value is not None]

    @property
    def mean(self) -> float | None:
        """Mean of the values."""
        return fmean(self.values) if self.values else None

    @property
    def deviation(self) -> float | None:
        """Standard deviation of the values as a sample, None for fewer than two."""
        return stdev(self.values) if len(self.values) > 1 else None


def repeat_trial(*, sweep: Sweep, by: User, requested: RepeatIn) -> Trial:
    """Submit one job for each seed, all or none. Returns the trial that they repeat.

    Raises InvalidInput for a trial, a parameter or a seed that cannot be used, Conflict without a
    complete trial.
    """
    trial = _trial(sweep, requested)
    seeds = _seeds(trial, requested)
    try:
        with transaction.atomic():
            for seed in seeds:
                job = submit_job(
                    project=sweep.project,
                    by=by,
                    requested=_job_in(sweep, trial, requested.parameter, seed),
                )
                TrialRepeat.objects.create(
                    trial=trial, parameter=requested.parameter, seed=seed, job=job
                )
            audit.record(
                "sweep.repeat",
                kind="sweep",
                target=sweep,
                label=sweep.name,
                project=sweep.project,
                after={"trial": trial.number, "seeds": seeds},
            )
    except IntegrityError:  # Somebody has asked for the same seeds at the same time.
        raise _used(trial, seeds[0]) from None
    return trial


def quote_repeats(*, project: Project, sweep: Sweep, by: User, requested: RepeatIn) -> SweepQuote:
    """Return what the jobs would cost, in nano-USD. Nothing is started. Raises as above."""
    trial = _trial(sweep, requested)
    seeds = _seeds(trial, requested)
    job = _job_in(sweep, trial, requested.parameter, seeds[0])
    quote = with_cost(
        quote_job(project=project, spec=job),
        admission_request(project=project, by=by, spec=job),
    )
    return SweepQuote(
        job=quote,
        trials=len(seeds),
        parallel=len(seeds),
        nano_usd_per_hour=quote.nano_usd_per_hour * len(seeds),
        expected_nano_usd=quote.expected.nano_usd * len(seeds) if quote.expected else None,
    )


def repeats_of(sweep: Sweep) -> list[Repeats]:
    """Return the newest repeats of a sweep by their trials, with their values so far."""
    rows = TrialRepeat.objects.filter(trial__sweep=sweep)
    newest = list(rows.select_related("trial", "job__workload").order_by("-pk")[:_MOST_SHOWN])
    if not newest:
        return []
    ids = [run_id_of(row.job_id) for row in newest]
    metrics = {run.id: run.metrics for run in tracker().runs(sweep.project_id, ids)}
    groups: dict[str, list[Repeat]] = {}
    for row in sorted(newest, key=lambda row: (row.trial.number, row.seed)):
        value = metrics.get(run_id_of(row.job_id), {}).get(sweep.metric)
        has_value = (
            row.job.workload.status == WorkloadState.SUCCEEDED
            and value is not None
            and math.isfinite(value)
        )
        groups.setdefault(row.trial_id, []).append(Repeat(row, value if has_value else None))
    return [Repeats(items[0].row.trial, items) for items in groups.values()]


def stop_repeats(sweep: Sweep) -> None:
    """Stop the jobs of repeats together with the sweep."""
    rows = TrialRepeat.objects.filter(trial__sweep=sweep)
    open_rows = rows.exclude(job__workload__state__in=[state.value for state in ENDS])
    for row in open_rows.select_related("job__workload__project").order_by("pk"):
        stop_workload(workload=row.job.workload, message=f"Stopped with the sweep {sweep.name}.")


def _job_in(sweep: Sweep, trial: Trial, parameter: str, seed: int) -> JobIn:
    shared = sweep.job_in
    values = {name: str(value) for name, value in trial.values.items()}
    params = shared.params | values | {parameter: str(seed)}
    return shared.model_copy(update={"params": params, "keep_failed_minutes": 0})


def _trial(sweep: Sweep, requested: RepeatIn) -> Trial:
    if requested.parameter in sweep.space:
        raise InvalidInput(
            f"The sweep searches for {requested.parameter}, so it cannot be the seed.",
            field="parameter",
            next_step="Name another parameter that the script reads its seed from.",
        )
    if requested.trial is None:
        return _best(sweep)
    complete = Trial.objects.filter(sweep=sweep, state=TrialState.COMPLETE)
    trial = complete.filter(number=requested.trial).first()
    if trial is None:
        raise InvalidInput(
            f"Trial {requested.trial} is not a complete trial of this sweep.",
            field="trial",
            next_step=f"List them: slipway sweep trials {sweep.pk}",
        )
    return trial


def _best(sweep: Sweep) -> Trial:
    if sweep.other_metrics:
        raise InvalidInput(
            "A sweep with several metrics has no best trial.",
            field="trial",
            next_step=f"Name a trial of the front: slipway sweep front {sweep.pk}",
        )
    best = summaries_of([sweep])[sweep.pk].best
    if best is None:
        raise Conflict(
            "The sweep has no best trial yet.",
            code="no_best_trial",
            next_step="Wait until a trial is complete.",
        )
    return best


def _seeds(trial: Trial, requested: RepeatIn) -> list[int]:
    used = set(TrialRepeat.objects.filter(trial=trial).values_list("seed", flat=True))
    if not requested.seeds:
        return list(islice((seed for seed in count(1) if seed not in used), _USUAL))
    for seed in requested.seeds:
        if seed in used:
            raise _used(trial, seed)
    return requested.seeds


def _used(trial: Trial, seed: int) -> InvalidInput:
    return InvalidInput(
        f"Trial {trial.number} has a repeat with the seed {seed} already.",
        field="seeds",
        next_step="Name other seeds, or none for the next three.",
    )
