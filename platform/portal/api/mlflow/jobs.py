"""Scripts in jobs begin with the run of their job, and others that they create lead to it, too."""

from typing import Any

from portal.api.mlflow.auth import Caller
from portal.api.mlflow.routes import WRITE
from portal.experiments.adapters.mlflow import runs
from portal.experiments.services.job_runs import JOB_TAG, follow_script, run_id_of
from portal.workloads.models import Workload
from portal.workloads.ports import kind_of

BEGIN = "/api/2.0/mlflow/runs/get"
# Sent by the launcher's plug-in when MLflow resumes the existing run.
_EXPERIMENT = b"x-slipway-experiment"
_MOST_DIGITS = 9
_PARENT_TAG = "mlflow.parentRunId"


def run_for(visitor: Caller, content: dict[str, Any]) -> dict[str, Any] | None:
    """Return the run for a `runs/create` request of a job's script: first the one of the job.

    Loggers such as that of Lightning create a run by themselves, and do not continue the one in
    MLFLOW_RUN_ID. Returns None for a run of its own, which gets the tag that leads to the job. A
    nested run leads there by its parent. A tag of the script stays as it is, and so do tags that
    MLflow is going to refuse. Raises UnsupportedRequest for what is left to MLflow.
    """
    job = _job_of(visitor)
    tags = content.get("tags") or []
    if job is None or not isinstance(tags, list) or not all(isinstance(tag, dict) for tag in tags):
        return None
    if any(tag.get("key") in (JOB_TAG, _PARENT_TAG) for tag in tags):
        return None
    content["tags"] = [*tags, {"key": JOB_TAG, "value": job.pk}]
    if not visitor.may(WRITE):
        return None
    return runs.continue_run(visitor.project_id, run_id_of(job.pk), str(job.epoch), content)


def note_begin(visitor: Caller, content: dict[str, Any]) -> None:
    """Record that a script has begun the run of its job, so that the next one is another."""
    run_id = content.get("run_id") or content.get("run_uuid")
    if content.get("status") != "RUNNING" or not isinstance(run_id, str):
        return
    job = _job_of(visitor)
    if job is not None and run_id == run_id_of(job.pk) and visitor.may(WRITE):
        runs.begin_run(run_id, str(job.epoch))


def _job_of(visitor: Caller) -> Workload | None:
    """Return the job whose token speaks. Only the token of a workload has the id of one."""
    token = visitor.principal.token
    if token is None:
        return None
    job = Workload.objects.filter(pk=token.pk).only("kind", "epoch").first()
    return job if job is not None and kind_of(job.kind).has_run else None


def follow(visitor: Caller, scope: Any, query: list[tuple[str, str]]) -> None:
    """Move the job's run to the experiment of the script, if it set one."""
    values = [value for name, value in scope["headers"] if name == _EXPERIMENT]
    token = visitor.principal.token
    if not values or token is None or not visitor.may(WRITE):
        return
    requested = values[0]
    if not requested.isdigit() or len(requested) > _MOST_DIGITS:
        return
    # Only the token of a workload leads to its run: the id of no other token does.
    if ("run_id", run_id_of(token.pk)) in query:
        follow_script(
            project_id=visitor.project_id, workload_id=token.pk, experiment_id=int(requested)
        )
