"""Services for node groups, by administrators, and what a node of a group will be."""

from collections.abc import Iterable, Mapping
from typing import Any

from django.db import IntegrityError, transaction

from portal.accounts import audit
from portal.accounts.models import Project
from portal.compute.models import GroupMachine, Node, NodeGroup, NodeGroupProject
from portal.compute.models.node_groups import GROUP_LABEL, MAX_NODES
from portal.compute.provisioners import ProvisionerKind, provisioner_kinds
from portal.compute.resources import Amount
from portal.compute.services.tiers import create_default_tiers
from portal.core import clock
from portal.core.errors import Conflict, InvalidInput
from portal.core.text import clean_slug
from slipway.schemas.backends import DEFAULT_BACKEND
from slipway.schemas.truncation import join_names

_NAME_CHARACTERS = 32
# The address of the page that creates a group.
_RESERVED_NAME = "new"
_LEAST_GRACE_S = 10
_LEAST_JOIN_S = 30
_LIMITS = ("min_nodes", "max_nodes", "max_starting", "idle_grace_s", "join_within_s")
_CHANGEABLE = (*_LIMITS, "nano_usd_per_hour", "is_open")


def create_node_group(
    *,
    name: str,
    provisioner: str,
    settings: Mapping[str, Any],
    amount: Amount,
    max_nodes: int,
    nano_usd_per_hour: int,
    gpu_model: str = "",
    labels: Mapping[str, str] | None = None,
    projects: Iterable[Project] | None = None,
    **limits: int,
) -> NodeGroup:
    """Create a node group, for all projects unless some are given.

    `limits` are `min_nodes`, `max_starting`, `idle_grace_s` and `join_within_s`. Raises
    InvalidInput for an unknown provisioner, a wrong setting or limit, Conflict for a taken name.
    """
    group = NodeGroup(
        name=_clean_group_name(name),
        provisioner=provisioner,
        settings=_kind(provisioner).clean(settings),
        cpu_millis=amount.cpu_millis,
        memory_bytes=amount.memory_bytes,
        gpus=amount.gpus,
        gpu_model=gpu_model,
        labels=dict(labels or {}),
        max_nodes=max_nodes,
        nano_usd_per_hour=nano_usd_per_hour,
        is_for_all=projects is None,
        **limits,
    )
    _check(group)
    try:
        with transaction.atomic():
            group.save()
            _allow(group, projects or [])
            audit.record(
                "node_group.create",
                kind="node_group",
                target=group,
                label=group.name,
                after={"provisioner": provisioner, **_shown(group)},
            )
    except IntegrityError as error:
        raise Conflict(
            f"A node group {group.name} already exists.",
            code="node_group_name_taken",
            field="name",
            next_step="Choose another name, or change the existing group.",
        ) from error
    # Without tiers nothing could be submitted, so no node would ever be made.
    create_default_tiers(expected_node(group))
    return group


def change_node_group(
    *,
    group: NodeGroup,
    settings: Mapping[str, Any] | None = None,
    projects: Iterable[Project] | None = None,
    is_for_all: bool | None = None,
    **changes: Any,
) -> NodeGroup:
    """Change a group. Its nodes go on, machines that are requested from now on get the settings.

    `changes` are limits, `nano_usd_per_hour` and `is_open`. A changed group requests machines at
    once, also after failures. Raises InvalidInput.
    """
    if settings is not None:
        settings = _kind(group.provisioner).clean(settings)
    with transaction.atomic():
        group = NodeGroup.objects.select_for_update(no_key=True).get(pk=group.pk)
        old = _shown(group)
        if settings is not None:
            group.settings = dict(settings)
        for field in _CHANGEABLE:
            if changes.get(field) is not None:
                setattr(group, field, changes[field])
        if projects is not None:
            group.is_for_all = False
            NodeGroupProject.objects.filter(group=group).delete()
            _allow(group, projects)
        elif is_for_all is not None:
            group.is_for_all = is_for_all
        _check(group)
        group.retry_at, group.failures, group.problem = None, 0, ""
        group.save()
        before, after = audit.difference(old, _shown(group))
        if after:
            audit.record(
                "node_group.change",
                kind="node_group",
                target=group,
                label=group.name,
                before=before,
                after=after,
            )
    return group


def remove_node_group(*, group: NodeGroup) -> None:
    """Remove a group. Idempotent. Raises Conflict while it has machines."""
    with transaction.atomic():
        group = NodeGroup.objects.select_for_update(no_key=True).get(pk=group.pk)
        if group.removed_at is not None:
            return
        machines = GroupMachine.objects.open().filter(group=group).count()
        if machines:
            raise Conflict(
                f"Node group {group.name} still has {machines} "
                f"{'machine' if machines == 1 else 'machines'}.",
                code="node_group_in_use",
                next_step="Close the group. Nodes leave once they are idle; drain those that "
                "should leave sooner.",
            )
        group.removed_at = clock.now()
        group.is_open = False
        group.save()
        audit.record("node_group.remove", kind="node_group", target=group, label=group.name)


def expected_node(group: NodeGroup, number: int = 0) -> Node:
    """Return an unsaved node as the group would make it.

    It is like the node of the group that joined last. Before the first has joined it is as the
    group says, with processes as its only back end, and assumed to keep projects apart.
    """
    name = f"{group.name} (not made)"
    node = Node(
        pk=f"expected:{group.pk}:{number}",
        name=name,
        group=group,
        cpu_millis=group.cpu_millis,
        memory_bytes=group.memory_bytes,
        gpus=group.gpus,
        gpu_models=[group.gpu_model] * group.gpus,
        labels=group.node_labels,
        backends=[DEFAULT_BACKEND],
        isolation=[{"backend": DEFAULT_BACKEND, **_ASSUMED_ISOLATION}],
        # An unsaved row has no value where the database has the default.
        reserved_for="",
        mixes_projects=False,
        pythons=[],
    )
    latest = group.nodes.order_by("-pk").first()
    if latest is not None:
        for fact in _LEARNED:
            setattr(node, fact, getattr(latest, fact))
    return node


def possible_nodes(project: Project) -> list[Node]:
    """Return the nodes on which work of a project can ever run: those that exist, by name, and
    those that groups may still make.
    """
    nodes = list(Node.objects.lasting().usable_by(project).order_by("name"))
    for group in NodeGroup.objects.usable_by(project).order_by("name"):
        existing = sum(node.group_id == group.pk for node in nodes)
        if existing < group.max_nodes:
            expected = expected_node(group)
            nodes += [expected] * (group.max_nodes - existing)
    return nodes


# Facts that nodes of a group have in common, and that only a node that has joined reports.
_LEARNED = (
    *("cpu_millis", "memory_bytes", "gpus", "gpu_models"),
    *("labels", "backends", "isolation", "mixes_projects", "pythons"),
)
_ASSUMED_ISOLATION = {
    "level": "namespaces",
    "features": ["user", "mount", "pid", "ipc", "network"],
    "detail": "",
}


def _allow(group: NodeGroup, projects: Iterable[Project]) -> None:
    NodeGroupProject.objects.bulk_create(
        NodeGroupProject(group=group, project=project) for project in projects
    )


def _shown(group: NodeGroup) -> dict[str, Any]:
    """Return what the audit log tells of a group. Settings of provisioners hold no secrets."""
    projects = None
    if not group.is_for_all:
        projects = ", ".join(sorted(group.projects.values_list("slug", flat=True)))
    settings = {f"setting {name}": value for name, value in group.settings.items()}
    return {field: getattr(group, field) for field in _CHANGEABLE} | {
        "projects": projects,
        **settings,
    }


def _check(group: NodeGroup) -> None:
    """Raise InvalidInput for the first limit that makes no sense."""
    checks = (
        ("resources", group.cpu_millis > 0 and group.memory_bytes > 0, "have some CPU and memory"),
        ("max_nodes", 1 <= group.max_nodes <= MAX_NODES, f"be from 1 to {MAX_NODES}"),
        ("min_nodes", 0 <= group.min_nodes <= group.max_nodes, "be from 0 to max_nodes"),
        ("max_starting", 1 <= group.max_starting <= MAX_NODES, f"be from 1 to {MAX_NODES}"),
        ("idle_grace_s", group.idle_grace_s >= _LEAST_GRACE_S, f"be at least {_LEAST_GRACE_S} s"),
        ("join_within_s", group.join_within_s >= _LEAST_JOIN_S, f"be at least {_LEAST_JOIN_S} s"),
        ("nano_usd_per_hour", group.nano_usd_per_hour >= 0, "not be negative"),
    )
    for field, is_right, rule in checks:
        if not is_right:
            raise InvalidInput(
                f"The field {field} of node group {group.name} must {rule}.",
                field=field,
                next_step="Correct the number.",
            )
    if GROUP_LABEL in group.labels:
        raise InvalidInput(
            f"The label {GROUP_LABEL} is set by Slipway, to the name of the group.",
            field="labels",
            next_step="Leave it out.",
        )


def _clean_group_name(name: str) -> str:
    name = clean_slug(name, field="name")
    if len(name) > _NAME_CHARACTERS:
        raise InvalidInput(
            f"The name has {len(name)} characters; at most {_NAME_CHARACTERS} are allowed.",
            field="name",
            next_step="Shorten it.",
        )
    if name == _RESERVED_NAME:
        raise InvalidInput(
            f"The name {name} is the address of the page that creates a node group.",
            code="name_reserved",
            field="name",
            next_step="Choose another name.",
        )
    return name


def _kind(provisioner: str) -> ProvisionerKind:
    kind = provisioner_kinds().get(provisioner)
    if kind is None:
        raise InvalidInput(
            f"There is no provisioner {provisioner}.",
            code="no_such_provisioner",
            field="provisioner",
            next_step=f"Provisioners: {join_names(sorted(provisioner_kinds()), 10)}.",
        )
    return kind
