"""All served routes of MLflow with their policies. Everything else is 404.

The list was made from the routes of the server we run. Left out are its own pages and their
GraphQL, workspaces (projects are the portal's), webhooks, prompts' optimisation, scorers, reviews,
gateways and everything else that makes the server itself call out, run code or keep secrets.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from portal.accounts.gates import ProjectRole
from slipway.schemas.accounts import Role, Scope

READ = ProjectRole(Role.VIEWER, Scope.EXPERIMENTS_READ)
WRITE = ProjectRole(Role.CONTRIBUTOR, Scope.EXPERIMENTS_WRITE)

_PARAMETER = re.compile(r"<(path:)?(\w+)>")


@dataclass(frozen=True)
class MlflowRoute:
    """A route. `path` is MLflow's, with parameters in angle brackets.

    `streams` says that bodies are passed on as they arrive (files, spans) instead of being read and
    checked as JSON. `native` says that the portal answers from the tables if it can. `cites` names
    the fields of the body, at any depth, whose ids must be the project's own, because MLflow does
    not check them. `audit` is the verb of relevant changes in the audit log.
    """

    method: str
    path: str
    policy: ProjectRole
    streams: bool = False
    native: bool = False
    cites: tuple[str, ...] = ()
    audit: str = ""

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Pattern of the paths of this route."""
        text, at = "", 0
        for match in _PARAMETER.finditer(self.path):
            text += re.escape(self.path[at : match.start()])
            text += f"(?P<{match[2]}>{'.+' if match[1] else '[^/]+'})"
            at = match.end()
        return re.compile(rf"\A{text}{re.escape(self.path[at:])}\Z", re.DOTALL)

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the path parameters."""
        return tuple(match[2] for match in _PARAMETER.finditer(self.path))


_NATIVE = {
    "POST /runs/log-metric",
    "POST /runs/log-batch",
    "POST /runs/log-parameter",
    "POST /runs/set-tag",
    "POST /runs/create",
    "POST /runs/update",
    "GET /runs/get",
    "POST /runs/search",
    "GET /metrics/get-history",
    "GET /metrics/get-history-bulk-interval",
}
# Verb, path under /api/2.0/mlflow (or 3.0), policy.
_V2 = (
    ("GET", "/experiments/get", READ),
    ("GET", "/experiments/get-by-name", READ),
    ("GET", "/experiments/search", READ),
    ("POST", "/experiments/search", READ),
    ("POST", "/experiments/create", WRITE),
    ("POST", "/experiments/update", WRITE),
    ("POST", "/experiments/delete", WRITE),
    ("POST", "/experiments/restore", WRITE),
    ("POST", "/experiments/set-experiment-tag", WRITE),
    ("POST", "/experiments/delete-experiment-tag", WRITE),
    ("POST", "/runs/create", WRITE),
    ("POST", "/runs/update", WRITE),
    ("POST", "/runs/delete", WRITE),
    ("POST", "/runs/restore", WRITE),
    ("POST", "/runs/log-metric", WRITE),
    ("POST", "/runs/log-parameter", WRITE),
    ("POST", "/runs/set-tag", WRITE),
    ("POST", "/runs/delete-tag", WRITE),
    ("POST", "/runs/log-batch", WRITE),
    ("POST", "/runs/log-model", WRITE),
    ("POST", "/runs/log-inputs", WRITE),
    ("POST", "/runs/outputs", WRITE),
    ("GET", "/runs/get", READ),
    ("POST", "/runs/search", READ),
    ("GET", "/artifacts/list", READ),
    ("GET", "/metrics/get-history", READ),
    ("GET", "/metrics/get-history-bulk-interval", READ),
    ("POST", "/logged-models", WRITE),
    ("GET", "/logged-models/<model_id>", READ),
    ("PATCH", "/logged-models/<model_id>", WRITE),
    ("DELETE", "/logged-models/<model_id>", WRITE),
    ("POST", "/logged-models/search", READ),
    ("PATCH", "/logged-models/<model_id>/tags", WRITE),
    ("DELETE", "/logged-models/<model_id>/tags/<tag_key>", WRITE),
    ("POST", "/logged-models/<model_id>/params", WRITE),
    ("GET", "/logged-models/<model_id>/artifacts/directories", READ),
    ("POST", "/registered-models/create", WRITE),
    ("POST", "/registered-models/rename", WRITE),
    ("PATCH", "/registered-models/update", WRITE),
    ("DELETE", "/registered-models/delete", WRITE),
    ("GET", "/registered-models/get", READ),
    ("GET", "/registered-models/search", READ),
    ("GET", "/registered-models/get-latest-versions", READ),
    ("POST", "/registered-models/get-latest-versions", READ),
    ("POST", "/registered-models/set-tag", WRITE),
    ("DELETE", "/registered-models/delete-tag", WRITE),
    ("POST", "/registered-models/alias", WRITE),
    ("DELETE", "/registered-models/alias", WRITE),
    ("GET", "/registered-models/alias", READ),
    ("POST", "/model-versions/create", WRITE),
    ("PATCH", "/model-versions/update", WRITE),
    ("POST", "/model-versions/transition-stage", WRITE),
    ("DELETE", "/model-versions/delete", WRITE),
    ("GET", "/model-versions/get", READ),
    ("GET", "/model-versions/search", READ),
    ("GET", "/model-versions/get-download-uri", READ),
    ("POST", "/model-versions/set-tag", WRITE),
    ("DELETE", "/model-versions/delete-tag", WRITE),
    ("POST", "/traces", WRITE),
    ("GET", "/traces", READ),
    ("PATCH", "/traces/<request_id>", WRITE),
    ("GET", "/traces/<request_id>/info", READ),
    ("PATCH", "/traces/<request_id>/tags", WRITE),
    ("DELETE", "/traces/<request_id>/tags", WRITE),
    ("POST", "/traces/link-to-run", WRITE),
    ("POST", "/traces/delete-traces", WRITE),
)
_V3 = (
    ("GET", "/server-info", READ),
    ("POST", "/traces", WRITE),
    ("POST", "/traces/search", READ),
    ("GET", "/traces/get", READ),
    ("GET", "/traces/batchGet", READ),
    ("POST", "/traces/batchGetInfos", READ),
    ("POST", "/traces/delete-traces", WRITE),
    ("POST", "/traces/metrics", READ),
    ("POST", "/traces/calculate-filter-correlation", READ),
    ("GET", "/traces/<trace_id>", READ),
    ("PATCH", "/traces/<trace_id>/tags", WRITE),
    ("DELETE", "/traces/<trace_id>/tags", WRITE),
    ("POST", "/traces/<trace_id>/assessments", WRITE),
    ("GET", "/traces/<trace_id>/assessments/<assessment_id>", READ),
    ("PATCH", "/traces/<trace_id>/assessments/<assessment_id>", WRITE),
    ("DELETE", "/traces/<trace_id>/assessments/<assessment_id>", WRITE),
    ("POST", "/datasets/create", WRITE),
    ("GET", "/datasets/search", READ),
    ("POST", "/datasets/search", READ),
    ("GET", "/datasets/<dataset_id>", READ),
    ("DELETE", "/datasets/<dataset_id>", WRITE),
    ("PATCH", "/datasets/<dataset_id>/tags", WRITE),
    ("DELETE", "/datasets/<dataset_id>/tags/<key>", WRITE),
    ("POST", "/datasets/<dataset_id>/records", WRITE),
    ("GET", "/datasets/<dataset_id>/records", READ),
    ("DELETE", "/datasets/<dataset_id>/records", WRITE),
    ("GET", "/datasets/<dataset_id>/experiment-ids", READ),
    ("POST", "/datasets/<dataset_id>/add-experiments", WRITE),
    ("POST", "/datasets/<dataset_id>/remove-experiments", WRITE),
)
FILES = "/api/2.0/mlflow-artifacts"
_OTHERS = (
    MlflowRoute("GET", f"{FILES}/artifacts", READ),
    MlflowRoute("GET", f"{FILES}/artifacts/<path:artifact_path>", READ),
    MlflowRoute("PUT", f"{FILES}/artifacts/<path:artifact_path>", WRITE, streams=True),
    MlflowRoute("DELETE", f"{FILES}/artifacts/<path:artifact_path>", WRITE),
    MlflowRoute("POST", f"{FILES}/mpu/create/<path:artifact_path>", WRITE),
    MlflowRoute("POST", f"{FILES}/mpu/complete/<path:artifact_path>", WRITE),
    MlflowRoute("POST", f"{FILES}/mpu/abort/<path:artifact_path>", WRITE),
    MlflowRoute("POST", "/v1/traces", WRITE, streams=True),
    MlflowRoute("GET", "/ajax-api/2.0/mlflow/metrics/get-history-bulk", READ),
    MlflowRoute("GET", "/ajax-api/2.0/mlflow/metrics/get-history-bulk-interval", READ, native=True),
    MlflowRoute("POST", "/ajax-api/2.0/mlflow/experiments/search-datasets", READ),
    MlflowRoute("GET", "/ajax-api/3.0/mlflow/get-trace-artifact", READ),
)
# Ids that MLflow does not check.
_CITES = {
    "/logged-models": ("experiment_id", "source_run_id"),
    "/traces/calculate-filter-correlation": ("experiment_ids",),
    "/runs/outputs": ("model_id",),
    "/runs/log-inputs": ("model_id",),
    "/runs/log-model": ("model_id",),
    "/model-versions/create": ("run_id", "model_id"),
}

_AUDITED = {
    "POST /experiments/delete": "experiment.delete",
    "POST /experiments/restore": "experiment.restore",
    "POST /runs/delete": "run.delete",
    "POST /runs/restore": "run.restore",
    "POST /registered-models/create": "model.create",
    "POST /registered-models/rename": "model.rename",
    "DELETE /registered-models/delete": "model.delete",
    "POST /registered-models/alias": "model.alias",
    "DELETE /registered-models/alias": "model.alias_delete",
    "POST /model-versions/create": "model_version.create",
    "POST /model-versions/transition-stage": "model_version.stage",
    "DELETE /model-versions/delete": "model_version.delete",
}


def _under(prefix: str, row: tuple[str, str, ProjectRole]) -> MlflowRoute:
    verb, path, policy = row
    return MlflowRoute(
        verb,
        f"{prefix}{path}",
        policy,
        native=f"{verb} {path}" in _NATIVE,
        cites=_CITES.get(path, ()) if verb == "POST" else (),
        audit=_AUDITED.get(f"{verb} {path}", ""),
    )


ROUTES = (
    *(_under("/api/2.0/mlflow", row) for row in _V2),
    *(_under("/api/3.0/mlflow", row) for row in _V3),
    *_OTHERS,
)


def _indexed() -> tuple[dict[tuple[str, str], MlflowRoute], tuple[MlflowRoute, ...]]:
    plain = {(route.method, route.path): route for route in ROUTES if not route.parameters}
    return plain, tuple(route for route in ROUTES if route.parameters)


_PLAIN, _PATTERNED = _indexed()


def _matching(path: str) -> Iterator[MlflowRoute]:
    for route in ROUTES:
        if route.pattern.match(path):
            yield route


def route_of(method: str, path: str) -> MlflowRoute | None:
    """Return the route of a request, None when there is none."""
    verb = "GET" if method == "HEAD" else method
    mlflow_route = _PLAIN.get((verb, path))
    if mlflow_route is not None:
        return mlflow_route
    # A path with parameters may look like a plain one of another verb: `/traces/search`.
    if any((item, path) in _PLAIN for item in ("GET", "POST", "PATCH", "PUT", "DELETE")):
        return None
    for route in _PATTERNED:
        if route.method == verb and route.pattern.match(path):
            return route
    return None


def is_known_path(path: str) -> bool:
    """Return whether a path is served, for any method."""
    return next(_matching(path), None) is not None
