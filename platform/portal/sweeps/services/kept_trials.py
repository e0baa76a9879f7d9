"""Failed trials that are kept for shells: at most one of a sweep at a time, so that the others run.

A kept trial has failed for its sweep, which goes on. Its job holds no place of the sweep any more.
"""

from portal.sweeps.models import KeptTrial, Sweep, Trial
from portal.workloads.services.cancellation import stop_workload
from slipway.schemas.sweeps import SweepState


def obstacle_to_keeping(workload_id: str) -> str:
    """Return why a trial that fails now is not kept, "" if it is, or for what is no trial.

    Claims the place of the kept trial, in the transaction that keeps it.
    """
    trial = Trial.objects.filter(job=workload_id).select_related("sweep").first()
    if trial is None:
        return ""
    sweep = trial.sweep
    if sweep.status == SweepState.STOPPED:
        return "Ending the failed task: its sweep was stopped."
    if trial.attempt <= sweep.retries and not sweep.status.has_ended:
        return "Ending the failed task: its trial is tried again."
    place = KeptTrial(sweep=sweep, job_id=workload_id)
    KeptTrial.objects.bulk_create([place], ignore_conflicts=True)
    kept = KeptTrial.objects.select_related("job__workload").get(sweep=sweep)
    if kept.job_id != workload_id:
        # The row is replaced by one of several that fail at the same time.
        rows = KeptTrial.objects.filter(pk=kept.pk, job=kept.job_id)
        if kept.job.workload.is_kept or not rows.update(job=workload_id):
            return (
                "Ending the failed task: another failed trial of its sweep is kept, and one is at "
                "a time."
            )
    return ""


def kept_trial_of(sweep: Sweep) -> Trial | None:
    """Return the trial of a sweep that has failed and whose job is kept now, if there is one."""
    kept = KeptTrial.objects.select_related("job__workload").filter(sweep=sweep).first()
    if kept is None or not kept.job.workload.is_kept:
        return None
    trials = Trial.objects.filter(sweep=sweep, job=kept.job_id)
    return trials.select_related("job__workload__tier").first()


def end_kept_trial(sweep: Sweep) -> None:
    """End the kept job of a sweep that somebody has stopped."""
    trial = kept_trial_of(sweep)
    if trial is not None:
        stop_workload(workload=trial.job.workload, message=f"Stopped with the sweep {sweep.name}.")
