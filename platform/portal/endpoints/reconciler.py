"""Reconciles the actual state of endpoints with the desired one.

Each endpoint is processed in its own transaction, with its row locked. Every step is idempotent.
"""

from datetime import datetime, timedelta

import structlog
from django.db import transaction
from django.db.models import Q

from portal.core import clock
from portal.endpoints.autoscaling import scale
from portal.endpoints.incidents import end_incidents, forget_incidents
from portal.endpoints.lifecycle import EndpointState, ReplicaState, RevisionState, RolloutState
from portal.endpoints.models import (
    Endpoint,
    EndpointKey,
    GatewayProcess,
    Replica,
    Revision,
    Rollout,
    ServingIncident,
)
from portal.endpoints.replicas import CRASH_LOOP, converge, desired_replicas, follow_workloads
from portal.endpoints.rollback import leave_crash_loop
from portal.endpoints.rollouts import advance, retire_standbys
from portal.endpoints.services.traffic_hours import sum_old_minutes
from portal.endpoints.transitions import (
    add_event,
    locked,
    move_endpoint,
    move_revision,
    move_rollout,
)

log = structlog.get_logger(__name__)
# A replica that has been ready for this long resets the failures of its revision.
_STEADY = timedelta(minutes=1)
_KEEP_PROCESSES = timedelta(hours=1)


def reconcile_all() -> None:
    """Reconcile every endpoint that is active, or has replicas or open incidents."""
    idle = Q(state=EndpointState.PAUSED) | Q(state=EndpointState.FAILED)
    present = Endpoint.objects.present()
    with_replicas = Replica.objects.alive().values("endpoint")
    with_incidents = ServingIncident.objects.open().values("endpoint")
    endpoints = present.filter(~idle | Q(pk__in=with_replicas) | Q(pk__in=with_incidents)).order_by(
        "pk"
    )
    for endpoint_id in list(endpoints.values_list("pk", flat=True)):
        try:
            reconcile(endpoint_id)
        except Exception:
            # An error of one endpoint must not delay the others. It is reconciled again soon.
            log.exception("endpoint_not_reconciled", endpoint=endpoint_id)


@transaction.atomic
def reconcile(endpoint_id: str) -> None:
    """Reconcile one endpoint."""
    endpoint = locked(endpoint_id)
    if endpoint is None or endpoint.status == EndpointState.DELETED:
        return
    timestamp = clock.now()
    follow_workloads(endpoint, timestamp)
    for revision in endpoint.revisions.filter(state=RevisionState.PREPARING):
        _prepare(endpoint, revision)
    _reset_failures(endpoint, timestamp)
    advance(endpoint, timestamp)
    if endpoint.status == EndpointState.SERVING:
        leave_crash_loop(endpoint, timestamp)
        scale(endpoint, timestamp)
    end_incidents(endpoint, timestamp)
    retire_standbys(endpoint, timestamp)
    revisions = endpoint.revisions.select_related("made_by").order_by("number")
    converge(endpoint, list(revisions), timestamp)
    if endpoint.status == EndpointState.DELETING:
        _finish_deleting(endpoint)


def _prepare(endpoint: Endpoint, revision: Revision) -> None:
    """Mark a revision as ready, or as failed, according to its replicas."""
    requested = desired_replicas(endpoint, revision)
    # While nothing answers, one replica is better than none. There may be no capacity for more.
    enough = min(requested, 1) if endpoint.status == EndpointState.CREATING else requested
    if enough and revision.replicas.ready().count() >= enough:
        if move_revision(endpoint, revision, RevisionState.READY, ready_at=clock.now(), reason=""):
            add_event(endpoint, "revision_ready", f"Revision {revision.number} is ready.")
    elif revision.failures >= CRASH_LOOP:
        last = revision.replicas.filter(state=ReplicaState.FAILED).order_by("-pk").first()
        message = last.reason if last is not None else ""
        reason = f"{revision.failures} replicas failed in a row. {message}".strip()
        move_revision(endpoint, revision, RevisionState.FAILED, reason=reason)


def _reset_failures(endpoint: Endpoint, timestamp: datetime) -> None:
    steady = Replica.objects.ready().filter(endpoint=endpoint, ready_at__lt=timestamp - _STEADY)
    endpoint.revisions.filter(pk__in=steady.values("revision"), failures__gt=0).update(
        failures=0, next_start_at=None
    )


def _finish_deleting(endpoint: Endpoint) -> None:
    for rollout in Rollout.objects.under_way().filter(endpoint=endpoint):
        move_rollout(rollout, RolloutState.ROLLING_BACK, reason="The endpoint was deleted.")
        move_rollout(rollout, RolloutState.ROLLED_BACK)
    if not Replica.objects.alive().filter(endpoint=endpoint).exists():
        move_endpoint(endpoint, EndpointState.DELETED, message="Deleted.")


def delete_expired() -> None:
    """Delete expired rows: processes that ended, expired keys of the portal, old traffic.

    Old minutes of traffic become hours.
    """
    timestamp = clock.now()
    sum_old_minutes(timestamp)
    GatewayProcess.objects.filter(seen_at__lt=timestamp - _KEEP_PROCESSES).delete()
    forget_incidents(timestamp)
    portal_keys = EndpointKey.objects.exclude(sealed=b"")
    portal_keys.filter(expires_at__lt=timestamp - timedelta(hours=1)).delete()
