"""Early stopping: trials that are worse than others are stopped, and run on if that changes.

Each decision is a row, made in the transaction that stops or resumes the job. Whatever is not
decided yet follows from rows and from the logged values, so this may run at any time, twice, or be
killed between two steps.
"""

import math
from collections.abc import Sequence

import structlog
from django.db import IntegrityError, transaction

from portal.experiments.factories import tracker
from portal.experiments.services.job_runs import run_id_of
from portal.sweeps.models import Sweep, Trial, TrialRung
from portal.sweeps.rungs import Reached, RungRule
from portal.sweeps.transitions import claim_slot, promote_trial
from portal.workloads.services.cancellation import stop_workload
from portal.workloads.services.resume import resume_stopped_early
from slipway.schemas.sweeps import SweepState, TrialState
from slipway.schemas.workloads import ReasonCode, WorkloadState

log = structlog.get_logger(__name__)
_OPEN = (SweepState.RUNNING, SweepState.PAUSED)


def rule_of(sweep: Sweep) -> RungRule:
    """Return the settings of early stopping of a sweep."""
    return RungRule(sweep.scheduler, sweep.min_values, sweep.eta, sweep.objective.goal)


def stop_early(sweep: Sweep) -> int:
    """Compare the running trials that have reached a rung. Returns how many are being stopped."""
    if sweep.scheduler == "none" or sweep.status not in _OPEN:
        return 0
    running = Trial.objects.running().filter(
        sweep=sweep, job__workload__state=WorkloadState.RUNNING
    )
    trials = running.select_related("job__workload__project").order_by("number")
    return sum(_compare(sweep, trial) for trial in trials)


def stop_early_everywhere() -> int:
    """Compare the running trials of all sweeps that stop trials early. Returns their number."""
    sweeps = Sweep.objects.filter(state__in=_OPEN).exclude(scheduler="none")
    sweeps = sweeps.filter(pk__in=Trial.objects.running().values("sweep"))
    for sweep in sweeps.select_related("project").order_by("pk"):
        try:
            stop_early(sweep)
        except Exception:
            log.exception("sweep_not_compared", sweep=sweep.pk)
    return len(sweeps)


def _compare(sweep: Sweep, trial: Trial) -> bool:
    """Take a trial over the rungs that it has reached. Returns whether it is being stopped."""
    rule = rule_of(sweep)
    bracket = rule.bracket_of(trial.number)
    passed = trial.rungs.order_by("-rung").first()
    if passed is not None and passed.is_cut:
        return False
    rung = 0 if passed is None else passed.rung + 1
    values: list[float] = []
    while (count := rule.count_at(bracket, rung)) is not None:
        if len(values) < count:
            values = _first_values(sweep, trial, count)
        if len(values) < count:
            return False
        row = _row(trial, bracket, rung, count, values[count - 1])
        here = TrialRung.objects.filter(trial__sweep=sweep, bracket=bracket, rung=rung)
        others = [*here.exclude(trial=trial).values_list("value", flat=True)]
        reason = rule.decide(row.value, others)
        if reason:
            return _stop(sweep, trial, row, reason)
        try:
            with transaction.atomic():
                row.save(force_insert=True)
        except IntegrityError:  # Another process has compared it at the same time.
            return False
        rung += 1
    return False


def record_rungs(sweep: Sweep, trial: Trial) -> None:
    """Record the rungs that a trial has reached by its end, for others to be compared with it."""
    rule = rule_of(sweep)
    bracket, rung = rule.bracket_of(trial.number), trial.rungs.count()
    values: list[float] = []
    rows: list[TrialRung] = []
    while (count := rule.count_at(bracket, rung + len(rows))) is not None:
        if len(values) < count:
            values = _first_values(sweep, trial, 2 * count)
        if len(values) < count:
            break
        rows.append(_row(trial, bracket, rung + len(rows), count, values[count - 1]))
    TrialRung.objects.bulk_create(rows, ignore_conflicts=True)


def _row(trial: Trial, bracket: int, rung: int, count: int, value: float) -> TrialRung:
    return TrialRung(
        trial=trial,
        bracket=bracket,
        rung=rung,
        count=count,
        value=value if math.isfinite(value) else None,
    )


def _first_values(sweep: Sweep, trial: Trial, count: int) -> list[float]:
    run_id = run_id_of(trial.job_id)
    return [*tracker().first_values(sweep.project_id, run_id, sweep.metric, count=count)]


def _stop(sweep: Sweep, trial: Trial, row: TrialRung, reason: str) -> bool:
    """Stop the job of a trial, and record where. Returns whether this call did it."""
    value = "Its value" if row.value is None else f"{row.value:.6g}"
    plural = "" if row.count == 1 else "s"
    text = f"Stopped early: {sweep.metric} after {row.count} value{plural}, {value}, {reason}."
    if row.value is None:
        text = f"Stopped early: {sweep.metric} {reason} after {row.count} value{plural}."
    goes_on = rule_of(sweep).promotes and row.value is not None
    step = "The sweep resumes it from its checkpoint if others turn out worse." if goes_on else ""
    row.is_cut = True
    try:
        with transaction.atomic():
            workload = stop_workload(
                workload=trial.job.workload,
                reason=ReasonCode.EARLY_STOP,
                message=text,
                next_step=step,
            )
            if (
                workload.reason != ReasonCode.EARLY_STOP
            ):  # It has ended, or ends for another reason.
                return False
            row.save(force_insert=True)
    except IntegrityError:  # Another process has compared it at the same time.
        return False
    return True


def promotable_trials(sweep: Sweep) -> list[Trial]:
    """Return the stopped trials that are among the best of a rung by now, of the highest first."""
    rule = rule_of(sweep)
    if not rule.promotes:
        return []
    rows = TrialRung.objects.filter(trial__sweep=sweep).order_by()
    rungs: dict[tuple[int, int], list[Reached]] = {}
    for number, bracket, rung, value, is_cut in rows.values_list(
        "trial__number", "bracket", "rung", "value", "is_cut"
    ):
        rungs.setdefault((rung, bracket), []).append(Reached(number, value, is_cut))
    numbers = [
        reached.number
        for place in sorted(rungs, reverse=True)
        for reached in rule.promotable(rungs[place])
    ]
    pruned = Trial.objects.filter(sweep=sweep, state=TrialState.PRUNED, number__in=numbers)
    trials = {trial.number: trial for trial in pruned.select_related("job__workload__project")}
    return [trials[number] for number in numbers if number in trials]


def promote(sweep: Sweep, trials: Sequence[Trial]) -> int:
    """Resume stopped trials in this order while there are slots. Returns how many it has resumed.

    Raises what the admission of their jobs refuses with.
    """
    resumed = 0
    for trial in trials:
        if not _resume(sweep, trial):
            break
        resumed += 1
    return resumed


def _resume(sweep: Sweep, trial: Trial) -> bool:
    """Resume the job of a trial that was stopped early. Returns whether this call did it."""
    rung = trial.rungs.filter(is_cut=True).order_by("-rung").first()
    if rung is None:
        return False
    text = f"Resumed: trial {trial.number} is now among the best after {rung.count} values."
    with transaction.atomic():
        done = (
            claim_slot(sweep)
            and promote_trial(trial)
            and trial.rungs.filter(pk=rung.pk, is_cut=True).update(is_cut=False)
            and resume_stopped_early(workload=trial.job.workload, message=text)
        )
        if not done:
            transaction.set_rollback(True)
    return bool(done)
