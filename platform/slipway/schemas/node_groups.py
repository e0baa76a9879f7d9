"""Wire schemas of node groups: nodes that are made when work waits, and released when idle.

Under `/api/v1`:

GET    node-groups                    PageOf[NodeGroupOut]; ?project= for those a project may use
POST   node-groups                    NodeGroupIn → NodeGroupOut (201), administrators
GET    node-groups/{group}            NodeGroupOut
PATCH  node-groups/{group}            NodeGroupChange → NodeGroupOut, administrators
DELETE node-groups/{group}            204, administrators; refused while it has machines
GET    node-groups/{group}/machines   PageOf[GroupMachineOut], the newest first, administrators
"""

from datetime import datetime
from typing import Annotated, Any

from pydantic import Field

from slipway.schemas.base import AnswerSchema, JsonObject, Line, RequestSchema, Slug, Truth, Whole
from slipway.schemas.workloads import Labels, NanoUsd, Resources

GroupSlug = Annotated[Slug, Field(max_length=32)]
NodeCount = Annotated[Whole, Field(ge=0, le=1000)]
Seconds = Annotated[Whole, Field(ge=10, le=7 * 24 * 3600)]
GroupProjects = Annotated[list[Slug], Field(max_length=1000)]


class IdleCostOut(AnswerSchema):
    """Cost of the machines of a group that were requested in the last 30 days.

    Times are in seconds, from the request to the release. `idle_s` is time without work after the
    join, `starting_s` the time before it. The price of both is `overhead_nano_usd`, which no
    project pays, and `nano_usd` is that of the whole time.
    """

    machines: int
    total_s: float
    idle_s: float
    starting_s: float
    nano_usd: int
    overhead_nano_usd: int


class NodeGroupOut(AnswerSchema):
    """A group of `min_nodes` to `max_nodes` nodes that `provisioner` makes.

    `nodes` have joined, and `starting` are on their way. `usual_start_s` is the median time from
    request to join. `problem` says why the last machine did not come, and no other is requested
    before `retry_at`. Only administrators see settings, projects and cost. `projects` is null for a
    group for all of them.
    """

    id: str
    name: str
    provisioner: str
    provisioner_label: str
    is_open: bool
    resources: Resources
    gpu_model: str = ""
    labels: dict[str, str] = {}
    min_nodes: int
    max_nodes: int
    max_starting: int
    idle_grace_s: int
    join_within_s: int
    nano_usd_per_hour: int
    nodes: int
    starting: int
    draining: int
    usual_start_s: float | None = None
    problem: str = ""
    retry_at: datetime | None = None
    settings: dict[str, Any] = {}
    projects: list[str] | None = None
    cost: IdleCostOut | None = None


class GroupMachineOut(AnswerSchema):
    """A machine of a group. `node` is the node that joined, and `work` what keeps it from leaving.

    States: requested, starting, joined, draining, released, failed. `reason` says why it leaves,
    `failure` why it failed, and `output` is the end of its console then.
    """

    id: str
    name: str
    state: str
    handle: str = ""
    node: str | None = None
    tasks: int = 0
    work: list[str] = []
    detail: str = ""
    reason: str = ""
    failure: str = ""
    output: str = ""
    created_at: datetime
    joined_at: datetime | None = None
    idle_since: datetime | None = None
    ended_at: datetime | None = None
    total_s: float
    idle_s: float
    nano_usd: int
    overhead_nano_usd: int


class NodeGroupIn(RequestSchema):
    """A new node group, for all projects unless some are given.

    `resources`, `gpu_model` and `labels` describe one node.
    """

    name: GroupSlug
    provisioner: Annotated[Slug, Field(max_length=16)]
    settings: JsonObject = {}
    resources: Resources
    gpu_model: Annotated[Line, Field(max_length=64)] = ""
    labels: Labels = {}
    min_nodes: NodeCount = 0
    max_nodes: Annotated[Whole, Field(ge=1, le=1000)]
    max_starting: Annotated[Whole, Field(ge=1, le=1000)] = 2
    idle_grace_s: Seconds = 300
    join_within_s: Annotated[Whole, Field(ge=30, le=24 * 3600)] = 600
    nano_usd_per_hour: NanoUsd
    projects: GroupProjects | None = None


class NodeGroupChange(RequestSchema):
    """Changes of a group. `settings` replaces all of them. `projects` as null means all projects.

    A group that is not open requests no machine, and its idle nodes leave.
    """

    settings: JsonObject | None = None
    min_nodes: NodeCount | None = None
    max_nodes: Annotated[Whole, Field(ge=1, le=1000)] | None = None
    max_starting: Annotated[Whole, Field(ge=1, le=1000)] | None = None
    idle_grace_s: Seconds | None = None
    join_within_s: Annotated[Whole, Field(ge=30, le=24 * 3600)] | None = None
    nano_usd_per_hour: NanoUsd | None = None
    is_open: Truth | None = None
    projects: GroupProjects | None = None
