"""Nodes: the machines of the installation."""

from slipway.connection import Connection
from slipway.pages import Pages
from slipway.resources.requests import build
from slipway.schemas.base import PageOf
from slipway.schemas.workloads import (
    JoinTokenCreated,
    JoinTokenIn,
    NodeChange,
    NodeOut,
    NodeReason,
)


class Nodes:
    """The machines that run workloads, for administrators only. `node` is the name of one.

    GET nodes · GET, PATCH, DELETE nodes/{name} · POST nodes/{name}/cordon, drain, uncordon ·
    POST nodes/join-tokens
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def list(self) -> Pages[NodeOut]:
        """List the nodes, with what they have and what is free."""
        return Pages(self._connection, ("nodes",), PageOf[NodeOut])

    def get(self, node: str) -> NodeOut:
        """Return one node."""
        return self._connection.fetch(NodeOut, "GET", "nodes", node)

    def edit(self, node: str, *, mixes_projects: bool | None = None) -> NodeOut:
        """Change the settings of a node.

        With `mixes_projects` a node that cannot keep projects apart runs several at a time, so that
        code of one can read files, memory and secrets of the others that run there.
        """
        body = build(NodeChange, mixes_projects=mixes_projects)
        return self._connection.fetch(NodeOut, "PATCH", "nodes", node, body=body)

    def cordon(self, node: str, *, reason: str | None = None) -> NodeOut:
        """Schedule no new workloads on a node. Running ones continue."""
        body = build(NodeReason, reason=reason)
        return self._connection.fetch(NodeOut, "POST", "nodes", node, "cordon", body=body)

    def drain(self, node: str, *, reason: str | None = None) -> NodeOut:
        """Schedule no new workloads on a node, and move away those that can be moved."""
        body = build(NodeReason, reason=reason)
        return self._connection.fetch(NodeOut, "POST", "nodes", node, "drain", body=body)

    def uncordon(self, node: str) -> NodeOut:
        """Open a node for work again."""
        return self._connection.fetch(NodeOut, "POST", "nodes", node, "uncordon")

    def remove(self, node: str) -> None:
        """Remove a node from the installation. Conflict while something runs there."""
        self._connection.send("DELETE", "nodes", node)

    def create_join_token(
        self, *, node: str | None = None, expires_in_minutes: int | None = None
    ) -> JoinTokenCreated:
        """Create a token with which one machine joins, once. `node` binds it to that name."""
        body = build(JoinTokenIn, node=node, expires_in_minutes=expires_in_minutes)
        return self._connection.fetch(JoinTokenCreated, "POST", "nodes", "join-tokens", body=body)
