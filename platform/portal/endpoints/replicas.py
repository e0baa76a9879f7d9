"""Starts, replaces, drains and stops replicas, until there are as many as desired.

Everything here runs with the endpoint's row locked, is idempotent, and only uses the database.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from cryptography.fernet import Fernet
from django.conf import settings
from django.db import transaction
from django.db.models import F

from portal.compute.lifecycle import NodeState
from portal.compute.services.conda_environments import CondaSource, use_conda
from portal.compute.services.environments import use_environment
from portal.core.errors import Conflict, SlipwayError
from portal.endpoints.lifecycle import KEPT, EndpointState, ReplicaState, RevisionState
from portal.endpoints.models import Endpoint, GatewayProcess, Replica, Revision
from portal.endpoints.ports import ServedModel
from portal.endpoints.tokens import new_replica_secret
from portal.endpoints.transitions import add_event, move_replica, move_revision
from portal.workloads.lifecycle import ENDS, WAITING
from portal.workloads.models import Lease, Workload
from portal.workloads.retries import LOSSES
from portal.workloads.services.cancellation import stop_workload
from portal.workloads.services.submission import WorkloadRequest, submit_workload
from portal.workloads.specs import spec_from
from slipway.requirement_files.conda_packages import CondaEnvironment
from slipway.schemas.backends import DEFAULT_BACKEND
from slipway.schemas.workloads import ReasonCode

KIND = "replica"
# After this many failures in a row the revision fails, or the previous one takes over.
CRASH_LOOP = 3
_LONGEST_PAUSE_S = 60
# A gateway that has not reported for this long is ignored when a replica is drained.
GATEWAY_SILENT = timedelta(seconds=10)
_DRAIN_AT_LEAST = timedelta(seconds=1)
_DRAIN_AT_MOST = timedelta(seconds=90)
_ARGV = ("slipway-model-server",)


def cipher() -> Fernet:
    """Return the cipher that encrypts the secrets of replicas at rest."""
    return Fernet(settings.SLIPWAY_SECRETS_KEY)


def desired_replicas(endpoint: Endpoint, revision: Revision) -> int:
    """Return the desired number of replicas of a revision."""
    if endpoint.status not in (EndpointState.CREATING, EndpointState.SERVING):
        return 0
    return endpoint.desired_replicas if revision.status in KEPT else 0


def follow_workloads(endpoint: Endpoint, timestamp: datetime) -> None:
    """Update the replicas whose workloads have ended or were requeued, with the reason."""
    alive = Replica.objects.alive().filter(endpoint=endpoint)
    for replica in alive.select_related("workload__pool", "revision").order_by("pk"):
        workload = replica.workload
        if workload is None:
            continue
        if workload.status in ENDS:
            _ended(endpoint, replica, timestamp)
        elif workload.status in WAITING and replica.status not in (
            ReplicaState.STARTING,
            ReplicaState.STOPPING,
        ):
            # It was requeued. Another replica starts in its place.
            stop_workload(workload=workload, message="Another replica replaces it.")
            move_replica(
                endpoint,
                replica,
                ReplicaState.STOPPING,
                reason=_requeue_reason(workload),
            )


def _requeue_reason(workload: Workload) -> str:
    if workload.pool is None:
        return "Preempted: its node was needed for other work."
    # The engine has ended it: for other work, or at the time limit of the pool.
    why = workload.reason_text or "The engine ended its allocation."
    return f"Its allocation in pool {workload.pool.name} ended, so another replica starts. {why}"


def _ended(endpoint: Endpoint, replica: Replica, timestamp: datetime) -> None:
    workload = replica.workload
    assert workload is not None  # noqa: S101  (the caller checked it)
    if replica.status in (ReplicaState.DRAINING, ReplicaState.STOPPING):
        move_replica(endpoint, replica, ReplicaState.STOPPED, reason=replica.reason or "Stopped.")
        return
    reason = replica.reason or workload.reason_text or "Its process has ended."
    if not move_replica(endpoint, replica, ReplicaState.FAILED, reason=reason):
        return
    add_event(endpoint, "replica_failed", f"A replica of {replica.revision} failed: {reason}")
    code = ReasonCode(workload.reason) if workload.reason else None
    # In a pool people can cancel an allocation outside of Slipway: no fault of the revision.
    is_cancelled = code is ReasonCode.USER and workload.pool_id is not None
    if code not in LOSSES and not is_cancelled:
        _count_failure(replica.revision, timestamp)


def _count_failure(revision: Revision, timestamp: datetime) -> None:
    """Count a failure. The delay of the next start doubles with each failure in a row."""
    Revision.objects.filter(pk=revision.pk).update(failures=F("failures") + 1)
    revision.refresh_from_db(fields=["failures"])
    pause_s = min(_LONGEST_PAUSE_S, 2 ** max(0, revision.failures - 1))
    revision.next_start_at = timestamp + timedelta(seconds=pause_s)
    Revision.objects.filter(pk=revision.pk).update(next_start_at=revision.next_start_at)


def converge(endpoint: Endpoint, revisions: Sequence[Revision], timestamp: datetime) -> None:
    """Start missing replicas and release surplus ones."""
    leaving = _on_leaving_nodes(endpoint)
    for revision in revisions:
        alive = list(revision.replicas.alive().exclude(state__in=["draining", "stopping"]))
        requested = desired_replicas(endpoint, revision)
        staying = [replica for replica in alive if replica.pk not in leaving]
        if len(staying) < requested:
            _start_missing(endpoint, revision, requested - len(staying), timestamp)
        ready = [replica for replica in staying if replica.status == ReplicaState.READY]
        if not requested:
            surplus = alive
        elif len(ready) >= requested:  # none is released before a substitute is ready
            kept = {
                replica.pk for replica in sorted(ready, key=lambda replica: replica.pk)[:requested]
            }
            surplus = [replica for replica in alive if replica.pk not in kept]
        else:
            surplus = []
        for replica in surplus:
            release_replica(endpoint, replica, "No longer needed.", timestamp)
    _finish_draining(endpoint, timestamp)


def _on_leaving_nodes(endpoint: Endpoint) -> set[str]:
    """Return the replicas on nodes that are being drained."""
    leases = Lease.objects.open().filter(
        node__state=NodeState.DRAINING,
        workload__in=Replica.objects.alive().filter(endpoint=endpoint).values("workload"),
    )
    ids = leases.values_list("workload_id", flat=True)
    return set(Replica.objects.filter(workload__in=list(ids)).values_list("pk", flat=True))


def _start_missing(endpoint: Endpoint, revision: Revision, count: int, timestamp: datetime) -> None:
    if revision.next_start_at is not None and revision.next_start_at > timestamp:
        return
    # A revision that keeps failing is tried with one replica at a time.
    for _ in range(1 if revision.failures else count):
        try:
            _start(endpoint, revision)
        except SlipwayError as error:
            _cannot_start(endpoint, revision, error, timestamp)
            return


@transaction.atomic
def _start(endpoint: Endpoint, revision: Revision) -> None:
    _require_permitted_pool(endpoint)
    workload = submit_workload(
        project=endpoint.project,
        by=revision.made_by,
        spec=WorkloadRequest(
            kind=KIND,
            name=f"{endpoint.name}-{revision.number}",
            tier=endpoint.tier,
            pool=endpoint.pool,
            spec=spec_from(backend=DEFAULT_BACKEND, argv=_ARGV),
            environment=_environment(endpoint, revision),
        ),
    )
    Replica.objects.create(
        endpoint=endpoint,
        revision=revision,
        workload=workload,
        secret=cipher().encrypt(new_replica_secret().encode()),
    )


def _require_permitted_pool(endpoint: Endpoint) -> None:
    """Raise Conflict if an administrator has limited the pool to other projects meanwhile.

    In a closed pool a replica waits, as all work there.
    """
    pool = endpoint.pool
    if pool is None or pool.is_for_all:
        return
    if not pool.projects.filter(pk=endpoint.project_id).exists():
        raise Conflict(
            f"Pool {pool.name} is not for project {endpoint.project.slug} any more.",
            code="no_such_pool",
            next_step="Ask an administrator to allow it, or create another endpoint.",
        )


def endpoint_of(workload_name: str) -> str:
    """Return the name of the endpoint that the workload of a replica was named after."""
    return workload_name.rpartition("-")[0]


def _environment(endpoint: Endpoint, revision: Revision) -> str:
    """Return the digest of the environment of a revision's model, or "" for the default one."""
    served = ServedModel.model_validate(revision.served)
    if not served.requirements:
        return ""
    if served.conda:
        packages = CondaEnvironment.from_text(served.conda)
        source = CondaSource(packages, served.requirements)
        return use_conda(project=endpoint.project, by=revision.made_by, source=source).digest
    made = use_environment(
        project=endpoint.project,
        by=revision.made_by,
        requirements=served.requirements,
        python=served.python or None,
        has_archives=True,
    )
    return made.digest


def _cannot_start(
    endpoint: Endpoint, revision: Revision, error: SlipwayError, timestamp: datetime
) -> None:
    message = f"{error.message} {error.next_step or ''}".strip()
    if revision.status == RevisionState.PREPARING:
        move_revision(endpoint, revision, RevisionState.FAILED, reason=message)
        add_event(
            endpoint, "revision_failed", f"{_revision_label(revision)} cannot start: {message}"
        )
        return
    _count_failure(revision, timestamp)
    add_event(endpoint, "replica_failed", f"A replica of {revision} cannot start: {message}")


def _revision_label(revision: Revision) -> str:
    return f"Revision {revision.number}"


def release_replica(endpoint: Endpoint, replica: Replica, why: str, timestamp: datetime) -> None:
    """Release a replica: stop it at once before it is ready, and drain it afterwards."""
    if replica.status == ReplicaState.READY:
        move_replica(endpoint, replica, ReplicaState.DRAINING, reason=why, draining_since=timestamp)
    elif replica.is_pending and move_replica(endpoint, replica, ReplicaState.STOPPING, reason=why):
        _stop(replica, why)


def _finish_draining(endpoint: Endpoint, timestamp: datetime) -> None:
    draining = Replica.objects.filter(endpoint=endpoint, state=ReplicaState.DRAINING)
    for replica in draining.select_related("workload"):
        if is_drained(replica, timestamp) and move_replica(
            endpoint, replica, ReplicaState.STOPPING
        ):
            _stop(replica, replica.reason)


def is_drained(replica: Replica, timestamp: datetime) -> bool:
    """Return whether no gateway routes to the replica, or waits for a response from it.

    Also True for a replica that has been draining for 90 seconds.
    """
    since = replica.draining_since
    if since is None or timestamp - since > _DRAIN_AT_MOST:
        return True
    if timestamp - since < _DRAIN_AT_LEAST:
        return False
    heard = GatewayProcess.objects.filter(seen_at__gt=timestamp - GATEWAY_SILENT)
    for process in heard:
        if process.snapshot_version < (replica.dropped_version or 0):
            return False
        if process.last.get("links", {}).get(replica.pk):
            return False
    return True


def _stop(replica: Replica, why: str) -> None:
    if replica.workload is not None:
        stop_workload(workload=replica.workload, message=why or "Stopped.")
