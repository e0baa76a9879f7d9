"""State transitions of endpoints, revisions, rollouts and replicas. No other code writes states.

A transition is one guarded UPDATE: the loser of a race changes nothing and returns False. Changes
that affect gateways raise the version of their snapshot, in the same transaction. Locks are taken
in the order endpoint, workload.
"""

from typing import Any

from portal.accounts.signals import send_accounts_changed
from portal.core import clock
from portal.endpoints.lifecycle import (
    ENDPOINT_MOVES,
    REPLICA_MOVES,
    REVISION_MOVES,
    ROLLOUT_MOVES,
    EndpointState,
    ReplicaState,
    RevisionState,
    RolloutState,
    sources_of,
)
from portal.endpoints.models import (
    Endpoint,
    EndpointEvent,
    Replica,
    Revision,
    Rollout,
    ServingVersion,
)
from slipway.schemas.truncation import shorten


def locked(endpoint_id: str) -> Endpoint | None:
    """Return the endpoint with its row locked until the transaction ends, or None."""
    endpoints = Endpoint.objects.select_for_update(of=("self",), no_key=True).filter(pk=endpoint_id)
    return endpoints.select_related("project", "tier", "pool").first()


def add_event(endpoint: Endpoint, kind: str, message: str) -> EndpointEvent:
    """Add an event to the history of an endpoint."""
    event = EndpointEvent.objects.create(
        endpoint=endpoint, kind=kind, message=shorten(message, 2000)
    )
    send_accounts_changed(endpoint.project_id, "endpoints")
    return event


def raise_snapshot_version(endpoint: Endpoint) -> int:
    """Raise the version of the gateways' snapshot after a change. Returns the new version."""
    send_accounts_changed(endpoint.project_id, "endpoints")
    return ServingVersion.objects.raise_version()


def move_endpoint(
    endpoint: Endpoint, target: EndpointState, *, message: str, **changes: Any
) -> bool:
    """Move the endpoint, and add `message` to its events. Returns whether it moved."""
    movable = Endpoint.objects.filter(pk=endpoint.pk, state__in=sources_of(ENDPOINT_MOVES, target))
    if not movable.update(state=target, **changes):
        return False
    _write(endpoint, state=target, **changes)
    add_event(endpoint, target.value, message)
    raise_snapshot_version(endpoint)
    return True


def move_revision(
    endpoint: Endpoint, revision: Revision, target: RevisionState, **changes: Any
) -> bool:
    """Move a revision. Returns whether it moved."""
    movable = Revision.objects.filter(pk=revision.pk, state__in=sources_of(REVISION_MOVES, target))
    if not movable.update(state=target, **changes):
        return False
    _write(revision, state=target, **changes)
    raise_snapshot_version(endpoint)
    return True


def set_traffic_weight(
    endpoint: Endpoint, revision: Revision, weight: int, shadow_percent: float = 0.0
) -> None:
    """Set a revision's share of the traffic."""
    Revision.objects.filter(pk=revision.pk).update(weight=weight, shadow_percent=shadow_percent)
    _write(revision, weight=weight, shadow_percent=shadow_percent)
    raise_snapshot_version(endpoint)


def move_rollout(rollout: Rollout, target: RolloutState, **changes: Any) -> bool:
    """Move a rollout from its present step. Returns whether it moved."""
    here = Rollout.objects.filter(
        pk=rollout.pk, step=rollout.step, state__in=sources_of(ROLLOUT_MOVES, target)
    )
    if target in (RolloutState.DONE, RolloutState.ROLLED_BACK):
        changes["ended_at"] = clock.now()
    if not here.update(state=target, **changes):
        return False
    _write(rollout, state=target, **changes)
    return True


def move_replica(
    endpoint: Endpoint, replica: Replica, target: ReplicaState, **changes: Any
) -> bool:
    """Move a replica. Returns whether it moved.

    The gateways' snapshot changes if the replica becomes ready or was ready.
    """
    movable = Replica.objects.filter(pk=replica.pk, state__in=sources_of(REPLICA_MOVES, target))
    was_ready = replica.status == ReplicaState.READY
    if not movable.update(state=target, **changes):
        return False
    _write(replica, state=target, **changes)
    if was_ready or target == ReplicaState.READY:
        version = raise_snapshot_version(endpoint)
        if was_ready:
            Replica.objects.filter(pk=replica.pk).update(dropped_version=version)
            replica.dropped_version = version
    else:
        send_accounts_changed(endpoint.project_id, "endpoints")
    return True


def _write(row: Any, **changes: Any) -> None:
    for column, value in changes.items():
        setattr(row, column, value)
