"""Assembly of the REST API."""

from typing import Any

from django.http import HttpRequest
from django.views.decorators.http import require_safe
from ninja.openapi.docs import Swagger
from ninja.renderers import BaseRenderer

from portal.api import problems
from portal.api.bodies import StrictParser
from portal.api.description import PortalApi
from portal.api.notebooks import files as notebook_files
from portal.api.notebooks import files_runs as notebook_runs
from portal.api.notebooks import servers as notebook_servers
from portal.api.notebooks import workspaces as notebook_workspaces
from portal.api.routing import require_gates
from portal.api.v1 import (
    account,
    audit,
    batch_predictions,
    budgets,
    dataset_files,
    datasets,
    endpoint_keys,
    endpoints,
    environments,
    experiments,
    files,
    job_dashboards,
    job_events,
    job_shells,
    jobs,
    members,
    models,
    monitoring,
    named_environments,
    node_groups,
    nodes,
    notes,
    notifications,
    optuna,
    pipelines,
    pool_helpers,
    pools,
    predictions,
    projects,
    promotions,
    quotas,
    reports,
    runs,
    saved_views,
    schedules,
    secrets,
    service_accounts,
    spend,
    sweeps,
    teams,
    tiers,
    users,
    workloads,
)
from portal.core.text import json_bytes


class OrjsonRenderer(BaseRenderer):
    """Renders responses with orjson."""

    media_type = "application/json"

    def render(self, request: HttpRequest, data: Any, *, response_status: int) -> bytes:
        """Return the JSON of `data`."""
        return json_bytes(data)


api = PortalApi(
    title="Slipway",
    version="1",
    description=(
        "The REST API of Slipway. Send `Authorization: Bearer <token>`. Create a token under "
        "Settings → API tokens. Errors are problem+json (RFC 9457) with a code, the invalid field "
        "and the next step. Every POST accepts an `Idempotency-Key`: the same key gives the same "
        "result for 24 hours. Lists are paginated by cursor."
    ),
    urls_namespace="api",
    renderer=OrjsonRenderer(),
    parser=StrictParser(),
    docs=Swagger(
        settings={
            "persistAuthorization": False,
            "tryItOutEnabled": True,
            "defaultModelsExpandDepth": -1,
            # Too many operations to draw at once: reference.js finds and links them.
            "docExpansion": "none",
            # A link inside the button that unfolds an operation cannot be reached by keyboard.
            "deepLinking": False,
        }
    ),
    docs_decorator=require_safe,
)
problems.register(api)
for module in (
    *(account, notifications, projects, teams, members, service_accounts, secrets),
    *(files, audit, users),
    *(experiments, runs, saved_views),
    *(jobs, job_events, job_shells, job_dashboards),
    *(sweeps, optuna, pipelines, schedules, workloads),
    *(environments, named_environments),
    *(tiers, pools, pool_helpers, node_groups, quotas, nodes, spend, budgets),
    *(models, promotions, reports, notes),
    *(datasets, dataset_files, batch_predictions),
    *(endpoints, endpoint_keys),
    *(notebook_files, notebook_runs, notebook_servers, notebook_workspaces),
    *(monitoring, predictions),
):
    api.add_router("", module.router)
require_gates(api)
