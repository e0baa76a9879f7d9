"""Workloads on nodes that cannot be dialled, and their addresses at the relay."""

from django.conf import settings

from portal.compute.models import Node, Pool
from portal.core.errors import Conflict
from portal.workloads.models import Lease, Workload
from portal.workloads.services.dashboards import dashboard_targets
from portal.workloads.services.shells import shell_targets
from slipway.schemas.relay import RELAY_DOMAIN, RelayGrant, RelayTarget


def relay_grant(*, node: Node) -> RelayGrant:
    """Return what a node may serve through the relay: its own placements in a pool, shells and
    dashboards."""
    leases = Lease.objects.open().filter(node=node, workload__pool__isnull=False)
    # Ranks of a gang connect to each other, and nobody to them.
    alone = leases.filter(workload__nodes=1).select_related("workload").order_by("pk")
    return RelayGrant(
        node_id=node.pk,
        url=settings.SLIPWAY_RELAY_PUBLIC_URL,
        port=settings.SLIPWAY_RELAY_PORT,
        targets=[_target(lease.workload, lease.epoch) for lease in alone],
        shells=shell_targets(node),
        dashboards=dashboard_targets(node),
    )


def relay_target(workload: Workload) -> RelayTarget | None:
    """Return the target of a workload that only the relay reaches, or None for all others."""
    return _target(workload, workload.epoch) if workload.pool_id else None


def require_relay(pool: Pool | None) -> None:
    """Raise Conflict if work in a pool could never be reached in this installation."""
    if pool is not None and not settings.SLIPWAY_HAS_RELAY:
        raise Conflict(
            f"Nothing in pool {pool.name} can be reached: this installation runs no relay.",
            code="no_relay",
            next_step="Leave the pool out, or ask an administrator to set "
            "SLIPWAY_EMBEDDED_RELAY=true.",
        )


def is_relay_address(address: str) -> bool:
    """Return True for an address that only Slipway may give: it stands for a door of the relay."""
    return address.partition(":")[0].lower().rstrip(".").endswith(f".{RELAY_DOMAIN}")


def _target(workload: Workload, epoch: int) -> RelayTarget:
    return RelayTarget(workload_id=workload.pk, epoch=epoch)
