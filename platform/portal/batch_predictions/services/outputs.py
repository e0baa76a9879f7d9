"""The output of a batch prediction: what its job reads, and the one version that it reports."""

from collections.abc import Iterator

from django.db import transaction

from portal.batch_predictions.models import BatchPrediction
from portal.core.errors import NotFound
from portal.datasets.errors import NotADraft
from portal.datasets.models import Version
from portal.datasets.services.drafts import commit_draft
from portal.endpoints.ports import ServedModel, models
from slipway.schemas.batch_predictions import OutputStatus, PredictionOutput, PredictionSpec
from slipway.schemas.datasets import VersionState
from slipway.schemas.serving import (
    BatchingMode,
    GoldenPrediction,
    ModelFile,
    ModelFormat,
    Signature,
)

_OVER = (VersionState.REFUSED, VersionState.PURGED)


def spec_of(prediction: BatchPrediction) -> PredictionSpec:
    """Return what the job has to do."""
    served = ServedModel.model_validate(prediction.served)
    return PredictionSpec(
        model=served.model,
        version=served.version,
        format=ModelFormat(served.format),
        entry=served.entry,
        files=[
            ModelFile(path=file.path, sha256=file.sha256, size_bytes=file.size_bytes)
            for file in served.files
        ],
        signature=Signature.model_validate(served.signature) if served.signature else None,
        golden=[GoldenPrediction.model_validate(item) for item in served.golden],
        batching=BatchingMode(served.batching) if served.batching else None,
        data=prediction.data.reference,
        table=prediction.table,
        columns=prediction.columns,
        keep=prediction.keep,
        output=prediction.target.name,
        on_error=prediction.on_error,
        note=f"Predictions of {prediction.data.reference} by {served.model} version "
        f"{served.version}.",
    )


def model_file(prediction: BatchPrediction, number: int) -> tuple[Iterator[bytes], int]:
    """Return the bytes and the size of a file of the model. Raises NotFound."""
    served = ServedModel.model_validate(prediction.served)
    if number >= len(served.files):
        raise NotFound
    file = served.files[number]
    project_id = prediction.job.workload.project_id
    return models().read(project_id=project_id, file=file), file.size_bytes


def record_output(prediction: BatchPrediction, reported: PredictionOutput) -> BatchPrediction:
    """Make the draft of a job its output, and have it checked. A later report changes nothing.

    Only one whose version was refused is replaced. Raises NotADraft unless it is an open draft of
    the output dataset, Conflict if bytes of it are missing.
    """
    with transaction.atomic():
        rows = BatchPrediction.objects.select_for_update(no_key=True, of=("self",))
        row = rows.select_related("output").get(pk=prediction.pk)
        if row.output is None or (row.output.state in _OVER and row.output.same_as is None):
            drafts = Version.objects.complete().filter(dataset=row.target_id)
            draft = drafts.filter(pk=reported.draft, state=VersionState.DRAFT).first()
            if draft is None:
                raise NotADraft
            commit_draft(draft=draft)
            BatchPrediction.objects.filter(pk=row.pk).update(
                output=draft,
                rows=reported.rows,
                failed_rows=reported.failed_rows,
                seconds=reported.seconds,
                rows_per_call=reported.rows_per_call,
                batching=reported.batching,
                first_failure=reported.first_failure,
            )
    project = prediction.job.workload.project
    return BatchPrediction.objects.of_project(project).get(pk=prediction.pk)


def output_version(prediction: BatchPrediction) -> Version | None:
    """Return the version with the predictions, None while there is none.

    Equal predictions make no new version: it is the one that has them already.
    """
    output = prediction.output
    if output is None or output.number is not None:
        return output
    if output.same_as is None:
        return None
    versions = Version.objects.complete().filter(dataset=output.dataset_id)
    return versions.filter(number=output.same_as).first()


def status_of(prediction: BatchPrediction) -> OutputStatus:
    """Return the state of the output."""
    output = prediction.output
    if output is None:
        return OutputStatus()
    version = output_version(prediction)
    reference = None if version is None else version.reference
    return OutputStatus(state=VersionState(output.state), reference=reference, reason=output.reason)
