"""Advancing a sweep: recording ended trials, starting the next ones, and its own end.

Everything follows from rows, so it may run at any time, twice, or be killed between two steps. The
number of a trial is claimed in the transaction that submits its job: neither exists without the
other.
"""

import math
from collections.abc import Mapping, Sequence

import structlog
from django.db import transaction
from django.db.models import Q

from portal.core.errors import SlipwayError
from portal.experiments.factories import tracker
from portal.experiments.services.job_runs import run_id_of
from portal.sweeps.factories import sampler
from portal.sweeps.histories import history_of
from portal.sweeps.models import Sweep, Trial, TrialJob
from portal.sweeps.ports import SuggestionInput
from portal.sweeps.services.early_stops import (
    promotable_trials,
    promote,
    record_rungs,
    stop_early,
)
from portal.sweeps.services.kept_trials import end_kept_trial
from portal.sweeps.transitions import claim_slot, end_trial, move_sweep, start_attempt
from portal.training.models import Job
from portal.training.services.jobs import submit_job
from portal.training.submitters import reason_not_to_submit
from portal.workloads.lifecycle import ENDS
from portal.workloads.models import Workload
from portal.workloads.services.cancellation import stop_workload
from portal.workloads.services.resume import was_stopped_early
from slipway.schemas.sweeps import Constraint, ParameterValues, SweepState, TrialState
from slipway.schemas.workloads import ReasonCode, WorkloadState

log = structlog.get_logger(__name__)
# A sweep whose first trials all fail would only spend money.
_FAILURES_AT_FIRST = 3
_METRICS_NAMED = 8
# Trials started by one call, so that a wide sweep does not delay others.
_MOST_STARTED = 16
_SERVER_FAULTS = 500
_RESTORE = "Restore the access"


def advance_sweep(sweep_id: str) -> None:
    """Do what is due for a sweep. Idempotent; does nothing for an id that is none."""
    sweep = _read(sweep_id)
    if sweep is None:
        return
    _record_ends(sweep)
    stop_early(sweep)
    sweep.refresh_from_db()
    if sweep.status in (SweepState.STOPPED, SweepState.FAILED):
        _stop_trials(sweep)
    elif sweep.status == SweepState.RUNNING:
        _start_trials(sweep)
        _finish(sweep)


def advance_all() -> int:
    """Advance every sweep that may have something due, and return their number."""
    ids = list(Sweep.objects.unsettled().order_by("pk").values_list("pk", flat=True))
    for sweep_id in ids:
        try:
            advance_sweep(sweep_id)
        except Exception:
            log.exception("sweep_not_advanced", sweep=sweep_id)
    return len(ids)


def _read(sweep_id: str) -> Sweep | None:
    sweeps = Sweep.objects.select_related("project__team", "created_by")
    return sweeps.filter(pk=sweep_id).first()


def _record_ends(sweep: Sweep) -> None:
    """Record the ends of jobs as ends of trials, or retry them. One that is kept has failed."""
    has_ended = Q(job__workload__state__in=[state.value for state in ENDS])
    ended = list(
        Trial.objects.running()
        .filter(has_ended | Q(job__workload__in=Workload.objects.kept()), sweep=sweep)
        .select_related("job__workload")
        .order_by("number")
    )
    if not ended:
        return
    runs = tracker().runs(sweep.project_id, [run_id_of(trial.job_id) for trial in ended])
    metrics = {run.id: run.metrics for run in runs}
    for trial in ended:
        _record_end(sweep, trial, metrics.get(run_id_of(trial.job_id), {}))


def _record_end(sweep: Sweep, trial: Trial, metrics: Mapping[str, float]) -> None:
    workload = trial.job.workload
    if workload.status == WorkloadState.SUCCEEDED:
        _record_success(sweep, trial, metrics)
    elif was_stopped_early(workload):
        rung = trial.rungs.filter(is_cut=True).order_by("-rung").first()
        value = rung.value if rung is not None else None
        end_trial(trial, TrialState.PRUNED, value=value, explanation=workload.reason_text)
    elif workload.status == WorkloadState.STOPPED:
        if workload.reason == ReasonCode.BUDGET and not sweep.status.has_ended:
            # Its job can be resumed, and is, together with the sweep.
            _pause(sweep, f"A budget has stopped trial {trial.number}.", "Raise the budget")
        else:
            end_trial(trial, TrialState.STOPPED, explanation=workload.reason_text)
    elif trial.attempt <= sweep.retries and not sweep.status.has_ended:
        if sweep.status == SweepState.RUNNING:
            _retry(sweep, trial)
    else:
        text = workload.reason_text or f"Its job {workload.state}."
        if end_trial(trial, TrialState.FAILED, explanation=text):
            _fail_after_first_trials(sweep, text)


def _record_success(sweep: Sweep, trial: Trial, metrics: Mapping[str, float]) -> None:
    objectives, bounds = sweep.objectives, sweep.bounds
    names = [*(metric.name for metric in objectives), *(bound.metric for bound in bounds)]
    for name in names:
        if name not in metrics:
            _record_missing(sweep, trial, name, metrics)
            return
    for name in names:
        if not math.isfinite(metrics[name]):
            text = f"The last value of {name} is {metrics[name]}."
            if end_trial(trial, TrialState.FAILED, explanation=text):
                _fail_after_first_trials(sweep, text)
            return
    record_rungs(sweep, trial)
    violated = [bound for bound in bounds if bound.violation(metrics[bound.metric]) > 0]
    end_trial(
        trial,
        TrialState.COMPLETE,
        value=metrics[sweep.metric],
        other_values=[metrics[metric.name] for metric in objectives[1:]],
        constraint_values=[metrics[bound.metric] for bound in bounds],
        is_feasible=not violated,
        explanation=_violations_text(violated, metrics),
    )


def _violations_text(violated: Sequence[Constraint], metrics: Mapping[str, float]) -> str:
    if not violated:
        return ""
    parts = [
        f"{bound.metric} is {metrics[bound.metric]:.6g}, not {bound.op} {bound.bound:.6g}"
        for bound in violated
    ]
    return f"Infeasible: {'; '.join(parts)}."


def _record_missing(sweep: Sweep, trial: Trial, name: str, metrics: Mapping[str, float]) -> None:
    text = f"Its job logged no metric {name}. {_listing(metrics)}"
    if not end_trial(trial, TrialState.FAILED, explanation=text):
        return
    if not Trial.objects.filter(sweep=sweep, state=TrialState.COMPLETE).exists():
        move_sweep(
            sweep,
            SweepState.FAILED,
            explanation=f"Trial {trial.number} succeeded, but logged no metric {name}. "
            f"{_listing(metrics)}",
            next_step=f'Log it with mlflow.log_metric("{name}", …), or start a sweep with '
            "the name of a metric that the script logs.",
        )


def _listing(metrics: Mapping[str, float]) -> str:
    if not metrics:
        return "It logged no metrics."
    more = len(metrics) - _METRICS_NAMED
    names = ", ".join(sorted(metrics)[:_METRICS_NAMED])
    return f"It logged {names}{f' and {more} more' if more > 0 else ''}."


def _fail_after_first_trials(sweep: Sweep, text: str) -> None:
    """End a sweep of which the first trials have all failed."""
    counts = Trial.objects.counts_of(sweep)
    if counts.get(TrialState.COMPLETE) or counts.get(TrialState.FAILED, 0) < _FAILURES_AT_FIRST:
        return
    move_sweep(
        sweep,
        SweepState.FAILED,
        explanation=f"The first {_FAILURES_AT_FIRST} trials failed. The last of them: {text}",
        next_step="Read the log of its job, fix the script and start the sweep again.",
    )


def _retry(sweep: Sweep, trial: Trial) -> None:
    """Submit a failed trial again, under the same number."""
    reason = reason_not_to_submit(project=sweep.project, user=sweep.created_by)
    if reason:
        _pause(sweep, reason, _RESTORE)
        return
    try:
        with transaction.atomic():
            job = _submit(sweep, trial.values)
            if not start_attempt(trial, job_id=job.pk):
                transaction.set_rollback(True)
                return
            TrialJob.objects.create(trial=trial, attempt=trial.attempt + 1, job=job)
    except SlipwayError as error:
        _pause_for(sweep, error)


def _start_trials(sweep: Sweep) -> None:
    """Start as many trials as may run beside those that do."""
    running = Trial.objects.running().filter(sweep=sweep).count()
    free = min(sweep.parallel - running, _MOST_STARTED)
    if free <= 0:
        return
    promotable = promotable_trials(sweep)
    if sweep.started == sweep.trials and not promotable:
        return
    reason = reason_not_to_submit(project=sweep.project, user=sweep.created_by)
    if reason:
        _pause(sweep, reason, _RESTORE)
        return
    try:
        free -= promote(sweep, promotable[:free])
    except SlipwayError as error:
        _pause_for(sweep, error)
        return
    count = min(free, sweep.trials - sweep.started)
    if count > 0:
        _start_new_trials(sweep, count)


def _start_new_trials(sweep: Sweep, count: int) -> None:
    search = SuggestionInput(
        algorithm=sweep.algorithm,
        parameters=sweep.parameters,
        goal=sweep.objective.goal,
        seed=sweep.seed,
        history=history_of(sweep),
        other_goals=[metric.goal for metric in sweep.objectives[1:]],
    )
    for values in sampler(sweep.algorithm).suggest(search, first=sweep.started, count=count):
        try:
            if not _start_trial(sweep, values):
                return  # Another process is at it, or the sweep was paused.
        except SlipwayError as error:
            _pause_for(sweep, error)
            return


def _start_trial(sweep: Sweep, values: ParameterValues) -> bool:
    """Claim the next number and submit its job, both or neither."""
    number = sweep.started
    with transaction.atomic():
        if not claim_slot(sweep, started=number + 1):
            transaction.set_rollback(True)
            return False
        job = _submit(sweep, values)
        trial = Trial.objects.create(sweep=sweep, number=number, values=values, job=job)
        TrialJob.objects.create(trial=trial, attempt=1, job=job)
    sweep.started = number + 1
    return True


def _submit(sweep: Sweep, values: ParameterValues) -> Job:
    shared = sweep.job_in
    params = shared.params | {name: str(value) for name, value in values.items()}
    return submit_job(
        project=sweep.project,
        by=sweep.created_by,
        requested=shared.model_copy(update={"params": params}),
        variables=sweep.variables,
    )


def _pause(sweep: Sweep, text: str, next_step: str | None) -> None:
    step = (next_step or "Fix this").rstrip(".")
    move_sweep(
        sweep, SweepState.PAUSED, explanation=text, next_step=f"{step}, then resume the sweep."
    )


def _pause_for(sweep: Sweep, error: SlipwayError) -> None:
    """Pause a sweep whose job was refused. What is only out of order is tried again later."""
    if error.status >= _SERVER_FAULTS:
        raise error
    _pause(sweep, error.message, error.next_step)


def _stop_trials(sweep: Sweep) -> None:
    """Stop the jobs of a sweep that was stopped or has failed."""
    trials = Trial.objects.running().filter(sweep=sweep).select_related("job__workload__project")
    for trial in trials.order_by("number"):
        stop_workload(workload=trial.job.workload, message=f"Stopped with the sweep {sweep.name}.")
    if sweep.status == SweepState.STOPPED:
        end_kept_trial(sweep)
    _record_ends(sweep)


def _finish(sweep: Sweep) -> None:
    if sweep.started < sweep.trials or Trial.objects.running().filter(sweep=sweep).exists():
        return
    if promotable_trials(sweep):
        return
    move_sweep(sweep, SweepState.FINISHED, started=sweep.trials, trials=sweep.trials)
