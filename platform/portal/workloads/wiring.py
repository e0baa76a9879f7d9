"""Events that trigger a scheduler pass, and the tokens of user code."""

from collections import Counter
from collections.abc import Mapping

from django.db.models import Max

from portal.accounts.notifications import register_notifications
from portal.accounts.principal import register_bearer
from portal.compute.models import EnvironmentBuild, ProjectEnvironment
from portal.compute.services.pools import register_pool_use
from portal.compute.signals import NodeChanged, node_changed
from portal.core.enqueue import enqueue_now
from portal.storage.usage import register_stored
from portal.workloads.allocations import use_of_pool
from portal.workloads.kept_tasks import kept_notifications
from portal.workloads.notifications import silence_notifications
from portal.workloads.signals import LeaseClosed, WorkloadChanged, lease_closed, workload_changed
from portal.workloads.tasks import schedule
from portal.workloads.tokens import PREFIX, principal_behind
from slipway.schemas.accounts import Scope
from slipway.schemas.workloads import WorkloadState


def _when_queued(news: WorkloadChanged) -> None:
    if news.state == WorkloadState.QUEUED:
        enqueue_now(schedule)


def _on_capacity_change(_news: NodeChanged | LeaseClosed) -> None:
    enqueue_now(schedule)


def _environments() -> Mapping[str, int]:
    """Count the bytes of built environments. Projects that share one share its bytes evenly."""
    sizes: Counter[str] = Counter()
    # A shared build counts once per node. Separate builds of an environment are of similar size.
    builds = EnvironmentBuild.objects.order_by().values_list("environment", "node")
    largest = builds.annotate(most=Max("size_bytes"))
    for environment, _node, size in largest:
        sizes[environment] += size or 0
    users: dict[str, list[str]] = {}
    for environment, project in ProjectEnvironment.objects.filter(
        environment__in=sizes
    ).values_list("environment", "project"):
        users.setdefault(environment, []).append(project)
    counter: Counter[str] = Counter()
    for environment, projects in users.items():
        for project in projects:
            counter[project] += sizes[environment] // len(projects)
    return counter


workload_changed.connect(_when_queued)
lease_closed.connect(_on_capacity_change)
node_changed.connect(_on_capacity_change)
register_stored("environments", _environments)
register_notifications(Scope.WORKLOADS_READ, silence_notifications)
register_notifications(Scope.WORKLOADS_READ, kept_notifications)
register_bearer(PREFIX, principal_behind)
register_pool_use(use_of_pool)
