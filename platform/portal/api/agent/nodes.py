"""Operations of nodes: join, heartbeat, desired state, relay."""

from django.http import HttpRequest
from ninja import Query, Router, Status
from pydantic import BaseModel, Field

from portal.api.agent.requires import agent_gate
from portal.compute.gates import NodeToken, gated_node
from portal.compute.services.node_registration import join_node
from portal.core.policy import Public
from portal.workloads.services.desired import desired_for
from portal.workloads.services.heartbeats import heartbeat
from portal.workloads.services.relay import relay_grant
from slipway.schemas.agent import DesiredState, Heartbeat, HeartbeatAnswer, Join, JoinResponse
from slipway.schemas.relay import RelayGrant

router = Router(tags=["Nodes"])


class DesiredQuery(BaseModel):
    """`seen` is the version the agent knows. The response waits up to `wait_s` for a newer one."""

    seen: int = Field(default=0, ge=0, le=2**62)
    wait_s: float = Field(default=0, ge=0, le=60)


@router.post(
    "/join",
    auth=agent_gate(Public("the one-time join token in the body is the proof")),
    response={201: JoinResponse},
)
def register_node(request: HttpRequest, payload: Join) -> Status[JoinResponse]:
    """Join this installation as a node."""
    made = join_node(secret=payload.join_token, name=payload.name, details=payload.facts)
    return Status(201, JoinResponse(node_id=made.node.pk, node_token=made.secret))


@router.post("/heartbeat", auth=agent_gate(NodeToken()), response=HeartbeatAnswer)
def report_heartbeat(request: HttpRequest, payload: Heartbeat) -> HeartbeatAnswer:
    """Renew the leases of the node's tasks."""
    return heartbeat(node=gated_node(request), beat=payload)


@router.get("/desired", auth=agent_gate(NodeToken()), response=DesiredState)
def get_desired_state(request: HttpRequest, query: Query[DesiredQuery]) -> DesiredState:
    """Return the tasks the node should run, after the long poll (`portal.api.agent.long_poll`)."""
    return desired_for(node=gated_node(request))


@router.get("/relay", auth=agent_gate(NodeToken()), response=RelayGrant)
def get_relay(request: HttpRequest) -> RelayGrant:
    """Return the address of the relay, and the workloads the node may serve through it.

    The relay asks this with the token of the node that connects to it.
    """
    return relay_grant(node=gated_node(request))
