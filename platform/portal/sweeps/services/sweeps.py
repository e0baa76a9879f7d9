"""Starting, pausing, resuming, extending and stopping sweeps.

Jobs are started and stopped by `portal.sweeps.services.progress`, in the control worker.
"""

from collections.abc import Mapping
from typing import Any

from django.db import transaction

from portal.accounts import audit
from portal.accounts.models import Project, User
from portal.core.enqueue import enqueue_on_commit
from portal.core.errors import Conflict, InvalidInput
from portal.sweeps.algorithms import require_packages
from portal.sweeps.models import PriorTrial, Sweep, Trial
from portal.sweeps.services.repeats import stop_repeats
from portal.sweeps.services.warm_starts import warm_start_of
from portal.sweeps.tasks import advance
from portal.sweeps.transitions import add_trials, move_sweep, run_again
from portal.training.services.jobs import resume_job, settled_job
from slipway.schemas.sweeps import MAX_TRIALS, SweepIn, SweepState, grid
from slipway.schemas.truncation import shorten
from slipway.schemas.workloads import ReasonCode, WorkloadState

MAX_NOTE = 500


def start_sweep(
    *,
    project: Project,
    by: User,
    requested: SweepIn,
    variables: Mapping[str, str] | None = None,
) -> Sweep:
    """Start a sweep. Whatever is wrong with it or with its jobs is refused here.

    `variables` are environment variables that its schedule sets for all trials. A grid has as many
    trials as combinations, at most. Raises InvalidInput, naming the field.
    """
    trials = trials_of(requested)
    job = requested.job.model_copy(update={"name": requested.name or requested.job.name})
    job = settled_job(project=project, by=by, requested=job, may_be_kept=True)
    warm_start = warm_start_of(project=project, requested=requested)
    with transaction.atomic():
        sweep = Sweep.objects.create(
            project=project,
            created_by=by,
            name=job.name or "",
            job=job.model_dump(mode="json"),
            space={name: space.model_dump() for name, space in requested.parameters.items()},
            metric=requested.metric.name,
            goal=requested.metric.goal,
            other_metrics=[metric.model_dump() for metric in requested.other_metrics],
            constraints=[bound.model_dump() for bound in requested.constraints],
            warm_start=requested.warm_start,
            warm_start_note=shorten(warm_start.note, MAX_NOTE),
            algorithm=requested.algorithm,
            trials=trials,
            parallel=requested.parallel,
            retries=requested.retries,
            seed=requested.seed,
            scheduler=requested.scheduler,
            min_values=requested.min_values,
            eta=requested.eta,
            variables=dict(variables) if variables else None,
        )
        for trial in warm_start.trials:
            trial.sweep = sweep
        PriorTrial.objects.bulk_create(warm_start.trials)
        after = {"algorithm": sweep.algorithm, "trials": trials, "metric": sweep.metric}
        _record("sweep.start", sweep, after=after)
    return sweep


def trials_of(requested: SweepIn) -> int:
    """Return how many trials a sweep has.

    Raises InvalidInput for a grid that is too large, and for an algorithm that is not installed.
    """
    require_packages(requested.algorithm)
    if requested.algorithm != "grid":
        return requested.trials
    combinations = len(grid(requested.parameters))
    if combinations > MAX_TRIALS:
        raise InvalidInput(
            f"The grid has more than {MAX_TRIALS} combinations.",
            field="parameters",
            next_step="Use fewer values, or another algorithm such as random or tpe.",
        )
    return min(requested.trials, combinations)


def sweep_request(sweep: Sweep) -> SweepIn:
    """Return the submission of a sweep, to start the same again while nobody waits for it.

    It is part of nothing.
    """
    return SweepIn(
        name=sweep.name,
        job=sweep.job_in.model_copy(update={"parent": None, "keep_failed_minutes": 0}),
        parameters=sweep.parameters,
        metric=sweep.objective,
        other_metrics=sweep.objectives[1:],
        constraints=sweep.bounds,
        warm_start=sweep.warm_start,
        algorithm=sweep.algorithm,
        trials=sweep.trials,
        parallel=sweep.parallel,
        retries=sweep.retries,
        seed=sweep.seed,
        scheduler=sweep.scheduler,
        min_values=sweep.min_values,
        eta=sweep.eta,
    )


def settled_sweep(*, project: Project, by: User, requested: SweepIn) -> SweepIn:
    """Return a submission whose job is settled, as `settled_job` does. Starts nothing."""
    require_packages(requested.algorithm)
    job = settled_job(project=project, by=by, requested=requested.job)
    return requested.model_copy(update={"job": job})


def pause_sweep(*, sweep: Sweep, by: User) -> Sweep:
    """Start no further trials until the sweep is resumed. Running trials go on. Idempotent.

    Raises Conflict for one that has ended.
    """
    with transaction.atomic():
        if move_sweep(sweep, SweepState.PAUSED, explanation=f"Paused by {by.display_name}."):
            _record("sweep.pause", sweep)
        else:
            _require(sweep, SweepState.PAUSED, "paused")
    return sweep


def resume_sweep(*, sweep: Sweep, by: User) -> Sweep:
    """Go on with a paused sweep, and with those of its jobs that a budget has stopped. Idempotent.

    Raises Conflict for one that has ended, or while the budget is still spent.
    """
    with transaction.atomic():
        if move_sweep(sweep, SweepState.RUNNING, state=SweepState.PAUSED):
            _record("sweep.resume", sweep)
            for trial in _stopped_by_budget(sweep):
                resume_job(job=trial.job, by=by)
        else:
            _require(sweep, SweepState.RUNNING, "resumed")
    return sweep


def extend_sweep(*, sweep: Sweep, trials: int) -> Sweep:
    """Let a sweep start more trials, `trials` in all. A finished one runs again. Idempotent.

    Raises InvalidInput for fewer than before or more than a grid has, Conflict for a sweep that was
    stopped or has failed.
    """
    if sweep.algorithm == "grid" and trials > len(grid(sweep.parameters)):
        raise InvalidInput(
            f"The grid has {len(grid(sweep.parameters))} combinations.",
            field="trials",
            next_step="Start another sweep with more values.",
        )
    with transaction.atomic():
        if add_trials(sweep, trials) or run_again(sweep, trials):
            _record("sweep.extend", sweep, after={"trials": trials})
    sweep.refresh_from_db()
    if sweep.trials == trials and sweep.status not in (SweepState.STOPPED, SweepState.FAILED):
        return sweep
    if trials < sweep.trials:
        raise InvalidInput(
            f"trials is {trials}, but the sweep has {sweep.trials} already.",
            field="trials",
            next_step="Name a higher total, or stop the sweep.",
        )
    raise _ended(sweep, "extended")


def stop_sweep(*, sweep: Sweep, by: User | None = None, message: str = "") -> Sweep:
    """End a sweep for good, and stop its jobs. Idempotent: one that has ended stays as it is.

    `message` is the sentence people read, if it was not a person who stopped it.
    """
    text = message or (f"Stopped by {by.display_name}." if by else "Stopped.")
    with transaction.atomic():
        if move_sweep(sweep, SweepState.STOPPED, explanation=text):
            stop_repeats(sweep)
            _record("sweep.stop", sweep)
    sweep.refresh_from_db()
    return sweep


def _stopped_by_budget(sweep: Sweep) -> list[Trial]:
    trials = Trial.objects.running().filter(
        sweep=sweep,
        job__workload__state=WorkloadState.STOPPED,
        job__workload__reason=ReasonCode.BUDGET,
    )
    return list(trials.select_related("job__workload__project").order_by("number"))


def _require(sweep: Sweep, state: SweepState, verb: str) -> None:
    """Raise Conflict unless the sweep is in `state` by now."""
    sweep.refresh_from_db()
    if sweep.status != state:
        raise _ended(sweep, verb)


def _ended(sweep: Sweep, verb: str) -> Conflict:
    return Conflict(
        f"The sweep is {sweep.state}, so it cannot be {verb}.",
        code="sweep_ended",
        next_step="Start a new sweep."
        if sweep.status != SweepState.FINISHED
        else "Extend it to run more trials.",
    )


def _record(verb: str, sweep: Sweep, *, after: dict[str, Any] | None = None) -> None:
    audit.record(
        verb, kind="sweep", target=sweep, label=sweep.name, project=sweep.project, after=after
    )
    enqueue_on_commit(advance, sweep.pk)
