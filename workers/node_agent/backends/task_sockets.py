"""Paths of the Unix sockets through which others reach a task, "" where it has none."""

from slipway.schemas.frameworks import has_dashboard
from workers.node_agent.allocation import AllocationSeat
from workers.node_agent.backends.base import LaunchSpec
from workers.node_agent.folders import NodeFolders, handle_of


def listen_path(order: LaunchSpec, folders: NodeFolders, seat: AllocationSeat | None) -> str:
    """Return the socket of a server: allocations cannot be dialled from outside."""
    return "" if seat is None else str(folders.listener(handle_of(order.key)))


def dashboard_path(order: LaunchSpec, folders: NodeFolders) -> str:
    """Return the socket of a cluster's dashboard, which is in the task of rank 0."""
    spec = order.spec
    if spec.first_rank or not has_dashboard(spec.framework):
        return ""
    return str(folders.dashboard(handle_of(order.key)))
