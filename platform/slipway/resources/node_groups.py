"""Node groups: nodes that are made when work waits, and released when they are idle."""

from collections.abc import Mapping, Sequence
from typing import Any

from slipway.connection import Connection
from slipway.pages import Pages
from slipway.resources.requests import build
from slipway.schemas.base import PageOf
from slipway.schemas.node_groups import (
    GroupMachineOut,
    NodeGroupChange,
    NodeGroupIn,
    NodeGroupOut,
)


class NodeGroups:
    """The node groups of the installation. Administrators create and change them.

    GET, POST node-groups · GET, PATCH, DELETE node-groups/{name} · GET node-groups/{name}/machines
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def list(self, *, project: str | None = None) -> Pages[NodeGroupOut]:
        """List the groups that one may use, or those that a project may use."""
        return Pages(self._connection, ("node-groups",), PageOf[NodeGroupOut], {"project": project})

    def get(self, name: str) -> NodeGroupOut:
        """Return one group."""
        return self._connection.fetch(NodeGroupOut, "GET", "node-groups", name)

    def create(
        self,
        name: str,
        *,
        provisioner: str,
        cpu_millis: int,
        memory_bytes: int,
        max_nodes: int,
        nano_usd_per_hour: int,
        gpus: int = 0,
        gpu_model: str | None = None,
        labels: Mapping[str, str] | None = None,
        min_nodes: int | None = None,
        max_starting: int | None = None,
        idle_grace_s: int | None = None,
        join_within_s: int | None = None,
        settings: Mapping[str, Any] | None = None,
        projects: Sequence[str] | None = None,
    ) -> NodeGroupOut:
        """Create a group of nodes of one size, for all projects unless some are given."""
        body = build(
            NodeGroupIn,
            name=name,
            provisioner=provisioner,
            resources={"cpu_millis": cpu_millis, "memory_bytes": memory_bytes, "gpus": gpus},
            gpu_model=gpu_model,
            labels=None if labels is None else dict(labels),
            min_nodes=min_nodes,
            max_nodes=max_nodes,
            max_starting=max_starting,
            idle_grace_s=idle_grace_s,
            join_within_s=join_within_s,
            nano_usd_per_hour=nano_usd_per_hour,
            settings=None if settings is None else dict(settings),
            projects=None if projects is None else list(projects),
        )
        return self._connection.fetch(NodeGroupOut, "POST", "node-groups", body=body)

    def edit(
        self,
        name: str,
        *,
        min_nodes: int | None = None,
        max_nodes: int | None = None,
        max_starting: int | None = None,
        idle_grace_s: int | None = None,
        join_within_s: int | None = None,
        nano_usd_per_hour: int | None = None,
        is_open: bool | None = None,
        settings: Mapping[str, Any] | None = None,
        projects: Sequence[str] | None = None,
    ) -> NodeGroupOut:
        """Change the given fields. `settings` replaces all of them."""
        body = build(
            NodeGroupChange,
            min_nodes=min_nodes,
            max_nodes=max_nodes,
            max_starting=max_starting,
            idle_grace_s=idle_grace_s,
            join_within_s=join_within_s,
            nano_usd_per_hour=nano_usd_per_hour,
            is_open=is_open,
            settings=None if settings is None else dict(settings),
            projects=None if projects is None else list(projects),
        )
        return self._connection.fetch(NodeGroupOut, "PATCH", "node-groups", name, body=body)

    def delete(self, name: str) -> None:
        """Remove a group that has no machine."""
        self._connection.send("DELETE", "node-groups", name)

    def machines(self, name: str) -> Pages[GroupMachineOut]:
        """List the machines of a group, the newest first."""
        path = ("node-groups", name, "machines")
        return Pages(self._connection, path, PageOf[GroupMachineOut], {})
