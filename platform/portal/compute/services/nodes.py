"""Services for nodes: heartbeats, and the operations of administrators."""

from collections.abc import Iterable
from dataclasses import replace

from django.db import transaction

from portal.accounts import audit
from portal.accounts.request_origin import current_origin, origin_context
from portal.compute.isolation import Isolation, weakened
from portal.compute.lifecycle import QUIET, NodeState
from portal.compute.models import Node
from portal.compute.services.node_registration import apply_facts
from portal.compute.signals import NodeChanged, node_changed
from portal.core import clock
from portal.core.errors import Conflict
from slipway.schemas.agent import Heartbeat
from slipway.schemas.truncation import shorten

_FACTS = (
    "cpu_millis",
    "memory_bytes",
    "gpus",
    "gpu_models",
    "backends",
    "address",
    "labels",
    "agent_version",
    "isolation",
    "disk",
    "pythons",
)


def note_heartbeat(*, node: Node, beat: Heartbeat) -> None:
    """Record a heartbeat of the node and the facts it reports.

    Call it inside the transaction that renews the node's leases.
    """
    timestamp = clock.now()
    was_quiet = node.is_quiet(timestamp)
    old = {fact: getattr(node, fact) for fact in _FACTS}
    levels = node.isolation_levels
    apply_facts(node, beat.facts)
    changed = [fact for fact in _FACTS if getattr(node, fact) != old[fact]]
    node.last_seen_at = timestamp
    node.boot_id = beat.boot_id
    node.cpu_percent = beat.cpu_percent
    node.memory_used_bytes = beat.memory_used_bytes
    node.disk_free_bytes = beat.disk_free_bytes
    if was_quiet or node.hearing_since is None:
        node.hearing_since = timestamp
    loads = ["cpu_percent", "memory_used_bytes", "disk_free_bytes"]
    columns = ["last_seen_at", "hearing_since", "boot_id", *loads, *changed]
    Node.objects.filter(pk=node.pk).update(**{column: getattr(node, column) for column in columns})
    _audit_weaker_isolation(node, before=levels)
    if was_quiet or changed:
        node_changed.send_on_commit(NodeChanged(node.pk))


def _audit_weaker_isolation(node: Node, *, before: Iterable[Isolation]) -> None:
    weaker = weakened(before, node.isolation_levels)
    if not weaker:
        return
    with origin_context(replace(current_origin(), label=f"node {node.name}")):
        audit.record(
            "node.isolation",
            kind="node",
            target=node,
            label=node.name,
            before={was.backend: str(was) for was, _ in weaker},
            after={now.backend: str(now) for _, now in weaker},
        )


def has_steady_heartbeats(*, other_than: Node) -> bool:
    """Return True if another node has sent heartbeats without a gap for longer than `QUIET`.

    If so, a silent node is at fault. If not, the portal may have been unavailable itself.
    """
    timestamp = clock.now()
    others = Node.objects.present().exclude(pk=other_than.pk)
    return others.filter(
        last_seen_at__gt=timestamp - QUIET, hearing_since__lte=timestamp - QUIET
    ).exists()


def cordon_node(*, node: Node, reason: str = "") -> Node:
    """Schedule no new work on the node. Running work continues. Idempotent."""
    return _move(node, NodeState.CORDONED, "node.cordon", reason)


def uncordon_node(*, node: Node) -> Node:
    """Schedule work on the node again. Idempotent."""
    return _move(node, NodeState.READY, "node.uncordon", "")


def drain_node(*, node: Node, reason: str = "") -> Node:
    """Schedule no new work on the node and evict what can be moved. Idempotent."""
    return _move(node, NodeState.DRAINING, "node.drain", reason)


def set_project_mixing(*, node: Node, is_allowed: bool) -> Node:
    """Allow several projects at a time on back ends that cannot isolate them. Idempotent.

    Forbidding it again stops nothing: running work ends by itself.
    """
    with transaction.atomic():
        nodes = Node.objects.present().filter(pk=node.pk, mixes_projects=not is_allowed)
        if nodes.update(mixes_projects=is_allowed):
            audit.record(
                "node.mix_projects" if is_allowed else "node.separate_projects",
                kind="node",
                target=node,
                label=node.name,
                before={"mixes_projects": not is_allowed},
                after={"mixes_projects": is_allowed},
            )
            node_changed.send_on_commit(NodeChanged(node.pk))
    node.refresh_from_db()
    return node


def remove_node(*, node: Node) -> None:
    """Remove the node from the installation. Its token stops working. Idempotent.

    Raises Conflict while something runs there.
    """
    with transaction.atomic():
        node = Node.objects.select_for_update(no_key=True).get(pk=node.pk)
        if node.state == NodeState.REMOVED:
            return
        if node.tasks:
            raise Conflict(
                f"{node.tasks} {'task' if node.tasks == 1 else 'tasks'} still "
                f"{'runs' if node.tasks == 1 else 'run'} on {node.name}.",
                code="node_in_use",
                next_step="Drain the node and wait until it is empty.",
            )
        _move(node, NodeState.REMOVED, "node.remove", "")


def _move(node: Node, target: NodeState, verb: str, reason: str) -> Node:
    with transaction.atomic():
        old = {"state": node.state, "reason": node.reason}
        if Node.objects.move(node.pk, target, reason=shorten(reason, 200)):
            node.state, node.reason = target, shorten(reason, 200)
            audit.record(
                verb,
                kind="node",
                target=node,
                label=node.name,
                before=old,
                after={"state": node.state, "reason": node.reason},
            )
            node_changed.send_on_commit(NodeChanged(node.pk))
        else:
            node.refresh_from_db()
            _explain_no_move(node, target)
    return node


def _explain_no_move(node: Node, target: NodeState) -> None:
    """Raise Conflict unless the node is in the target state already."""
    if node.state != target:
        raise Conflict(
            f"The node {node.name} is {node.state}, so it cannot become {target.value}.",
            next_step="Reload the list of nodes.",
        )
