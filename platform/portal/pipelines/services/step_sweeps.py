"""Sweeps of steps once they have started: their ends, outputs, and cancellation."""

from typing import Any

from portal.core.errors import InvalidInput, SlipwayError
from portal.experiments.services.job_runs import run_id_of
from portal.pipelines.models import PipelineRun, StepRun
from portal.pipelines.pipeline_transitions import move_step
from portal.pipelines.services.step_outputs import outputs_of_job
from portal.pipelines.services.step_starts import fail
from portal.sweeps.models import Sweep, Trial
from portal.sweeps.services.sweeps import stop_sweep
from portal.sweeps.summaries import SweepSummary, summaries_of
from slipway.schemas.pipelines import PipelineRunState, StepIn, StepState
from slipway.schemas.sweeps import SweepState, TrialState


def record_sweep_end(run: PipelineRun, row: StepRun, sweep: Sweep, step: StepIn) -> bool:
    """Record the end of a sweep as that of its step. Returns whether it did."""
    if not _has_ended(sweep):
        return False
    if sweep.status == SweepState.FINISHED:
        try:
            return move_step(row, StepState.SUCCEEDED, outputs=_outputs_of(row, sweep, step))
        except SlipwayError as error:
            return fail(row, error)
    reason = sweep.explanation or f"Its sweep {sweep.state}."
    if sweep.status == SweepState.STOPPED and run.status != PipelineRunState.RUNNING:
        return move_step(row, StepState.CANCELLED, explanation=reason)
    return move_step(
        row,
        StepState.FAILED,
        explanation=reason,
        next_step=sweep.next_step or "Resume the run, which starts another sweep.",
    )


def stop_step_sweep(run: PipelineRun, sweep: Sweep) -> bool:
    """Stop the sweep of a step whose run was cancelled. Returns whether its jobs have ended."""
    stop_sweep(sweep=sweep, message=f"Stopped with the pipeline {run.name}.")
    return _has_ended(sweep)


def _has_ended(sweep: Sweep) -> bool:
    """Return whether a sweep has ended, and its jobs with it."""
    return sweep.status.has_ended and not Trial.objects.running().filter(sweep=sweep).exists()


def _outputs_of(row: StepRun, sweep: Sweep, step: StepIn) -> dict[str, Any]:
    """Return the outputs of a sweep that has finished. Raises InvalidInput without a best trial."""
    summary = summaries_of([sweep])[sweep.pk]
    best = summary.best
    if best is None:
        raise InvalidInput(
            f"Its sweep has finished without a best trial: {_reason(sweep, summary)}",
            field=f"steps.{step.name}",
            next_step="Correct the script, the ranges or the constraints, and run the pipeline "
            "again",
        )
    return {
        "best_value": best.value,
        "parameters": best.values,
        "best_job": best.job_id,
        "best_run": run_id_of(best.job_id),
        **outputs_of_job(row, step, best.job_id),
    }


def _reason(sweep: Sweep, summary: SweepSummary) -> str:
    """Return why a sweep has no best trial, as the rest of a sentence."""
    if summary.infeasible:
        bounds = " and ".join(map(str, sweep.bounds))
        return f"all {summary.infeasible} complete trials violate {bounds}."
    counts = ", ".join(f"{number} {state}" for state, number in sorted(summary.counts.items()))
    failed = Trial.objects.filter(sweep=sweep, state=TrialState.FAILED).order_by("number").last()
    text = f"{counts or 'none has started'}."
    return text if failed is None else f"{text} Trial {failed.number}: {failed.explanation}"
