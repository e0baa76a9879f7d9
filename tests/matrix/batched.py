"""A batch prediction of each tenant, by the job that runs there."""

from typing import Any

from portal.batch_predictions.models import BatchPrediction
from portal.datasets.models import DataTable, Version
from portal.training.models import Job
from slipway.schemas.datasets import VersionState
from slipway.schemas.statistics import TableStatistics
from slipway.schemas.tables import TableColumn, TableSchema

_ONE = "/api/v1/projects/{project}/batch-predictions/{batch_prediction}"
_ALL = "/api/v1/projects/{project}/batch-predictions"


def _request(world: Any, _user: Any) -> dict[str, Any]:
    data = world.own["dataset"]
    return {"model": "digits", "data": data, "output": "predicted", "tier": "cpu-small"}


def _form(world: Any, user: Any) -> dict[str, Any]:
    fields = _request(world, user)
    return {"dataset": fields.pop("data"), "on_error": "stop", **fields}


BATCHES: dict[tuple[str, str], Any] = {
    ("POST", _ALL): _request,
    ("POST", f"{_ALL}/quote"): _request,
    ("POST", "/p/{project}/batch-predictions/new"): _form,
    ("POST", "/p/{project}/batch-predictions/quote"): _form,
    ("PUT", f"{_ONE}/output"): {
        "draft": "dsv_none",
        "rows": 1,
        "failed_rows": 0,
        "seconds": 0.5,
        "rows_per_call": 1,
    },
}


def ready_data(version: str) -> None:
    """Let the table of a version have a row to predict."""
    DataTable.objects.filter(version=version).update(
        statistics=TableStatistics(rows=1).model_dump(mode="json"),
        schema=TableSchema(columns=[TableColumn(name="x", type="double")]).model_dump(mode="json"),
    )


def make_batch_prediction(job_id: str) -> str:
    """Let the job be one that predicts data of its project. Returns the id."""
    job = Job.objects.select_related("workload").get(pk=job_id)
    versions = Version.objects.filter(dataset__project=job.workload.project)
    data = versions.filter(state=VersionState.READY).select_related("dataset").latest("pk")
    ready_data(data.pk)
    BatchPrediction.objects.create(
        job=job,
        model="digits",
        number=1,
        served={"model": "digits", "version": "1", "format": "mlflow"},
        data=data,
        table="train.csv",
        columns=["x"],
        keep=["x"],
        on_error="stop",
        target=data.dataset,
    )
    return job_id
