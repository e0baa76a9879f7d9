"""A batch prediction of each tenant, by the job that runs there."""

from portal.batch_predictions.models import BatchPrediction
from portal.datasets.models import Version
from portal.training.models import Job
from slipway.schemas.datasets import VersionState

_ONE = "/api/v1/projects/{project}/batch-predictions/{batch_prediction}"
_ALL = "/api/v1/projects/{project}/batch-predictions"
_REQUEST: dict[str, object] = {"model": "digits", "data": "digits", "output": "predicted"}
BATCHES: dict[tuple[str, str], dict[str, object]] = {
    ("POST", _ALL): _REQUEST,
    ("POST", f"{_ALL}/quote"): _REQUEST,
    ("PUT", f"{_ONE}/output"): {
        "draft": "dsv_none",
        "rows": 1,
        "failed_rows": 0,
        "seconds": 0.5,
        "rows_per_call": 1,
    },
}


def make_batch_prediction(job_id: str) -> str:
    """Let the job be one that predicts data of its project. Returns the id."""
    job = Job.objects.select_related("workload").get(pk=job_id)
    versions = Version.objects.filter(dataset__project=job.workload.project)
    data = versions.filter(state=VersionState.READY).select_related("dataset").latest("pk")
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
