"""Node groups, visible to those who may use them and managed by administrators."""

from django.http import HttpRequest
from ninja import Query, Router, Status
from pydantic import BaseModel

from portal.accounts.gates import Administrator, SignedIn
from portal.accounts.principal import Principal, require_principal
from portal.api.routing import gate
from portal.api.v1.serializers import PageParameters, page_of
from portal.compute.lifecycle import MachineState
from portal.compute.models import GroupMachine, NodeGroup
from portal.compute.resources import Amount
from portal.compute.services import node_groups, pools
from portal.compute.services.node_group_costs import group_cost
from portal.core import clock
from portal.core.errors import NotFound
from portal.core.pagination import paginate
from portal.workloads.growth_reasons import usual_start
from portal.workloads.node_work import work_on
from slipway.schemas.accounts import Scope
from slipway.schemas.base import PageOf, Slug
from slipway.schemas.node_groups import (
    GroupMachineOut,
    IdleCostOut,
    NodeGroupChange,
    NodeGroupIn,
    NodeGroupOut,
)
from slipway.schemas.workloads import Resources

router = Router(tags=["Node groups"])
_SEE = SignedIn(Scope.WORKLOADS_READ, confined=True)
_LIMITS = ("min_nodes", "max_nodes", "max_starting", "idle_grace_s", "join_within_s")


class NodeGroupFilter(BaseModel):
    """`project` keeps the groups that the project may use."""

    project: Slug | None = None


@router.get("/node-groups", auth=gate(_SEE), response=PageOf[NodeGroupOut])
def list_node_groups(
    request: HttpRequest, page: PageParameters, query: Query[NodeGroupFilter]
) -> PageOf[NodeGroupOut]:
    """List the node groups that one's projects may use; administrators see all."""
    principal = require_principal(request)
    visible = NodeGroup.objects.visible_to(principal)
    if query.project is not None:
        project = principal.projects().live().filter(slug=query.project).first()
        visible = visible.none() if project is None else NodeGroup.objects.usable_by(project)
    shown = paginate(visible, cursor=page.cursor, limit=page.limit)
    return page_of(shown, lambda group: _group_out(group, principal))


@router.post("/node-groups", auth=gate(Administrator()), response={201: NodeGroupOut})
def create_node_group(request: HttpRequest, payload: NodeGroupIn) -> Status[NodeGroupOut]:
    """Create a node group."""
    resources = payload.resources
    made = node_groups.create_node_group(
        name=payload.name,
        provisioner=payload.provisioner,
        settings=payload.settings,
        amount=Amount(resources.cpu_millis, resources.memory_bytes, resources.gpus),
        gpu_model=payload.gpu_model,
        labels=dict(payload.labels),
        nano_usd_per_hour=payload.nano_usd_per_hour,
        projects=None if payload.projects is None else pools.named_projects(payload.projects),
        **{limit: getattr(payload, limit) for limit in _LIMITS},
    )
    return Status(201, _group_out(made, require_principal(request)))


@router.get("/node-groups/{group}", auth=gate(_SEE), response=NodeGroupOut)
def get_node_group(request: HttpRequest, group: str) -> NodeGroupOut:
    """Get a node group."""
    principal = require_principal(request)
    return _group_out(_group(principal, group), principal)


@router.patch("/node-groups/{group}", auth=gate(Administrator()), response=NodeGroupOut)
def update_node_group(request: HttpRequest, group: str, payload: NodeGroupChange) -> NodeGroupOut:
    """Change, close or open a node group. What runs on its nodes goes on."""
    principal = require_principal(request)
    is_for_all = "projects" in payload.model_fields_set and payload.projects is None
    changed = node_groups.change_node_group(
        group=_group(principal, group),
        settings=payload.settings,
        projects=None if payload.projects is None else pools.named_projects(payload.projects),
        is_for_all=True if is_for_all else None,
        nano_usd_per_hour=payload.nano_usd_per_hour,
        is_open=payload.is_open,
        **{limit: getattr(payload, limit) for limit in _LIMITS},
    )
    return _group_out(changed, principal)


@router.delete("/node-groups/{group}", auth=gate(Administrator()), response={204: None})
def delete_node_group(request: HttpRequest, group: str) -> Status[None]:
    """Remove a node group that has no machine."""
    node_groups.remove_node_group(group=_group(require_principal(request), group))
    return Status(204, None)


@router.get(
    "/node-groups/{group}/machines",
    auth=gate(Administrator()),
    response=PageOf[GroupMachineOut],
)
def list_group_machines(
    request: HttpRequest, group: str, page: PageParameters
) -> PageOf[GroupMachineOut]:
    """List the machines of a node group, the newest first, also those that are gone."""
    principal = require_principal(request)
    machines = GroupMachine.objects.filter(group=_group(principal, group)).select_related("node")
    shown = paginate(machines, cursor=page.cursor, limit=page.limit)
    work = work_on([row.node_id for row in shown.items if row.node_id], principal.user)
    return page_of(shown, lambda row: _machine_out(row, work.get(row.node_id or "", [])))


def _group(principal: Principal, name: str) -> NodeGroup:
    group = NodeGroup.objects.visible_to(principal).filter(name=name).first()
    if group is None:
        raise NotFound
    return group


def _group_out(group: NodeGroup, principal: Principal) -> NodeGroupOut:
    is_administrator = principal.user.is_administrator
    states = list(GroupMachine.objects.open().filter(group=group).values_list("state", flat=True))
    usual = usual_start(group)
    projects = None
    if is_administrator and not group.is_for_all:
        projects = sorted(group.projects.values_list("slug", flat=True))
    return NodeGroupOut(
        id=group.pk,
        name=group.name,
        provisioner=group.provisioner,
        provisioner_label=group.provisioner_label,
        is_open=group.is_open,
        resources=Resources(
            cpu_millis=group.cpu_millis, memory_bytes=group.memory_bytes, gpus=group.gpus
        ),
        gpu_model=group.gpu_model,
        labels=group.node_labels,
        nano_usd_per_hour=group.nano_usd_per_hour,
        nodes=states.count(MachineState.JOINED),
        starting=states.count(MachineState.REQUESTED) + states.count(MachineState.STARTING),
        draining=states.count(MachineState.DRAINING),
        usual_start_s=usual.total_seconds() if usual is not None else None,
        problem=group.problem,
        retry_at=group.retry_at if group.is_backing_off(clock.now()) else None,
        settings=group.settings if is_administrator else {},
        projects=projects,
        cost=_cost_out(group) if is_administrator else None,
        **{limit: getattr(group, limit) for limit in _LIMITS},
    )


def _cost_out(group: NodeGroup) -> IdleCostOut:
    cost = group_cost(group)
    return IdleCostOut(
        machines=cost.machines,
        total_s=cost.total.total_seconds(),
        idle_s=cost.idle.total_seconds(),
        starting_s=cost.starting.total_seconds(),
        nano_usd=cost.nano_usd,
        overhead_nano_usd=cost.overhead_nano_usd,
    )


def _machine_out(machine: GroupMachine, work: list[str]) -> GroupMachineOut:
    timestamp = clock.now()
    idle, total = machine.idle_time(timestamp), machine.total_time(timestamp)
    return GroupMachineOut(
        id=machine.pk,
        name=machine.name,
        state=machine.state,
        handle=machine.handle,
        node=machine.node.name if machine.node is not None else None,
        tasks=machine.node.tasks if machine.node is not None else 0,
        work=work,
        detail=machine.detail,
        reason=machine.reason,
        failure=machine.failure,
        output=machine.output,
        created_at=machine.created_at,
        joined_at=machine.joined_at,
        idle_since=machine.idle_since,
        ended_at=machine.ended_at,
        total_s=total.total_seconds(),
        idle_s=idle.total_seconds(),
        nano_usd=machine.cost(total),
        overhead_nano_usd=machine.cost(idle + machine.start_time(timestamp)),
    )
