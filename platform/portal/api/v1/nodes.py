"""Nodes, for administrators: list, settings, cordon and drain."""

from django.http import HttpRequest
from ninja import Router, Status

from portal.accounts.gates import Administrator
from portal.accounts.principal import require_principal
from portal.api.routing import gate
from portal.api.v1.serializers import PageParameters, page_of
from portal.api.v1.workload_serializers import node_out
from portal.compute.join_command import join_command
from portal.compute.models import Node
from portal.compute.services import node_registration
from portal.compute.services import nodes as node_services
from portal.compute.services.nodes import (
    remove_node,
    set_project_mixing,
)
from portal.core.errors import NotFound
from portal.core.pagination import paginate
from slipway.schemas.base import PageOf
from slipway.schemas.workloads import (
    JoinTokenCreated,
    JoinTokenIn,
    NodeChange,
    NodeOut,
    NodeReason,
)

router = Router(tags=["Nodes"])


def _node(name: str) -> Node:
    node = Node.objects.present().filter(name=name).first()
    if node is None:
        raise NotFound
    return node


@router.get("/nodes", auth=gate(Administrator()), response=PageOf[NodeOut])
def list_nodes(request: HttpRequest, page: PageParameters) -> PageOf[NodeOut]:
    """List the machines of this installation, newest first."""
    nodes = Node.objects.present()
    return page_of(paginate(nodes, cursor=page.cursor, limit=page.limit), node_out)


@router.post("/nodes/join-tokens", auth=gate(Administrator()), response={201: JoinTokenCreated})
def create_join_token(request: HttpRequest, payload: JoinTokenIn) -> Status[JoinTokenCreated]:
    """Create a one-time token for a machine to join. Only this response contains it.

    `command` is run on the machine and reads the token from standard input.
    """
    made = node_registration.create_join_token(
        by=require_principal(request).user,
        node=payload.node,
        expires_in_minutes=payload.expires_in_minutes,
    )
    command = join_command(made.token.node_name).text
    answer = JoinTokenCreated(
        join_token=made.secret, command=command, expires_at=made.token.expires_at
    )
    return Status(201, answer)


@router.get("/nodes/{node}", auth=gate(Administrator()), response=NodeOut)
def get_node(request: HttpRequest, node: str) -> NodeOut:
    """Get a machine."""
    return node_out(_node(node))


@router.patch("/nodes/{node}", auth=gate(Administrator()), response=NodeOut)
def update_node(request: HttpRequest, node: str, payload: NodeChange) -> NodeOut:
    """Change the settings of a machine.

    With `mixes_projects`, code of one project can read files, memory and secrets of other projects
    that run on this node.
    """
    machine = _node(node)
    if payload.mixes_projects is not None:
        machine = set_project_mixing(node=machine, is_allowed=payload.mixes_projects)
    return node_out(machine)


@router.post("/nodes/{node}/cordon", auth=gate(Administrator()), response=NodeOut)
def cordon_node(request: HttpRequest, node: str, payload: NodeReason) -> NodeOut:
    """Stop scheduling work on the machine. Running work continues."""
    return node_out(node_services.cordon_node(node=_node(node), reason=payload.reason))


@router.post("/nodes/{node}/uncordon", auth=gate(Administrator()), response=NodeOut)
def uncordon_node(request: HttpRequest, node: str) -> NodeOut:
    """Schedule work on the machine again."""
    return node_out(node_services.uncordon_node(node=_node(node)))


@router.post("/nodes/{node}/drain", auth=gate(Administrator()), response=NodeOut)
def drain_node(request: HttpRequest, node: str, payload: NodeReason) -> NodeOut:
    """Stop scheduling work on the machine, and move its workloads elsewhere if possible."""
    return node_out(node_services.drain_node(node=_node(node), reason=payload.reason))


@router.delete("/nodes/{node}", auth=gate(Administrator()), response={204: None})
def delete_node(request: HttpRequest, node: str) -> Status[None]:
    """Remove an empty machine from the installation."""
    remove_node(node=_node(node))
    return Status(204, None)
