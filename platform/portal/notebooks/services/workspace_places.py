"""Places of workspaces: which nodes hold the folders of a project, and whether they answer."""

from collections.abc import Iterable
from dataclasses import dataclass

from django.db.models import Max

from portal.accounts.models import Project, User
from portal.compute.lifecycle import NodeState
from portal.compute.models import Node
from portal.core.errors import Conflict, NotFound
from portal.notebooks.kinds import KIND
from portal.notebooks.services.servers import WORKSPACE
from portal.workloads.models import Lease
from portal.workloads.specs import personal_key_of
from slipway.schemas.workspace_files import WorkspaceArea, WorkspaceNode


@dataclass(frozen=True)
class Workspace:
    """One person's view of a workspace: the shared folder or their own, on one node."""

    project: Project
    person: User
    area: WorkspaceArea
    node: Node

    @property
    def folder(self) -> str:
        """The key of the folder on its node."""
        return self.folder_of(self.area)

    def folder_of(self, area: WorkspaceArea) -> str:
        """Return the key of an area of the project, the person's own if it is personal."""
        key = WORKSPACE if area == "shared" else personal_key_of(self.person.pk)
        return f"{self.project.pk}/{key}"


def nodes_with_workspace(*, project: Project, person: User, area: WorkspaceArea) -> list[Node]:
    """Return the nodes that have such a folder, that of the newest notebook server first."""
    nodes = _nodes_of_servers(project, person, area)
    return [node for node in nodes if node.state != NodeState.REMOVED]


def _nodes_of_servers(project: Project, person: User, area: WorkspaceArea) -> list[Node]:
    leases = Lease.objects.filter(project=project, workload__kind=KIND)
    if area == "personal":
        leases = leases.filter(workload__submitted_by=person)
    newest = leases.order_by().values("node").annotate(newest=Max("pk")).order_by("-newest")
    order = [row["node"] for row in newest]
    nodes = Node.objects.in_bulk(order)
    return [nodes[pk] for pk in order if pk in nodes]


def unreachable_reason(node: Node) -> str:
    """Return why the files of a node cannot be reached now, or ""."""
    if not node.is_quiet():
        return ""
    since = f" since {node.last_seen_at:%Y-%m-%d %H:%M} UTC" if node.last_seen_at else ""
    return f"The node {node.name} has sent no heartbeat{since}. The files are on its disk."


def node_views(nodes: Iterable[Node]) -> list[WorkspaceNode]:
    """Serialize the nodes that hold a folder, in the order of `nodes_with_workspace`."""
    return [
        WorkspaceNode(
            name=node.name,
            is_reachable=not node.is_quiet(),
            reason=unreachable_reason(node),
            away_since=node.last_seen_at if node.is_quiet() else None,
            is_default=number == 0,
        )
        for number, node in enumerate(nodes)
    ]


def away_next_step(workspace: Workspace) -> str:
    """Return what a person can do while the node of a folder is away."""
    nodes = nodes_with_workspace(
        project=workspace.project, person=workspace.person, area=workspace.area
    )
    others = [node.name for node in nodes if node != workspace.node and not node.is_quiet()]
    step = (
        f"The files are unchanged. Ask an administrator to start {workspace.node.name} or its "
        "node agent; they are here again as soon as it answers."
    )
    if not others:
        return step
    names = ", ".join(others)
    return f"{step} Other files of the project are on {names}: choose that node."


def workspace_of(
    *, project: Project, person: User, area: WorkspaceArea, node: str = ""
) -> Workspace:
    """Return a folder on a node, by default that of the newest server.

    Raises NotFound for an unknown node, and Conflict if no node has the folder.
    """
    nodes = nodes_with_workspace(project=project, person=person, area=area)
    if not nodes:
        removed = _nodes_of_servers(project, person, area)
        if removed:
            raise _removed(removed[0])
        raise Conflict(
            "No notebook server of the project has run yet, so there is no workspace."
            if area == "shared"
            else "No notebook server of yours has run in the project yet, so you have no folder.",
            code="no_workspace",
            next_step="Launch a notebook. Its start creates the folder on its node.",
        )
    chosen = next((row for row in nodes if not node or row.name == node), None)
    if chosen is None:
        raise NotFound(
            "There is no such node with a workspace of the project.",
            next_step=f"Nodes with a workspace: {', '.join(row.name for row in nodes)}.",
        )
    return Workspace(project, person, area, chosen)


def _removed(node: Node) -> Conflict:
    return Conflict(
        f"The node {node.name}, which holds these files, was removed from the installation.",
        code="workspace_removed",
        next_step="Ask an administrator whether it can be recovered. A notebook that you launch "
        "gets a new folder on its node.",
    )
