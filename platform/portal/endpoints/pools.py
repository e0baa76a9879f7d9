"""Pools of endpoints: the choice of one, and replicas there that gateways do not reach."""

from collections.abc import Iterable

from portal.accounts.models import Project, User
from portal.compute.models import Pool
from portal.compute.services.pool_accounts import account_name
from portal.compute.services.pools import usable_pool
from portal.core import clock
from portal.core.errors import Conflict
from portal.endpoints.lifecycle import ReplicaState
from portal.endpoints.models import Endpoint, GatewayProcess, Replica
from portal.endpoints.replicas import GATEWAY_SILENT
from portal.workloads.services.relay import require_relay


def pool_for_replicas(project: Project, by: User, name: str | None) -> Pool | None:
    """Return the pool for the replicas of an endpoint, None for the nodes of the installation.

    Raises InvalidInput if it is not there for the project or the person has no account there,
    Conflict if nothing in a pool can be reached.
    """
    pool = usable_pool(project, name)
    require_relay(pool)
    if pool is not None:
        account_name(pool=pool, user=by)
    return pool


def require_open_pool(endpoint: Endpoint, *, author: User | None = None) -> None:
    """Raise Conflict if the pool of an endpoint takes no new replicas, or cannot be reached.

    Raises InvalidInput if the author of a new revision has no account there.
    """
    pool = endpoint.pool
    if pool is None:
        return
    require_relay(pool)
    if not Pool.objects.usable_by(endpoint.project).filter(pk=pool.pk).exists():
        raise Conflict(
            f"Pool {pool.name} takes no new work of project {endpoint.project.slug}.",
            code="no_such_pool",
            next_step="Ask an administrator to open it for the project, or create another "
            "endpoint.",
        )
    if author is not None:
        account_name(pool=pool, user=author)


def reachable(replicas: Iterable[Replica]) -> list[Replica]:
    """Return ready replicas without those in pools that no gateway reaches."""
    ready = [replica for replica in replicas if replica.status is ReplicaState.READY]
    reasons = unreachable_reasons(ready)
    return [replica for replica in ready if replica.pk not in reasons]


def unreachable_reasons(replicas: Iterable[Replica]) -> dict[str, str]:
    """Return why ready replicas in pools are not reached, by their ids.

    Gateways report it. A replica that any of them reaches is not among them.
    """
    in_pools = {
        replica.pk
        for replica in replicas
        if replica.status is ReplicaState.READY
        and replica.workload is not None
        and replica.workload.pool_id is not None
    }
    if not in_pools:
        return {}
    reasons: dict[str, str] = {}
    reached: set[str] = set()
    recent = GatewayProcess.objects.filter(seen_at__gt=clock.now() - GATEWAY_SILENT)
    # The newest process of each gateway: an earlier one has ended.
    newest = {process.gateway_id: process for process in recent.order_by("seen_at")}
    for process in newest.values():
        problems = process.last.get("unreachable", {})
        reasons |= {
            key: f"The gateway does not reach it. {reason}"
            for key, reason in problems.items()
            if key in in_pools
        }
        reached |= set(process.last.get("reached", ())) & in_pools
    return {key: reason for key, reason in reasons.items() if key not in reached}
