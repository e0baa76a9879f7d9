"""Work that holds nodes, by name for those who may know it."""

from collections.abc import Iterable

from portal.accounts.models import User
from portal.workloads.explanations import Explainer
from portal.workloads.models import Lease

_MOST = 5


def work_on(node_ids: Iterable[str], viewer: User) -> dict[str, list[str]]:
    """Return what runs on each node, at most a few names and the number of the others."""
    explainer = Explainer(viewer)
    names: dict[str, list[str]] = {}
    leases = Lease.objects.open().filter(node__in=list(node_ids)).select_related("workload")
    for lease in leases.order_by("pk"):
        listed = names.setdefault(lease.node_id, [])
        name = explainer.name_of(lease.workload)
        if name not in listed:
            listed.append(name)
    return {
        node_id: listed[:_MOST] + ([f"{len(listed) - _MOST} more"] if len(listed) > _MOST else [])
        for node_id, listed in names.items()
    }
