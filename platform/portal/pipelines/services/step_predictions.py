"""Steps that are batch predictions: their requests, starts, outputs and prices."""

import re
from typing import Any

from django.db import transaction
from pydantic import ValidationError

from portal.accounts.models import Project, User
from portal.batch_predictions.models import BatchPrediction
from portal.batch_predictions.services.outputs import output_version
from portal.batch_predictions.services.submission import (
    SettledPrediction,
    program_snapshot,
    settle_prediction,
    submit_prediction,
)
from portal.core import clock
from portal.core.errors import InvalidInput
from portal.datasets.services.datasets import resolve
from portal.pipelines.models import PipelineRun, StepJob, StepRun
from portal.pipelines.pipeline_transitions import hold_run, move_step
from portal.pipelines.step_requests import Lookup, digest_of
from portal.spend.presenters import with_cost
from portal.training.services.jobs import admission_request, quote_job
from slipway.schemas.batch_predictions import BatchPredictionIn
from slipway.schemas.environments import INSTALLATION
from slipway.schemas.pipeline_references import as_text, substitute
from slipway.schemas.pipelines import PipelineIn, StepIn, StepState
from slipway.schemas.training import JobIn, Quote

_URI = re.compile(r"models:/(?P<model>[^/]+)/(?P<version>[^/]+)")
_SAME_FIELDS = (
    *("tier", "pool", "max_hours", "preemptible", "table", "on_error", "columns"),
    "environment",
)
_PIPELINE_TAG = "pipeline"
_MOST_TAGS = 10
_NO_SNAPSHOT = "0" * 64


def prediction_of(pipeline: PipelineIn, step: StepIn, lookup: Lookup) -> BatchPredictionIn:
    """Return the request of a step with the values of its references.

    A model may be written as `digits`, `digits@3` or `models:/digits/3`. Raises InvalidInput, which
    names the field of the step, and NoValue.
    """
    model = as_text(substitute(step.model, lookup))
    version = substitute(step.version, lookup)
    if match := _URI.fullmatch(model):
        model, named = match["model"], match["version"]
    else:
        model, _, named = model.partition("@")
    tags = dict(step.tags)
    if len(tags) < _MOST_TAGS:
        tags.setdefault(_PIPELINE_TAG, pipeline.name)
    fields = {
        "name": f"{pipeline.name}-{step.name}",
        "model": model,
        "version": named or None if version is None else as_text(version),
        "data": as_text(substitute(step.data, lookup)),
        "output": as_text(substitute(step.output, lookup)),
        "keep": step.keep_columns,
        "tags": tags,
        **{name: getattr(step, name) for name in _SAME_FIELDS},
    }
    try:
        return BatchPredictionIn.model_validate(fields)
    except ValidationError as error:
        fault = error.errors(include_input=False, include_url=False)[0]
        path = ".".join(map(str, fault["loc"]))
        raise InvalidInput(
            f"{path} of step {step.name}: {fault['msg'].removeprefix('Value error, ')}.",
            field=f"steps.{step.name}.{path}",
            next_step="Correct it, or the output that it refers to",
        ) from error


def prediction_digest(
    step: StepIn, requested: BatchPredictionIn, settled: SettledPrediction
) -> str:
    """Return the digest of all that the predictions depend on, and of where they go."""
    served = settled.served
    files = {file.path: file.sha256 for file in served.files}
    # The packages of the model itself are among its files.
    packages = served.model_dump(include={"requirements", "python", "conda"})
    return digest_of(
        step,
        {
            **({"packages": packages} if requested.environment is not None else {}),
            "files": files,
            "model": served.model,
            "version": settled.number,
            "data": settled.data.digest,
            "table": settled.table.name,
            "columns": settled.columns,
            "keep": settled.keep,
            "on_error": requested.on_error,
            "output": requested.output,
        },
    )


def settled_step(
    project: Project, pipeline: PipelineIn, step: StepIn, lookup: Lookup, snapshot: str
) -> tuple[BatchPredictionIn, SettledPrediction, str]:
    """Return the request of a step, what it stands for, and its digest."""
    requested = prediction_of(pipeline, step, lookup)
    settled = settle_prediction(project=project, requested=requested, snapshot=snapshot)
    return requested, settled, prediction_digest(step, requested, settled)


def checked_prediction(
    project: Project, pipeline: PipelineIn, step: StepIn, lookup: Lookup
) -> tuple[BatchPredictionIn, SettledPrediction, str]:
    """Return the same before a run starts: nothing is stored."""
    return settled_step(project, pipeline, step, lookup, _NO_SNAPSHOT)


def settle_at_start(
    run: PipelineRun, step: StepIn, lookup: Lookup
) -> tuple[BatchPredictionIn, SettledPrediction, str]:
    """Return the same for a step that starts. Call it outside of transactions."""
    snapshot = program_snapshot(project=run.project, by=run.owner)
    return settled_step(run.project, run.pipeline, step, lookup, snapshot)


def submit_step(
    run: PipelineRun,
    row: StepRun,
    requested: BatchPredictionIn,
    settled: SettledPrediction,
    digest: str,
    *,
    failures: int,
) -> bool:
    """Submit the job of a step, in one transaction with its move. Returns whether it did."""
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
        if not claimed:  # Another worker has started it, or the run was cancelled.
            transaction.set_rollback(True)
            return False
        prediction = submit_prediction(
            project=run.project, by=run.owner, requested=requested, settled=settled
        )
        StepRun.objects.filter(pk=row.pk).update(job=prediction.job)
        StepJob.objects.create(step_run=row, attempt=attempt, job=prediction.job)
    return True


def prediction_outputs(row: StepRun) -> dict[str, Any]:
    """Return the outputs of a step whose job has succeeded. Raises InvalidInput without any."""
    predictions = BatchPrediction.objects.filter(pk=row.job_id).defer("served")
    prediction = predictions.select_related("output__dataset").first()
    version = None if prediction is None else output_version(prediction)
    if prediction is None or version is None:
        raise InvalidInput(
            "Its job succeeded, but its output is no version of a dataset.",
            next_step="See the page of the batch prediction",
        )
    return {
        "data": version.reference,
        "rows": prediction.rows,
        "failed_rows": prediction.failed_rows,
    }


def output_exists(project: Project, outputs: dict[str, Any]) -> bool:
    """Return whether the version that a step has made is still there."""
    try:
        resolve(project=project, reference=str(outputs["data"]))
    except (InvalidInput, KeyError):
        return False
    return True


def quote_step(
    project: Project, by: User, step: StepIn, settled: SettledPrediction | None
) -> Quote:
    """Return the price of a step. Its packages are left out while its model is not known."""
    job = settled.job if settled is not None else _unknown_job(step)
    request = admission_request(project=project, by=by, spec=job)
    quote = with_cost(quote_job(project=project, spec=job), request)
    return quote if settled is not None else quote.model_copy(update={"packages": None})


def _unknown_job(step: StepIn) -> JobIn:
    return JobIn(
        name=step.name,
        snapshot=_NO_SNAPSHOT,
        script="predict.py",
        tier=step.tier,
        pool=step.pool,
        max_hours=step.max_hours,
        preemptible=step.preemptible,
        environment=INSTALLATION,
    )
