"""Outputs of steps: reported by jobs, completed from their runs, and found again by digest."""

from typing import Any

from django.db import transaction

from portal.core.errors import InvalidInput, NotFound
from portal.experiments.factories import tracker
from portal.experiments.ports import RunDetail, Stage
from portal.experiments.services.artifacts import artifact_of, artifacts_of
from portal.experiments.services.job_runs import run_id_of
from portal.pipelines.models import PipelineRun, StepJob, StepRun
from portal.pipelines.services.step_predictions import output_exists, prediction_outputs
from portal.registry.catalog import find_version
from portal.workloads.models import Workload
from slipway.schemas.names import path_error
from slipway.schemas.pipeline_checks import outputs_of, type_fault
from slipway.schemas.pipelines import StepIn, StepOutput, StepState

_FILES = "runs:/"
# Folder of the files of the first task among the artifacts of a run.
_KEPT = "files"
_MOST_LOOKED_AT = 5
_SUCCEEDED = "Its job succeeded"
_BEST_TRIAL = "The job of its best trial succeeded"


def report_outputs(*, workload: Workload, outputs: dict[str, Any]) -> None:
    """Store outputs that the job of a step has reported. Later values replace earlier ones.

    Raises NotFound for a job that is no step, and InvalidInput for an output that the pipeline does
    not declare or a value of another type.
    """
    with transaction.atomic():
        rows = StepJob.objects.select_for_update(of=("self",), no_key=True)
        step_job = rows.select_related("step_run__run").filter(job=workload.pk).first()
        if step_job is None:
            raise NotFound
        row = step_job.step_run
        step = row.run.pipeline.step(row.step)
        for name, value in outputs.items():
            _check_output(step, name, value)
        StepJob.objects.filter(pk=step_job.pk).update(reported=step_job.reported | outputs)


def collected_outputs(row: StepRun, step: StepIn) -> dict[str, Any]:
    """Return the outputs of a step whose job has succeeded.

    Raises InvalidInput if one is missing: neither reported, nor a metric or file of the job's run.
    """
    if not outputs_of(step) or row.job_id is None:
        return {}
    if step.kind == "predict":
        return prediction_outputs(row)
    reported = StepJob.objects.filter(job=row.job_id).values_list("reported", flat=True).first()
    run = tracker().run(row.run.project_id, run_id_of(row.job_id))
    metrics = {metric.key: metric.value for metric in run.metrics} if run is not None else {}
    outputs: dict[str, Any] = {}
    if step.is_notebook:
        executed = StepOutput(type="file", path=step.executed_path)
        outputs["notebook"] = _kept_file(row, "notebook", executed, None, run, _SUCCEEDED)
        outputs["run"] = run_id_of(row.job_id)
    for name, output in step.outputs.items():
        value = (reported or {}).get(name)
        if output.type == "file":
            value = _kept_file(row, name, output, value, run, _SUCCEEDED)
        elif value is None and name in metrics:
            value = _as_type(metrics[name], output.type)
        if value is None:
            raise InvalidInput(
                f"{_SUCCEEDED}, but reported no output {name}.",
                field=f"steps.{step.name}.outputs.{name}",
                next_step=f'Call slipway.step_output("{name}", value) in it, return it, or log a '
                "metric of this name.",
            )
        outputs[name] = value
    return outputs


def outputs_of_job(row: StepRun, step: StepIn, job_id: str) -> dict[str, Any]:
    """Return the declared outputs of a sweep: files and metrics of its best trial's job.

    Raises InvalidInput if one is missing.
    """
    if not step.outputs:
        return {}
    run = tracker().run(row.run.project_id, run_id_of(job_id))
    metrics = {metric.key: metric.value for metric in run.metrics} if run is not None else {}
    outputs = {}
    for name, output in step.outputs.items():
        if output.type == "file":
            value = _kept_file(row, name, output, None, run, _BEST_TRIAL)
        else:
            value = _as_type(metrics[name], output.type) if name in metrics else None
        if value is None:
            raise InvalidInput(
                f"{_BEST_TRIAL}, but its last metric {name} is no {output.type}."
                if name in metrics
                else f"{_BEST_TRIAL}, but logged no metric {name}.",
                field=f"steps.{step.name}.outputs.{name}",
                next_step=f'Log it with mlflow.log_metric("{name}", …), or remove the output.',
            )
        outputs[name] = value
    return outputs


def may_reuse(run: PipelineRun, step: StepIn) -> bool:
    """Return whether a step may have outputs of an earlier run.

    A sweep with a warm start may not: what it learns from changes.
    """
    is_kind = step.has_cost or step.kind == "register"
    return is_kind and step.cache and not step.warm_start and not run.force


def reusable(run: PipelineRun, step: StepIn, digest: str) -> StepRun | None:
    """Return an earlier step of the project with this digest whose outputs exist, or None."""
    rows = StepRun.objects.filter(
        run__project=run.project_id, digest=digest, state=StepState.SUCCEEDED
    )
    newest = rows.select_related("run__project").order_by("-pk")[:_MOST_LOOKED_AT]
    return next((row for row in newest if _exists(run.project_id, step, row)), None)


def _exists(project_id: str, step: StepIn, row: StepRun) -> bool:
    """Return whether the files and model versions that a step has made are still there."""
    try:
        if step.kind == "register":
            find_version(project_id, str(row.value), int(row.outputs["version"]))
            return True
        if step.kind == "predict":
            return output_exists(row.run.project, row.outputs)
        if step.kind == "sweep" and not _run_exists(project_id, row.outputs["best_run"]):
            return False
        files = [name for name, output in step.outputs.items() if output.type == "file"]
        if step.is_notebook:
            files.append("notebook")
        return all(_file_exists(project_id, row.outputs[name]) for name in files)
    except (NotFound, KeyError, ValueError):
        return False


def _run_exists(project_id: str, run_id: str) -> bool:
    run = tracker().run(project_id, run_id)
    return run is not None and run.facts.stage != Stage.DELETED


def _file_exists(project_id: str, uri: str) -> bool:
    run_id, _, path = uri.removeprefix(_FILES).partition("/")
    run = tracker().run(project_id, run_id)
    return run is not None and _is_kept(project_id, run, path)


def _is_kept(project_id: str, run: RunDetail, path: str) -> bool:
    """Return whether a run that is not in the trash has a file or folder."""
    if run.facts.stage == Stage.DELETED:
        return False
    try:
        artifact_of(project_id=project_id, run=run, path=path)
    except NotFound:
        return bool(artifacts_of(project_id=project_id, run=run, path=path, most=1))
    return True


def _kept_file(
    row: StepRun,
    name: str,
    output: StepOutput,
    reported: Any,
    run: RunDetail | None,
    succeeded: str,
) -> str | None:
    """Return the address of a file that a job has kept in its run. Raises InvalidInput."""
    path = reported or output.path
    if path is None:
        return None
    inside = f"{_KEPT}/{path}"
    if run is None or not _is_kept(row.run.project_id, run, inside):
        raise InvalidInput(
            f"{succeeded}, but the output {name}, {path}, is not among the files it has kept.",
            field=f"steps.{row.step}.outputs.{name}",
            next_step="See on the page of the job which files were left out, and why.",
        )
    return f"{_FILES}{run.facts.id}/{inside}"


def _as_type(value: float, expected: str) -> Any:
    if expected == "integer":
        return int(value) if value == int(value) else None
    return value if expected in ("number", "any") and abs(value) < float("inf") else None


def _check_output(step: StepIn, name: str, value: Any) -> None:
    output = step.outputs.get(name)
    if output is None:
        known = ", ".join(step.outputs) or "none"
        raise InvalidInput(
            f"Step {step.name} has no output {name}.",
            code="unknown_output",
            field=f"outputs.{name}",
            next_step=f"Declare it in the pipeline. Its outputs: {known}.",
        )
    fault = type_fault(value, output.type)
    if not fault and output.type == "file":
        fault = path_error(value) or ""
    if fault:
        raise InvalidInput(
            f"Output {name} of step {step.name} {fault}.",
            code="other_type",
            field=f"outputs.{name}",
            next_step=f"Report a value of type {output.type}, or change the type in the pipeline.",
        )
