"""Node groups of each tenant, and the bodies of requests about them."""

from typing import Any

from portal.accounts.models import Project
from portal.compute.resources import GIB, Amount
from portal.compute.services.node_groups import create_node_group

_SETTINGS = {
    "min_nodes": "0",
    "max_nodes": "2",
    "max_starting": "1",
    "idle_minutes": "5",
    "join_minutes": "10",
    "price": "0.5",
    "audience": "all",
}
NODE_GROUPS: dict[tuple[str, str], Any] = {
    ("POST", "/api/v1/node-groups"): {
        "name": "new-burst",
        "provisioner": "local",
        "resources": {"cpu_millis": 4000, "memory_bytes": 2**30},
        "max_nodes": 2,
        "nano_usd_per_hour": 1,
    },
    ("PATCH", "/api/v1/node-groups/{group}"): {"max_nodes": 2},
    ("POST", "/settings/node-groups/new"): {
        "name": "new-group",
        "provisioner": "local",
        "cpus": "1",
        "memory_gib": "1",
        "gpus": "0",
        **_SETTINGS,
    },
    ("POST", "/settings/node-groups/{group}"): _SETTINGS,
    ("POST", "/settings/node-groups/{group}/change"): {"do": "close"},
}


def make_node_group(name: str, project: Project) -> str:
    """Create a group for one project, and return its name."""
    group = create_node_group(
        name=name,
        provisioner="local",
        settings={},
        amount=Amount(1000, GIB),
        max_nodes=1,
        nano_usd_per_hour=1,
        projects=[project],
    )
    return group.name
