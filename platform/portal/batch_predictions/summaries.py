"""Batch predictions as the API and pages show them."""

from portal.batch_predictions.models import BatchPrediction
from portal.batch_predictions.services.outputs import output_version
from portal.training.services.progress import progress_of
from portal.workloads.costs import workload_price
from portal.workloads.explanations import Explainer
from slipway.schemas.batch_predictions import BatchPredictionOut


def summary_of(prediction: BatchPrediction, explainer: Explainer) -> BatchPredictionOut:
    """Serialize a batch prediction of `BatchPredictionQuerySet.of_project`."""
    job = prediction.job
    workload = job.workload
    progress = progress_of(job)
    version = output_version(prediction)
    rows, seconds = prediction.rows, prediction.seconds
    return BatchPredictionOut(
        id=job.pk,
        project=workload.project.slug,
        name=workload.name,
        model=prediction.model,
        version=prediction.number,
        data=prediction.data.reference,
        table=prediction.table,
        output=prediction.target.name,
        output_version=None if version is None else version.reference,
        keep=prediction.keep,
        columns=prediction.columns,
        on_error=prediction.on_error,
        state=workload.status,
        explanation=explainer.explain(workload),
        next_step=workload.next_step or None,
        tier=workload.tier.slug,
        step=progress.step,
        rows=rows,
        failed_rows=prediction.failed_rows,
        left_out_rows=prediction.data.bad_rows,
        rows_per_second=rows / seconds if rows is not None and seconds else None,
        rows_per_call=prediction.rows_per_call,
        batching=prediction.batching,
        first_failure=prediction.first_failure,
        nano_usd_per_hour=workload_price(workload),
        cost_nano_usd=progress.cost_nano_usd,
        submitted_by=workload.submitted_by.email,
        created_at=prediction.created_at,
        ended_at=workload.ended_at,
    )
