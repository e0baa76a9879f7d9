"""Scripts in jobs continue the run of their job, and others that they create lead to it, too."""

from typing import Any

from portal.api.mlflow.auth import Caller
from portal.api.mlflow.routes import WRITE
from portal.experiments.services.job_runs import JOB_TAG, follow_script, run_id_of
from portal.workloads.models import Workload
from portal.workloads.ports import kind_of

BEGIN = "/api/2.0/mlflow/runs/get"
# Sent by the launcher's plug-in when MLflow resumes the existing run.
_EXPERIMENT = b"x-slipway-experiment"
_MOST_DIGITS = 9
_PARENT_TAG = "mlflow.parentRunId"


def link_run(visitor: Caller, content: dict[str, Any]) -> None:
    """Add the tag that leads to the job to a run that the job's script creates.

    A nested run leads there by its parent. A tag of the script stays as it is, and so do tags that
    MLflow is going to refuse.
    """
    token = visitor.principal.token
    if token is None:
        return
    # Only the token of a workload has the id of one.
    kind = Workload.objects.filter(pk=token.pk).values_list("kind", flat=True).first()
    if kind is None or not kind_of(kind).has_run:
        return
    tags = content.get("tags") or []
    if not isinstance(tags, list) or not all(isinstance(tag, dict) for tag in tags):
        return
    if not any(tag.get("key") in (JOB_TAG, _PARENT_TAG) for tag in tags):
        content["tags"] = [*tags, {"key": JOB_TAG, "value": token.pk}]


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
