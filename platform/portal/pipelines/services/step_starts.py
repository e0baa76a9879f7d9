"""Starting steps: jobs, sweeps, predictions, fan-outs, registrations, promotions, approvals."""

from collections.abc import Callable
from typing import Any

from django.db import transaction

from portal.core import clock
from portal.core.errors import Conflict, InvalidInput, SlipwayError
from portal.pipelines.models import PipelineRun, StepJob, StepRun, StepSweep
from portal.pipelines.pipeline_transitions import hold_run, move_step
from portal.pipelines.services.step_outputs import may_reuse, reusable
from portal.pipelines.services.step_predictions import settle_at_start, submit_step
from portal.pipelines.step_requests import Lookup, digest_of, resolved_job, resolved_sweep
from portal.registry.catalog import list_versions
from portal.registry.promotion_gates import Target
from portal.registry.services.actors import Actor
from portal.registry.services.promotions import promote
from portal.registry.services.registration import register_version
from portal.sweeps.services.sweeps import start_sweep
from portal.training.services.jobs import submit_job
from portal.training.submitters import reason_not_to_submit
from slipway.schemas.pipeline_checks import items_fault
from slipway.schemas.pipeline_references import as_text, substitute
from slipway.schemas.pipelines import StepIn, StepState
from slipway.schemas.registry import TargetKind, VersionIn
from slipway.schemas.training import JobIn

_SERVER_FAULTS = 500
# Tag of a model version: the step that has registered it.
STEP_TAG = "slipway.step"
_NO_ACCESS = "Somebody else may resume the run, and pays for it from then on."


def start_step(run: PipelineRun, row: StepRun, step: StepIn, lookup: Lookup) -> bool:
    """Start a step, or reuse its outputs. Returns whether it has moved.

    What is refused fails the step. What is only out of order is raised, and tried again.
    """
    starts: dict[str, Callable[[PipelineRun, StepRun, StepIn, Lookup], bool]] = {
        "sweep": _start_sweep,
        "predict": _predict,
        "register": _register,
        "promote": _promote,
        "approval": _ask,
    }
    reason = reason_not_to_submit(project=run.project, user=run.owner)
    if reason:
        return move_step(row, StepState.FAILED, explanation=reason, next_step=_NO_ACCESS)
    try:
        start = _start_job if step.is_job else starts[step.kind]
        return start(run, row, step, lookup)
    except SlipwayError as error:
        return fail(row, error)


def fail(row: StepRun, error: SlipwayError) -> bool:
    """Record an error for people as the end of a step. Others are raised, and tried again."""
    if error.status >= _SERVER_FAULTS:
        raise error
    return move_step(
        row,
        StepState.FAILED,
        explanation=error.message,
        next_step=f"{(error.next_step or 'Fix this').rstrip('.')}, then resume the run.",
    )


def start_items(run: PipelineRun, row: StepRun, step: StepIn, lookup: Lookup) -> bool:
    """Add the items of a fan-out, which start one by one."""
    items = substitute(step.foreach, lookup)
    if fault := items_fault(items):
        return move_step(
            row,
            StepState.FAILED,
            explanation=f"The list of its items {fault}.",
            next_step="Change the list, and run the pipeline again.",
        )
    with transaction.atomic():
        if not hold_run(run) or not move_step(row, StepState.RUNNING, started_at=clock.now()):
            return _undo()
        StepRun.objects.bulk_create(
            [
                StepRun(
                    run=run,
                    step=row.step,
                    item=number,
                    value=value,
                    kind=row.kind,
                    request=row.request,
                )
                for number, value in enumerate(items)
            ],
            ignore_conflicts=True,  # a run that is resumed has them
        )
    return True


def submit(
    run: PipelineRun, row: StepRun, step: StepIn, lookup: Lookup, *, failures: int = 0
) -> bool:
    """Submit a job of a step, in the name of the person who pays. Returns whether it did."""
    reason = reason_not_to_submit(project=run.project, user=run.owner)
    if reason:
        return move_step(row, StepState.FAILED, explanation=reason, next_step=_NO_ACCESS)
    try:
        if step.kind == "predict":
            return submit_step(run, row, *settle_at_start(run, step, lookup), failures=failures)
        requested = resolved_job(JobIn.model_validate(row.request), step, lookup)
        return _submitted(run, row, requested, digest_of(step, requested), failures)
    except SlipwayError as error:
        return fail(row, error)


def _start_job(run: PipelineRun, row: StepRun, step: StepIn, lookup: Lookup) -> bool:
    requested = resolved_job(JobIn.model_validate(row.request), step, lookup)
    digest = digest_of(step, requested)
    if may_reuse(run, step) and (earlier := reusable(run, step, digest)):
        return _reuse(row, earlier, digest)
    return _submitted(run, row, requested, digest, failures=0)


def _submitted(
    run: PipelineRun, row: StepRun, requested: JobIn, digest: str, failures: int
) -> bool:
    attempt = row.attempt + 1
    with transaction.atomic():
        claimed = hold_run(run) and move_step(
            row,
            StepState.RUNNING,
            attempt=attempt,
            failures=failures,
            digest=digest,
            started_at=row.started_at or clock.now(),
        )
        if not claimed:
            return _undo()  # Another worker has started it, or the run was cancelled.
        job = submit_job(
            project=run.project, by=run.owner, requested=requested, variables=run.variables
        )
        StepRun.objects.filter(pk=row.pk).update(job=job)
        StepJob.objects.create(step_run=row, attempt=attempt, job=job)
    return True


def _start_sweep(run: PipelineRun, row: StepRun, step: StepIn, lookup: Lookup) -> bool:
    requested = resolved_sweep(JobIn.model_validate(row.request), step, lookup)
    digest = digest_of(step, requested)
    if may_reuse(run, step) and (earlier := reusable(run, step, digest)):
        return _reuse(row, earlier, digest)
    attempt = row.attempt + 1
    with transaction.atomic():
        claimed = hold_run(run) and move_step(
            row, StepState.RUNNING, attempt=attempt, digest=digest, started_at=clock.now()
        )
        if not claimed:
            return _undo()  # Another worker has started it, or the run was cancelled.
        sweep = start_sweep(
            project=run.project, by=run.owner, requested=requested, variables=run.variables
        )
        StepRun.objects.filter(pk=row.pk).update(sweep=sweep)
        StepSweep.objects.create(step_run=row, attempt=attempt, sweep=sweep)
    return True


def _predict(run: PipelineRun, row: StepRun, step: StepIn, lookup: Lookup) -> bool:
    requested, settled, digest = settle_at_start(run, step, lookup)
    if may_reuse(run, step) and (earlier := reusable(run, step, digest)):
        return _reuse(row, earlier, digest)
    return submit_step(run, row, requested, settled, digest, failures=0)


def _reuse(row: StepRun, earlier: StepRun, digest: str) -> bool:
    return move_step(
        row,
        StepState.REUSED,
        outputs=earlier.outputs,
        reused_from=earlier,
        digest=digest,
        explanation=f"Same code, inputs and environment as in run {earlier.run_id}.",
        started_at=clock.now(),
    )


def _register(run: PipelineRun, row: StepRun, step: StepIn, lookup: Lookup) -> bool:
    """Register a version, once: its tag tells a process that was killed before it said so."""
    model = as_text(substitute(step.model, lookup))
    source = as_text(substitute(step.source, lookup))
    digest = digest_of(step, {"model": model, "source": source})
    if may_reuse(run, step) and (earlier := reusable(run, step, digest)):
        return _reuse(row, earlier, digest)
    with transaction.atomic():
        if not hold_run(run):
            return _undo()
        mark = f"{row.pk}-{run.attempt}"
        number = _registered(run.project_id, model, mark)
        if number is None:
            requested = VersionIn(source=source, tags={STEP_TAG: mark})
            version = register_version(
                project=run.project, model=model, spec=requested, by=Actor(run.owner)
            )
            number = version.number
        outputs = {"version": number, "uri": f"models:/{model}/{number}"}
        moved = move_step(
            row,
            StepState.SUCCEEDED,
            outputs=outputs,
            digest=digest,
            value=model,
            started_at=clock.now(),
        )
        return moved or _undo()


def _registered(project_id: str, model: str, mark: str) -> int | None:
    """Return the version that this step has registered before it was interrupted, or None."""
    page = list_versions(project_id, model, limit=20)
    numbers = [it.number for it in page.items if it.tags.get(STEP_TAG) == mark]
    return numbers[0] if numbers else None


def _promote(run: PipelineRun, row: StepRun, step: StepIn, lookup: Lookup) -> bool:
    model = as_text(substitute(step.model, lookup))
    version = substitute(step.version, lookup)
    if not isinstance(version, int) or isinstance(version, bool):
        raise InvalidInput(
            f"The version to promote is {as_text(version)[:80]}, not a whole number.",
            field=f"steps.{step.name}.version",
            next_step="Refer to the output version of a step that registers",
        )
    kind = TargetKind.STAGE if step.stage is not None else TargetKind.ALIAS
    target = Target(kind, step.stage or step.alias or "")
    moved = None
    with transaction.atomic():
        if not hold_run(run):
            return _undo()
        try:
            with transaction.atomic():
                moved = promote(
                    project=run.project,
                    model=model,
                    number=version,
                    target=target,
                    by=Actor(run.owner),
                )
        except Conflict as error:
            if error.code != "already_there":
                raise
        # A schedule that this promotion starts knows the run that it comes from.
        value = None if moved is None else moved.pk
        return move_step(row, StepState.SUCCEEDED, value=value, started_at=clock.now()) or _undo()


def _ask(run: PipelineRun, row: StepRun, step: StepIn, lookup: Lookup) -> bool:
    message = as_text(substitute(step.message, lookup)) or (
        f"Waits for a person with the role {step.approvers}."
    )
    with transaction.atomic():
        changes: dict[str, Any] = {
            "explanation": message,
            "value": step.approvers,
            "started_at": clock.now(),
        }
        return (hold_run(run) and move_step(row, StepState.APPROVAL, **changes)) or _undo()


def _undo() -> bool:
    transaction.set_rollback(True)
    return False
