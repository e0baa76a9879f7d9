"""Starting, cancelling and resuming runs of pipelines, and decisions about their steps.

Steps are started by `portal.pipelines.services.pipeline_progress`, in the control worker.
"""

from typing import Any

from django.db import transaction
from django.db.models import Q

from portal.accounts.models import Project, User
from portal.accounts.models.tenancy import role_in
from portal.core.enqueue import enqueue_on_commit
from portal.core.errors import Conflict, Forbidden, NotFound
from portal.pipelines.models import PipelineRun, StepRun
from portal.pipelines.pipeline_transitions import (
    hold_run,
    move_step,
    reset_steps,
    restart_run,
)
from portal.pipelines.services.pipeline_starts import (
    create_run,
    record_change,
    run_request,
    stop_run,
)
from portal.pipelines.tasks import advance_run
from portal.registry.services.actors import Actor
from slipway.schemas.accounts import Role
from slipway.schemas.pipelines import (
    PipelineRunIn,
    PipelineRunState,
    StepDecision,
    StepState,
)

_OPEN_STEPS = [StepState.WAITING, StepState.RUNNING, StepState.APPROVAL]
_ENDED_BADLY = [StepState.FAILED, StepState.CANCELLED, StepState.SKIPPED]


def start_run(*, project: Project, by: User, requested: PipelineRunIn) -> PipelineRun:
    """Start a run of a pipeline. `by` pays for its jobs.

    Whatever is wrong with the pipeline, its parameters or its jobs is refused here. Raises
    InvalidInput, naming the field.
    """
    with transaction.atomic():
        run = create_run(project=project, by=by, requested=requested)
        enqueue_on_commit(advance_run, run.pk)
    return run


def repeat_run(*, run: PipelineRun, by: User, force: bool) -> PipelineRun:
    """Start a new run with the same pipeline, parameters and code. `by` pays for it.

    With `force` no output of an earlier run is reused. Raises InvalidInput as `start_run` does,
    such as for a hardware tier that no longer exists.
    """
    requested = run_request(run).model_copy(update={"force": force})
    return start_run(project=run.project, by=by, requested=requested)


def cancel_run(*, run: PipelineRun, by: User) -> PipelineRun:
    """End a run and its jobs. Idempotent: one that has ended stays as it is."""
    with transaction.atomic():
        if stop_run(run=run, message=f"Cancelled by {by.display_name}."):
            enqueue_on_commit(advance_run, run.pk)
    run.refresh_from_db()
    return run


def resume_run(*, run: PipelineRun, by: User) -> PipelineRun:
    """Go on with a failed or cancelled run. Steps that have succeeded are not done again.

    `by` pays from then on. Raises Conflict for a run that goes on or has succeeded.
    """
    with transaction.atomic():
        if not restart_run(run, owner=by):
            run.refresh_from_db()
            raise Conflict(
                f"The run is {run.state}, so it cannot be resumed.",
                code="run_not_failed",
                next_step="Start a new run."
                if run.status == PipelineRunState.SUCCEEDED
                else "Wait until it has ended.",
            )
        rows = StepRun.objects.filter(run=run)
        if rows.filter(state__in=_OPEN_STEPS).exists():
            raise Conflict(
                "Jobs of the run are still stopping.",
                code="run_stopping",
                next_step="Resume it in a few seconds.",
            )
        pipeline = run.pipeline
        on_failure = [step.name for step in pipeline.steps if step.run_on != "success"]
        again = rows.filter(Q(state__in=_ENDED_BADLY) | Q(step__in=on_failure))
        reset_steps(run, list(again.values_list("pk", flat=True)))
        _record("pipeline.resume", run)
    return run


def decide_step(*, run: PipelineRun, step: str, by: Actor, decision: StepDecision) -> PipelineRun:
    """Approve or decline a step that waits for it.

    Raises NotFound, Forbidden for a person with a lower role and for jobs and service accounts, and
    Conflict if it does not wait for approval.
    """
    row = StepRun.objects.filter(run=run, step=step, item__isnull=True).first()
    if row is None:
        raise NotFound
    _require_approver(run, row, by)
    with transaction.atomic():
        is_approved = decision.verdict == "approve"
        verb = "Approved" if is_approved else "Declined"
        note = f" {decision.note}" if decision.note else ""
        moved = (
            row.status == StepState.APPROVAL
            and hold_run(run)
            and move_step(
                row,
                StepState.SUCCEEDED if is_approved else StepState.FAILED,
                explanation=f"{verb} by {by.user.display_name}.{note}",
                next_step="" if is_approved else "Resume the run to ask again.",
                decided_by=by.user,
            )
        )
        if not moved:
            row.refresh_from_db()
            raise Conflict(
                f"Step {step} is {row.state}, so there is nothing to decide.",
                code="not_waiting_for_approval",
                next_step="Reload the run.",
            )
        _record("pipeline.decide", run, after={"step": step, "verdict": decision.verdict})
    return run


def _require_approver(run: PipelineRun, row: StepRun, by: Actor) -> None:
    needed = Role(run.pipeline.step(row.step).approvers)
    role = None if by.user.is_service_account else role_in(by.user, run.project)
    if by.workload_id or role is None or not role.at_least(needed):
        raise Forbidden(
            f"The decision about step {row.step} needs the role {needed.value}.",
            code="role_too_low",
            next_step="Ask a person with this role in the project.",
        )


def _record(verb: str, run: PipelineRun, *, after: dict[str, Any] | None = None) -> None:
    record_change(verb, run, after=after)
    enqueue_on_commit(advance_run, run.pk)
