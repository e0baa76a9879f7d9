"""Quoting and starting batch predictions."""

from dataclasses import dataclass
from typing import Any

from django.db import transaction

from portal.accounts import audit
from portal.accounts.models import Project, User
from portal.batch_predictions.checks import chosen_table, columns_kept, columns_sent
from portal.batch_predictions.models import BatchPrediction
from portal.core.errors import InvalidInput, NotFound, SlipwayError
from portal.datasets.models import Dataset, DataTable, Version
from portal.datasets.services.datasets import create_dataset, resolve
from portal.endpoints.environments import chosen_version, in_environment
from portal.endpoints.ports import ServedModel, models
from portal.registry.catalog import find_model, find_version
from portal.registry.records import ensure_record
from portal.spend.presenters import with_cost
from portal.training.job_specs import PlatformCommand
from portal.training.services.jobs import admission_request, quote_job, submit_job
from portal.training.services.uploads import ingest_upload
from slipway.requirement_files.conda_documents import conda_document
from slipway.requirement_files.conda_packages import CondaEnvironment
from slipway.schemas.batch_predictions import BatchPredictionIn, BatchPredictionQuote
from slipway.schemas.environments import INSTALLATION
from slipway.schemas.training import JobIn
from slipway.schemas.truncation import shorten_name

_PROGRAM = PlatformCommand(command="slipway-batch-predict", warm="serving")
_SCRIPT = "predict.py"
# The code that the page of the job shows. The program itself is one of the platform.
_CODE = b'''"""Predicts a dataset with a version of a model.

Slipway runs its own program in place of this file: workers/batch_predictor. It loads the model as
a replica of an endpoint does, predicts the rows, and makes a version of the output dataset.
"""

raise SystemExit("Start a batch prediction: slipway model predict MODEL --data DATASET")
'''
_NO_SNAPSHOT = "0" * 64
_NAME_CHARACTERS = 100


@dataclass(frozen=True)
class SettledPrediction:
    """A batch prediction whose model, data and columns are settled."""

    served: ServedModel
    data: Version
    table: DataTable
    columns: list[str]
    keep: list[str]
    job: JobIn

    @property
    def number(self) -> int:
        """The number of the version of the model."""
        return int(self.served.version)


def settle_prediction(
    *, project: Project, requested: BatchPredictionIn, snapshot: str = _NO_SNAPSHOT
) -> SettledPrediction:
    """Return what a request stands for at present. Call it outside of transactions.

    Raises InvalidInput that names the field: no such model, version or dataset of this project, no
    rows, columns that do not fit the signature. Raises Conflict for a model that cannot predict.
    """
    data = _data(project, requested.data)
    environment = chosen_version(project, requested.environment)
    served = models().find(project_id=project.pk, model=requested.model, version=requested.version)
    served = in_environment(served, environment)
    table = chosen_table(data, requested.table)
    label = f"{served.model} version {served.version}"
    columns = columns_sent(table, requested.columns, _signature(project, served), label)
    keep = columns_kept(table, requested.keep)
    job = JobIn(
        name=requested.name or shorten_name(f"Predict {requested.output}", _NAME_CHARACTERS),
        snapshot=snapshot,
        script=_SCRIPT,
        params={
            "model": f"{served.model}@{served.version}",
            "data": data.reference,
            "output": requested.output,
        },
        tier=requested.tier,
        pool=requested.pool,
        datasets=[data.reference],
        tags=requested.tags,
        priority=requested.priority,
        max_attempts=requested.max_attempts,
        preemptible=requested.preemptible,
        max_hours=requested.max_hours,
        keep=[],
        keep_limit_bytes=0,
        **_environment(served),
    )
    return SettledPrediction(served, data, table, columns, keep, job)


def quote_prediction(
    *, project: Project, by: User, requested: BatchPredictionIn
) -> BatchPredictionQuote:
    """Return what a batch prediction would cost and use. Nothing is queued.

    Raises as `settle_prediction`.
    """
    settled = settle_prediction(project=project, requested=requested)
    quote = quote_job(project=project, spec=settled.job)
    return BatchPredictionQuote(
        model=settled.served.model,
        version=settled.number,
        data=settled.data.reference,
        table=settled.table.name,
        rows=settled.table.statistics["rows"],
        columns=settled.columns,
        quote=with_cost(quote, admission_request(project=project, by=by, spec=settled.job)),
    )


def start_prediction(
    *, project: Project, by: User, requested: BatchPredictionIn
) -> BatchPrediction:
    """Submit the job of a batch prediction. Call it outside of transactions.

    Creates the output dataset if there is none. Raises as `settle_prediction` and `submit_job`.
    """
    snapshot = program_snapshot(project=project, by=by)
    settled = settle_prediction(project=project, requested=requested, snapshot=snapshot)
    return submit_prediction(project=project, by=by, requested=requested, settled=settled)


def program_snapshot(*, project: Project, by: User) -> str:
    """Return the digest of the code of all batch predictions. Call it outside of transactions."""
    return ingest_upload(project=project, by=by, name=_SCRIPT, chunks=[_CODE]).digest


def submit_prediction(
    *, project: Project, by: User, requested: BatchPredictionIn, settled: SettledPrediction
) -> BatchPrediction:
    """Submit the job of a settled batch prediction, in one transaction with its row."""
    with transaction.atomic():
        target = _target(project, by, requested.output)
        job = submit_job(project=project, by=by, requested=settled.job, program=_PROGRAM)
        prediction = BatchPrediction.objects.create(
            job=job,
            created_at=job.created_at,
            model=settled.served.model,
            number=settled.number,
            served=settled.served.model_dump(mode="json"),
            data=settled.data,
            table=settled.table.name,
            columns=settled.columns,
            keep=settled.keep,
            on_error=requested.on_error,
            target=target,
        )
        audit.record(
            "batch_prediction.create",
            kind="batch_prediction",
            target=prediction,
            label=job.workload.name,
            project=project,
        )
    return prediction


def _data(project: Project, reference: str) -> Version:
    try:
        return resolve(project=project, reference=reference)
    except SlipwayError as error:
        error.field = "data"
        raise


def _signature(project: Project, served: ServedModel) -> dict[str, Any] | None:
    """Return the signature of a version, None if it has none or is not in the registry."""
    try:
        details = find_model(project.pk, served.model)
        version = find_version(project.pk, served.model, int(served.version))
    except NotFound:
        return None
    return ensure_record(project, details, version).signature


def _target(project: Project, by: User, name: str) -> Dataset:
    """Return the dataset that gets the result, created if there is none."""
    dataset = Dataset.objects.of_project(project).current().filter(name=name).first()
    if dataset is not None:
        return dataset
    try:
        return create_dataset(project=project, by=by, name=name)
    except InvalidInput as error:
        error.field = "output"
        raise


def _environment(served: ServedModel) -> dict[str, str | None]:
    """Return the packages of a replica of the model."""
    if not served.requirements:
        return {"environment": INSTALLATION}
    if served.conda:
        packages = CondaEnvironment.from_text(served.conda)
        return {"requirements": conda_document(packages, served.requirements)}
    return {"requirements": served.requirements, "python": served.python or None}
