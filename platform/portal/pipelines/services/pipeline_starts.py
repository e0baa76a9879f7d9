"""Starts of runs of pipelines, by people and by schedules, and their cancellation.

Nothing is enqueued here: callers advance the run, or the periodic task does within seconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db import transaction

from portal.accounts import audit
from portal.accounts.models import Project, User
from portal.core.errors import InvalidInput
from portal.pipelines.models import PipelineRun, StepRun
from portal.pipelines.pipeline_transitions import end_run
from portal.pipelines.services.step_predictions import checked_prediction
from portal.pipelines.step_requests import (
    NoValue,
    job_of_step,
    lookup_of_parameters,
    resolved_sweep,
)
from portal.sweeps.services.sweeps import trials_of
from portal.training.models import Snapshot
from portal.training.services.jobs import settled_job
from portal.training.services.snapshots import snapshot_of
from slipway.schemas.pipeline_checks import check_pipeline, dependencies, resolved_parameters
from slipway.schemas.pipeline_references import PipelineError
from slipway.schemas.pipelines import PipelineRunIn, PipelineRunState, StepIn
from slipway.schemas.training import GitFacts, JobIn


@dataclass(frozen=True)
class SettledRun:
    """A run that can start: values of its parameters, its code, and jobs of steps and trials."""

    parameters: dict[str, Any]
    snapshot: Snapshot | None
    jobs: Mapping[str, JobIn]


def settled_run(*, project: Project, by: User, requested: PipelineRunIn) -> SettledRun:
    """Return what a run would start. Raises InvalidInput for what can never run."""
    try:
        check_pipeline(requested.pipeline)
        parameters = resolved_parameters(requested.pipeline, requested.parameters)
    except PipelineError as error:
        raise InvalidInput(
            error.message, code="bad_pipeline", field=error.field, next_step=error.next_step
        ) from error
    snapshot = None if requested.snapshot is None else snapshot_of(project, requested.snapshot)
    if requested.snapshot is not None and snapshot is None:
        raise InvalidInput(
            "There is no such snapshot in this project.",
            code="no_such_snapshot",
            field="snapshot",
            next_step="Upload the code first (`slipway pipeline run` does this).",
        )
    jobs = {
        step.name: _settled_step(project, by, requested, step)
        for step in requested.pipeline.steps
        if step.runs_code
    }
    return SettledRun(parameters, snapshot, jobs)


def checked_run(*, project: Project, by: User, requested: PipelineRunIn) -> SettledRun:
    """Return what a run would start, with sweeps checked as far as parameters give their values.

    Raises InvalidInput for what can never run.
    """
    settled = settled_run(project=project, by=by, requested=requested)
    lookup = lookup_of_parameters(settled.parameters)
    for step in requested.pipeline.steps:
        if step.kind == "predict" and not dependencies(step) and step.foreach is None:
            try:
                checked_prediction(project, requested.pipeline, step, lookup)
            except InvalidInput as error:
                raise _of_step(step, error) from error
        if step.kind != "sweep":
            continue
        try:
            sweep = resolved_sweep(settled.jobs[step.name], step, lookup)
        except NoValue:
            continue
        try:
            trials_of(sweep)
        except InvalidInput as error:
            raise _of_step(step, error) from error
    return settled


def create_run(
    *,
    project: Project,
    by: User,
    requested: PipelineRunIn,
    variables: Mapping[str, str] | None = None,
) -> PipelineRun:
    """Store a run with its steps, all of which wait. Raises InvalidInput, naming the field.

    `variables` are environment variables that its schedule sets for all jobs.
    """
    settled = checked_run(project=project, by=by, requested=requested)
    with transaction.atomic():
        run = PipelineRun.objects.create(
            project=project,
            owner=by,
            name=requested.pipeline.name,
            spec=requested.pipeline.model_dump(mode="json", exclude_unset=True),
            parameters=settled.parameters,
            snapshot=settled.snapshot,
            git=requested.git.model_dump() if requested.git else None,
            force=requested.force,
            variables=dict(variables) if variables else None,
        )
        StepRun.objects.bulk_create(
            StepRun(run=run, step=step.name, kind=step.kind, request=_dumped(settled, step))
            for step in requested.pipeline.steps
        )
        record_change("pipeline.start", run, after={"steps": len(requested.pipeline.steps)})
    return run


def run_request(run: PipelineRun) -> PipelineRunIn:
    """Return the request that starts the same pipeline with the same parameters and code."""
    return PipelineRunIn(
        pipeline=run.pipeline,
        parameters=run.parameters,
        snapshot=run.snapshot.digest if run.snapshot is not None else None,
        git=None if run.git is None else GitFacts.model_validate(run.git),
    )


def stop_run(*, run: PipelineRun, message: str) -> bool:
    """End a run; its jobs stop as soon as it is advanced. Returns whether it went on till then."""
    with transaction.atomic():
        if not end_run(run, PipelineRunState.CANCELLED, explanation=message):
            return False
        record_change("pipeline.cancel", run)
    return True


def record_change(verb: str, run: PipelineRun, *, after: dict[str, Any] | None = None) -> None:
    """Record a change of a run in the audit log."""
    audit.record(
        verb, kind="pipeline_run", target=run, label=run.name, project=run.project, after=after
    )


def _settled_step(project: Project, by: User, requested: PipelineRunIn, step: StepIn) -> JobIn:
    job = job_of_step(requested.pipeline, step, snapshot=requested.snapshot, git=requested.git)
    try:
        return settled_job(project=project, by=by, requested=job)
    except InvalidInput as error:
        raise _of_step(step, error) from error


def _of_step(step: StepIn, error: InvalidInput) -> InvalidInput:
    """Return an error about the work of a step as one about the step."""
    return InvalidInput(
        f"Step {step.name}: {error.message}",
        code=error.code,
        field=f"steps.{step.name}.{error.field}" if error.field else f"steps.{step.name}",
        next_step=error.next_step,
    )


def _dumped(settled: SettledRun, step: StepIn) -> dict[str, Any] | None:
    job = settled.jobs.get(step.name)
    return None if job is None else job.model_dump(mode="json")
