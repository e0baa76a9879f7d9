"""Advancing runs of pipelines: recording ended jobs, starting steps, and ending the run.

Everything follows from rows, so it may run at any time, twice, or be killed between two steps. A
step moves to `running` in the transaction that submits its job or starts its sweep: neither exists
without the other.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog
from django.db import transaction

from portal.accounts.request_origin import Origin, origin_context
from portal.core.errors import SlipwayError
from portal.pipelines.models import PipelineRun, StepRun
from portal.pipelines.pipeline_transitions import end_run, hold_run, move_step
from portal.pipelines.services.step_outputs import collected_outputs
from portal.pipelines.services.step_starts import fail, start_items, start_step, submit
from portal.pipelines.services.step_sweeps import record_sweep_end, stop_step_sweep
from portal.pipelines.step_requests import NoValue, lookup_in
from portal.workloads.lifecycle import ENDS
from portal.workloads.services.cancellation import stop_workload
from slipway.schemas.pipeline_checks import dependencies, ordered, outputs_of
from slipway.schemas.pipeline_references import parse_condition
from slipway.schemas.pipelines import PipelineRunState, StepIn, StepState
from slipway.schemas.workloads import ReasonCode, WorkloadState

log = structlog.get_logger(__name__)
# Rounds of one call: each one starts all that the round before has made possible.
_MOST_ROUNDS = 250
_BAD = (StepState.FAILED, StepState.CANCELLED)
# Ends that a further job would not change.
_DECIDED = [ReasonCode.USER.value, ReasonCode.BUDGET.value, ReasonCode.MAX_LIFETIME.value]


@dataclass(frozen=True)
class RunState:
    """A run with its steps as they are now: by name, and the items of fan-outs by name."""

    run: PipelineRun
    steps: Sequence[StepIn]
    rows: Mapping[str, StepRun]
    items: Mapping[str, Sequence[StepRun]]

    @classmethod
    def read(cls, run: PipelineRun) -> "RunState":
        """Read the rows of a run."""
        run.refresh_from_db()
        rows: dict[str, StepRun] = {}
        items: dict[str, list[StepRun]] = {}
        queryset = StepRun.objects.filter(run=run)
        queryset = queryset.select_related("job__workload__project", "sweep__project")
        for row in queryset.order_by("step", "item"):
            row.run = run
            if row.item is None:
                rows[row.step] = row
            else:
                items.setdefault(row.step, []).append(row)
        return cls(run, ordered(run.pipeline), rows, items)

    @property
    def everything(self) -> list[StepRun]:
        """All rows, those of items too."""
        return [*self.rows.values(), *(row for rows in self.items.values() for row in rows)]


def advance_run(run_id: str) -> None:
    """Do what is due for a run. Idempotent; does nothing for an id that is none."""
    runs = PipelineRun.objects.select_related("project__team", "owner", "snapshot")
    run = runs.filter(pk=run_id).first()
    if run is None:
        return
    with origin_context(Origin(label=f"Pipeline {run.name}")):
        for _ in range(_MOST_ROUNDS):
            if not _advance(RunState.read(run)):
                return


def advance_all() -> int:
    """Advance every run that may have something due, and return their number."""
    ids = list(PipelineRun.objects.unsettled().order_by("pk").values_list("pk", flat=True))
    for run_id in ids:
        try:
            advance_run(run_id)
        except Exception:
            log.exception("pipeline_not_advanced", run=run_id)
    return len(ids)


def _advance(state: RunState) -> bool:
    """Do one round. Returns whether something has changed."""
    changes = [_record_end(state, row) for row in state.everything]
    if any(changes):
        return True
    if state.run.status != PipelineRunState.RUNNING:
        stops = [_stop(state.run, row) for row in state.everything]
        return any(stops)
    changes = [_advance_step(state, step) for step in state.steps]
    return any(changes) or _finish(state)


def _record_end(state: RunState, row: StepRun) -> bool:
    """Record the end of a job or sweep as that of its step, or retry it. Returns whether it did."""
    if row.status != StepState.RUNNING:
        return False
    step = state.run.pipeline.step(row.step)
    if row.sweep is not None:
        return record_sweep_end(state.run, row, row.sweep, step)
    if row.job is None or row.job.workload.status not in ENDS:
        return False
    workload = row.job.workload
    goes_on = state.run.status == PipelineRunState.RUNNING
    if workload.status == WorkloadState.SUCCEEDED:
        try:
            return move_step(row, StepState.SUCCEEDED, outputs=collected_outputs(row, step))
        except SlipwayError as error:
            return fail(row, error)
    reason = workload.reason_text or f"Its job {workload.state}."
    if not goes_on and workload.status == WorkloadState.STOPPED:
        return move_step(row, StepState.CANCELLED, explanation=reason)
    is_decided = workload.reason in _DECIDED
    if goes_on and row.failures < step.retries and not is_decided:
        return submit(state.run, row, step, _lookup(state, row), failures=row.failures + 1)
    return move_step(
        row,
        StepState.FAILED,
        explanation=reason,
        next_step=workload.next_step or "Read the log of its job, then resume the run.",
        failures=row.failures + 1,
    )


def _advance_step(state: RunState, step: StepIn) -> bool:
    row = state.rows[step.name]
    if row.status == StepState.RUNNING and step.foreach is not None:
        return _advance_items(state, step, row)
    if row.status != StepState.WAITING:
        return False
    before = [state.rows[name] for name in dependencies(step)]
    if not all(other.status.has_ended for other in before):
        return False
    reason = _reason_to_skip(state, step, before)
    if reason:
        return move_step(row, StepState.SKIPPED, explanation=reason)
    lookup = _lookup(state, row)
    try:
        if step.when is not None and not parse_condition(step.when, "when").holds(lookup):
            text = f"Its condition does not hold: {step.when}"
            return move_step(row, StepState.SKIPPED, explanation=text)
        if step.foreach is not None:
            return start_items(state.run, row, step, lookup)
        return start_step(state.run, row, step, lookup)
    except (TypeError, NoValue) as error:
        return move_step(
            row,
            StepState.FAILED,
            explanation=f"A value cannot be used: {error}.",
            next_step="Correct the condition or the references of the step.",
        )


def _reason_to_skip(state: RunState, step: StepIn, before: Sequence[StepRun]) -> str:
    """Return why a step is not run, by the ends of the steps before it, or ""."""
    if step.run_on == "always":
        return ""
    if step.run_on == "failure":
        return "" if _failed_before(state, step) else "No step before it has failed."
    blocked = next((row for row in before if not row.status.has_outputs), None)
    return "" if blocked is None else f"Step {blocked.step} is {blocked.state}."


def _failed_before(state: RunState, step: StepIn) -> bool:
    by_name = {other.name: other for other in state.steps}
    left, seen = list(dependencies(step)), set()
    while left:
        name = left.pop()
        if state.rows[name].status in _BAD:
            return True
        if name not in seen:
            seen.add(name)
            left += dependencies(by_name[name])
    return False


def _advance_items(state: RunState, step: StepIn, row: StepRun) -> bool:
    """Start the items of a fan-out that wait, and end it once all of them have ended."""
    items = state.items.get(step.name, ())
    waiting = [item for item in items if item.status == StepState.WAITING]
    if waiting:
        starts = [start_step(state.run, item, step, _lookup(state, item)) for item in waiting]
        return any(starts)
    if not all(item.status.has_ended for item in items):
        return False
    bad = [item for item in items if not item.status.has_outputs]
    if bad:
        return move_step(
            row,
            StepState.FAILED,
            explanation=f"{len(bad)} of {len(items)} items failed. The first of them, number "
            f"{(bad[0].item or 0) + 1}: {bad[0].explanation}",
            next_step=bad[0].next_step or "Resume the run once this is fixed.",
        )
    outputs = {name: [item.outputs[name] for item in items] for name in outputs_of(step)}
    is_reused = all(item.status == StepState.REUSED for item in items)
    return move_step(row, StepState.REUSED if is_reused else StepState.SUCCEEDED, outputs=outputs)


def _lookup(state: RunState, row: StepRun) -> Any:
    return lookup_in(state.run, state.rows, row.value)


def _stop(run: PipelineRun, row: StepRun) -> bool:
    """Stop a step of a run that was cancelled. Returns whether it has ended by this."""
    if row.status in (StepState.WAITING, StepState.APPROVAL):
        return move_step(row, StepState.CANCELLED, explanation=run.explanation)
    if row.status != StepState.RUNNING:
        return False
    if row.sweep is not None:
        return stop_step_sweep(run, row.sweep)
    if row.job is None:  # a fan-out, whose items are stopped
        return move_step(row, StepState.CANCELLED, explanation=run.explanation)
    stop_workload(workload=row.job.workload, message=f"Stopped with the pipeline {run.name}.")
    row.job.workload.refresh_from_db()
    return row.job.workload.status in ENDS


def _finish(state: RunState) -> bool:
    if not all(row.status.has_ended for row in state.everything):
        return False
    failed = [state.rows[step.name] for step in state.steps if state.rows[step.name].status in _BAD]
    with transaction.atomic():
        if not hold_run(state.run):
            return False
        if not failed:
            return end_run(state.run, PipelineRunState.SUCCEEDED)
        first = failed[0]
        return end_run(
            state.run,
            PipelineRunState.FAILED,
            explanation=f"Step {first.step} failed: {first.explanation}",
            next_step=first.next_step,
        )
