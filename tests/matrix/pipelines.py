"""A run of a pipeline of each tenant, of the script that its job runs."""

from typing import Any

from portal.pipelines.services.pipeline_runs import start_run
from portal.training.models import Job
from slipway.schemas.pipelines import PipelineRunIn

STEPS = [
    {"name": "ok", "kind": "approval", "approvers": "contributor"},
    {"name": "train", "script": "train.py", "tier": "cpu-small", "after": ["ok"]},
]

_PATH = "/api/v1/projects/{project}/pipelines"


def pipeline_body(snapshot: str, name: str = "flow") -> dict[str, Any]:
    """Return a run that waits for approval at first."""
    return {"pipeline": {"name": name, "steps": STEPS}, "snapshot": snapshot}


def make_pipeline_run(job_id: str) -> str:
    """Start a run of the code of the job, in the name of its submitter. Returns the id."""
    job = Job.objects.select_related("workload__project", "snapshot").get(pk=job_id)
    by = job.workload.submitted_by
    body = pipeline_body(job.snapshot.digest, f"flow-of-{by.name.lower()}")
    requested = PipelineRunIn.model_validate(body)
    return start_run(project=job.workload.project, by=by, requested=requested).pk


def _body(world: Any, _user: object) -> dict[str, Any]:
    return pipeline_body(world.own["snapshot"])


PIPELINES: dict[tuple[str, str], Any] = {
    ("POST", f"{_PATH}/runs"): _body,
    ("POST", f"{_PATH}/plan"): _body,
    ("POST", f"{_PATH}/runs/{{pipeline_run}}/steps/{{step}}/decision"): {"verdict": "approve"},
    ("POST", "/p/{project}/pipelines/{pipeline_run}/steps/{step}/decision"): {"verdict": "approve"},
    ("PUT", f"{_PATH}/jobs/{{job}}/outputs"): {"outputs": {"accuracy": 0.5}},
}
