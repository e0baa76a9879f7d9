"""Node registration: a one-time join token, then a node token."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from django.db import IntegrityError, transaction
from django.db.models import Q

from portal.accounts import audit
from portal.accounts.models import User
from portal.accounts.tokens import hash_of
from portal.compute.isolation import stored_reports
from portal.compute.lifecycle import NodeState
from portal.compute.models import GroupMachine, JoinToken, Node, Pool
from portal.compute.services.tiers import create_default_tiers
from portal.compute.signals import NodeChanged, node_changed
from portal.compute.tokens import (
    allocation_join_secret,
    has_join_shape,
    machine_join_secret,
    new_join_secret,
    new_node_secret,
)
from portal.core import clock
from portal.core.errors import Conflict, InvalidInput, Unauthenticated
from portal.core.text import clean_slug
from slipway.schemas.agent import NodeFacts


@dataclass(frozen=True)
class NewJoinToken:
    """A join token and its secret, which is not stored."""

    token: JoinToken
    secret: str


@dataclass(frozen=True)
class JoinedNode:
    """A node and its secret, which is not stored."""

    node: Node
    secret: str


def create_join_token(
    *, by: User | None, node: str | None = None, expires_in_minutes: int = 60
) -> NewJoinToken:
    """Create a one-time token, for a machine of any free name or for the name `node` alone.

    Bound to the name of an existing node, it lets a machine join again in that node's place.
    """
    name = clean_slug(node, field="node") if node else ""
    secret = new_join_secret()
    with transaction.atomic():
        # Delete expired tokens that were never used.
        JoinToken.objects.filter(used_at__isnull=True, expires_at__lt=clock.now()).delete()
        token = JoinToken.objects.create(
            token_hash=hash_of(secret),
            node_name=name,
            made_by=by,
            expires_at=clock.now() + timedelta(minutes=expires_in_minutes),
        )
        audit.record("node.invite", kind="node", target=token, label=name or "any name")
    return NewJoinToken(token, secret)


def create_allocation_tokens(
    *, pool: Pool, reserved_for: str, names: Sequence[str], valid_for: timedelta
) -> list[str]:
    """Create a one-time token for each task of an allocation, bound to the name of its node.

    The nodes run the placement `reserved_for` alone. Returns the secrets, which are not stored: the
    same for the same names. Idempotent.
    """
    secrets = [allocation_join_secret(name) for name in names]
    hashes = {hash_of(secret): name for name, secret in zip(names, secrets, strict=True)}
    tokens = JoinToken.objects.filter(token_hash__in=hashes)
    known = set(tokens.values_list("token_hash", flat=True))
    new = [
        JoinToken(
            token_hash=token_hash,
            node_name=name,
            pool=pool,
            reserved_for=reserved_for,
            expires_at=clock.now() + valid_for,
        )
        for token_hash, name in hashes.items()
        if token_hash not in known
    ]
    if new:
        JoinToken.objects.bulk_create(new, ignore_conflicts=True)
    return secrets


def create_machine_token(*, machine: GroupMachine) -> str:
    """Create the one-time token of a machine of a node group, and return its secret.

    It is bound to the name of the machine and is the same when it is asked for again, with the time
    to join from now on. Idempotent.
    """
    secret = machine_join_secret(machine.name)
    expires_at = clock.now() + machine.group.join_within
    token, is_new = JoinToken.objects.get_or_create(
        token_hash=hash_of(secret),
        defaults={
            "node_name": machine.name,
            "group": machine.group,
            "expires_at": expires_at,
        },
    )
    if not is_new:
        JoinToken.objects.filter(pk=token.pk, used_at__isnull=True).update(expires_at=expires_at)
    return secret


def joined_as(machine: GroupMachine) -> Node | None:
    """Return the node that joined with the token of a machine, None before it has joined."""
    tokens = JoinToken.objects.filter(token_hash=hash_of(machine_join_secret(machine.name)))
    token = tokens.select_related("node").first()
    return token.node if token is not None else None


def revoke_machine_token(machine: GroupMachine) -> None:
    """Keep a machine that has not joined from joining. Idempotent."""
    secret_hash = hash_of(machine_join_secret(machine.name))
    JoinToken.objects.filter(token_hash=secret_hash, used_at__isnull=True).delete()


def end_allocation(*, reserved_for: str) -> None:
    """Remove the nodes of an allocation, and the tokens that none of its agents has used.

    Their leases must be closed. Idempotent.
    """
    Node.objects.present().filter(reserved_for=reserved_for).update(
        state=NodeState.REMOVED, reason="The allocation has ended."
    )
    JoinToken.objects.filter(reserved_for=reserved_for, used_at__isnull=True).delete()


def join_node(*, secret: str, name: str, details: NodeFacts) -> JoinedNode:
    """Register the machine as a node, and create tiers for it when it is the first.

    The same join token works again for the same name until the first heartbeat of the node, so a
    lost response can be requested again. Raises Unauthenticated for a token that is unknown, used
    or expired, Conflict for a name that is taken.
    """
    name = clean_slug(name, field="name")
    node_secret = new_node_secret()
    try:
        with transaction.atomic():
            token = _usable_token(secret, name)
            node = _place_of(token, name)
            node.pool_id, node.reserved_for = token.pool_id, token.reserved_for
            node.group_id = token.group_id
            apply_facts(node, details)
            node.token_hash = hash_of(node_secret)
            node.boot_id = ""
            node.save()
            JoinToken.objects.filter(pk=token.pk).update(used_at=clock.now(), node=node)
            if not node.reserved_for:
                create_default_tiers(node)
            audit.record(
                "node.join",
                kind="node",
                target=node,
                label=name,
                after={
                    "cpu_millis": node.cpu_millis,
                    "gpus": node.gpus,
                    **{
                        f"isolation of {level.backend}": str(level)
                        for level in node.isolation_levels
                    },
                },
            )
            node_changed.send_on_commit(NodeChanged(node.pk))
    except IntegrityError as error:
        raise _name_conflict(name) from error
    return JoinedNode(node, node_secret)


def apply_facts(node: Node, details: NodeFacts) -> None:
    """Copy the reported facts of a machine to its row, without saving it."""
    if len(details.gpus) != details.capacity.gpus:
        raise InvalidInput(
            f"The node offers {details.capacity.gpus} GPUs but describes {len(details.gpus)}.",
            field="facts.gpus",
            next_step="Describe each GPU once.",
        )
    node.cpu_millis = details.capacity.cpu_millis
    node.memory_bytes = details.capacity.memory_bytes
    node.gpus = details.capacity.gpus
    node.gpu_models = [gpu.model for gpu in sorted(details.gpus, key=lambda gpu: gpu.index)]
    node.backends = details.backends
    node.address = details.address
    node.labels = dict(details.labels)
    node.agent_version = details.agent_version
    node.isolation = stored_reports(details.isolation)
    node.disk = details.disk.model_dump() if details.disk else {}
    node.pythons = details.pythons


def _usable_token(secret: str, name: str) -> JoinToken:
    token = None
    if has_join_shape(secret):
        token = (
            JoinToken.objects.select_for_update(of=("self",), no_key=True)
            .filter(token_hash=hash_of(secret), expires_at__gt=clock.now())
            .filter(Q(node_name="") | Q(node_name=name))
            .select_related("node")
            .first()
        )
    if token is not None and token.used_at is not None and not _may_repeat(token, name):
        token = None
    if token is None:
        raise Unauthenticated(
            "The join token is unknown, already used, expired, or for a node with another name.",
            code="invalid_join_token",
            next_step="Ask an administrator for a new one under Settings → Nodes.",
        )
    return token


def _may_repeat(token: JoinToken, name: str) -> bool:
    node = token.node
    return node is not None and node.name == name and not node.boot_id and node.state != "removed"


def _place_of(token: JoinToken, name: str) -> Node:
    """Return the row to join as: a new one, or the one this token may take over."""
    taken = Node.objects.present().select_for_update(no_key=True).filter(name=name).first()
    if taken is None:
        return Node(name=name)
    if token.node_id == taken.pk or token.node_name == name:
        return taken
    raise _name_conflict(name)


def _name_conflict(name: str) -> Conflict:
    return Conflict(
        f"A node named {name} already exists.",
        code="node_name_taken",
        field="name",
        next_step="Choose another name, or ask for a join token bound to this one.",
    )
