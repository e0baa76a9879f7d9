"""Registers replicas as a workload kind, the registry's models, and endpoints in lineage."""

from collections.abc import Mapping

from portal.accounts.models import Project
from portal.accounts.noted import NotedKind, register_noted
from portal.accounts.notifications import register_notifications
from portal.compute.models import Pool
from portal.compute.services.pools import register_pool_use
from portal.core import problems
from portal.core.enqueue import enqueue_now
from portal.core.metrics import INSTALLATION
from portal.endpoints.adapters.registry_models import RegistryModels
from portal.endpoints.incidents import capture_problem
from portal.endpoints.lineage import revisions_of, version_behind
from portal.endpoints.metrics import EndpointCollector
from portal.endpoints.models import Endpoint, Replica
from portal.endpoints.notifications import endpoint_notifications
from portal.endpoints.ports import register_models
from portal.endpoints.presentation import PRESENTATION
from portal.endpoints.replica_spec import own_url
from portal.endpoints.replicas import KIND, endpoint_of
from portal.endpoints.services.prediction_counts import count_predictions
from portal.endpoints.tasks import reconcile_endpoint
from portal.registry.models import VersionRecord
from portal.registry.ports import register_downstream, register_upstream
from portal.workloads.ports import Grouping, Kind, register_kind
from portal.workloads.retries import RetryRule
from portal.workloads.signals import WorkloadChanged, workload_changed
from slipway.schemas.accounts import Scope
from slipway.schemas.registry import NodeKind
from slipway.schemas.truncation import join_names


def _noted_endpoint(project: Project, path: str) -> tuple[str, str] | None:
    endpoints = Endpoint.objects.of_project(project).filter(name=path)
    return endpoints.values_list("pk", "name").first()


def _surroundings(*, workload_id: str, index: int) -> Mapping[str, str]:
    """Return the URL of the specification, which is too long and too secret for a variable."""
    replica = Replica.objects.filter(workload=workload_id).values_list("pk", flat=True).first()
    return {} if replica is None else {"SLIPWAY_REPLICA": f"{own_url(replica)}/orders"}


def _use_of_pool(pool: Pool) -> str:
    """Return which endpoints start their replicas in a pool, even if they have none now."""
    endpoints = Endpoint.objects.present().filter(pool=pool).select_related("project")
    names = [f"{endpoint.project.slug}/{endpoint.name}" for endpoint in endpoints.order_by("pk")]
    return (
        f"Endpoints start their replicas in pool {pool.name}: {join_names(names, 5)}."
        if names
        else ""
    )


def _is_in_use() -> bool:
    """Return whether there is a model to serve: a warm process costs half a GiB on each node."""
    return VersionRecord.objects.exists() or Endpoint.objects.present().exists()


def _when_replica_moved(news: WorkloadChanged) -> None:
    if news.kind != KIND or not news.state.is_final:
        return
    replicas = Replica.objects.filter(workload=news.workload_id)
    endpoint_id = replicas.values_list("endpoint_id", flat=True).first()
    if endpoint_id is not None:
        enqueue_now(reconcile_endpoint, endpoint_id)


# A replica that ended is replaced by another one, so its workload never runs again by itself. It
# serves on while its node cannot reach the portal, and is not moved without a substitute. Code of
# the model runs in the process that has read the token, so the token opens nothing of the API.
register_kind(
    Kind(
        name=KIND,
        noun="replica",
        retry=RetryRule(max_attempts=1, max_losses=0),
        keeps_on_fence=True,
        stop_grace_s=30.0,
        warm="serving",
        keeps_warm=_is_in_use,
        scopes=(),
        environment=_surroundings,
        grouping=Grouping(
            noun="endpoint",
            group_of=endpoint_of,
            work="predictions",
            work_done=count_predictions,
        ),
        presentation=PRESENTATION,
    )
)
workload_changed.connect(_when_replica_moved)
register_models(RegistryModels())
register_pool_use(_use_of_pool)
problems.add_check("capture", capture_problem)
INSTALLATION.register(EndpointCollector())
register_downstream(revisions_of)
register_upstream(NodeKind.ENDPOINT, version_behind)
register_notifications(Scope.WORKLOADS_READ, endpoint_notifications)
register_noted(NotedKind("endpoint", "endpoint", "project_endpoint", "endpoints", _noted_endpoint))
