"""Scripts in jobs continue the run of their job, in the experiment they set."""

from typing import Any

from portal.api.mlflow.auth import Caller
from portal.api.mlflow.routes import WRITE
from portal.experiments.services.job_runs import follow_script, run_id_of

BEGIN = "/api/2.0/mlflow/runs/get"
# Sent by the launcher's plug-in when MLflow resumes the existing run.
_EXPERIMENT = b"x-slipway-experiment"
_MOST_DIGITS = 9


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
