"""Ingests reports of replicas and gateways. Repeated and late reports change nothing."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import F

from portal.core import clock
from portal.core.enqueue import enqueue_on_commit
from portal.core.errors import InvalidInput, NotFound
from portal.endpoints.incidents import note_incidents
from portal.endpoints.lifecycle import ReplicaState, RevisionState
from portal.endpoints.models import (
    AnsweredDay,
    Endpoint,
    Gateway,
    GatewayProcess,
    Replica,
    Revision,
    TrafficMinute,
)
from portal.endpoints.ports import ServedModel, models
from portal.endpoints.services.traffic_hours import summed_counts
from portal.endpoints.tasks import reconcile_endpoint
from portal.endpoints.transitions import (
    add_event,
    locked,
    move_replica,
    move_revision,
    raise_snapshot_version,
)
from portal.workloads.services.relay import is_relay_address, relay_target
from slipway.schemas.serving import (
    BatchingMode,
    BatchingReport,
    EndpointCounters,
    GatewayReport,
    ReplicaReport,
    RevisionCounters,
)
from slipway.schemas.serving import ReplicaState as Said
from slipway.schemas.truncation import shorten

_MOVES = {
    Said.LOADING: ReplicaState.LOADING,
    Said.WARMING: ReplicaState.WARMING,
    Said.READY: ReplicaState.READY,
}
_OF_MINUTES = ("answered", "refused", "failed", "fallback", "captured", "uncaptured")
_TOTALS = (*_OF_MINUTES, "mirrored", "unmirrored", "differed", "shadow_failed")


def accept_replica_report(*, replica: Replica, report: ReplicaReport) -> None:
    """Update the state of a replica. Gateways get it in their snapshot once it is ready."""
    timestamp = clock.now()
    with transaction.atomic():
        endpoint = locked(replica.endpoint_id)
        current = (
            Replica.objects.select_related("revision", "workload").filter(pk=replica.pk).first()
        )
        if endpoint is None or current is None:
            return
        Replica.objects.filter(pk=replica.pk).update(reported_at=timestamp)
        if report.state == Said.FAILED:
            _failed(endpoint, current, report.reason or "It could not start.")
        elif report.state in _MOVES:
            _further(endpoint, current, report, timestamp)
        enqueue_on_commit(reconcile_endpoint, endpoint.pk)


def _further(
    endpoint: Endpoint, replica: Replica, report: ReplicaReport, timestamp: datetime
) -> None:
    target = _MOVES[report.state]
    changes: dict[str, Any] = {"reason": report.reason}
    if target == ReplicaState.READY:
        address = _address_of(replica, report)
        if not address:
            return
        changes |= {
            "address": address,
            "load_ms": report.load_ms,
            "warm_ms": report.warm_ms,
            "forward_ms": report.forward_ms,
            "ready_at": timestamp,
        }
        if replica.status == ReplicaState.READY and replica.address != address:
            _update_restarted_replica(endpoint, replica, changes)
            return
    if not move_replica(endpoint, replica, target, **changes):
        return
    if report.signature is not None and replica.revision.signature is None:
        signature = report.signature.model_dump(mode="json")
        Revision.objects.filter(pk=replica.revision_id).update(signature=signature)
    if target == ReplicaState.READY:
        message = f"A replica of {replica.revision} is ready."
        if report.batching is not None:
            message += f" {_batching_sentence(report.batching)}"
            models().note_batching(
                project_id=endpoint.project_id,
                served=ServedModel.model_validate(replica.revision.served),
                report=report.batching,
            )
        add_event(endpoint, "replica_ready", shorten(message, 2000))


def _address_of(replica: Replica, report: ReplicaReport) -> str:
    """Return the address at which gateways reach a replica.

    The portal knows that of one in a pool, and no replica may report that of another one.
    """
    target = relay_target(replica.workload) if replica.workload is not None else None
    if target is not None:
        return target.address
    address = report.address or ""
    if is_relay_address(address) or address.startswith("unix:"):
        raise InvalidInput(
            f"{address} is not an address of this replica.",
            field="address",
            next_step="Report the host and the port on which the replica listens.",
        )
    return address


def _batching_sentence(batching: BatchingReport) -> str:
    if batching.mode == BatchingMode.ROWS:
        return f"Batching is on. {batching.reason}"
    if batching.mode == BatchingMode.OFF:
        return f"Batching is off: one request at a time. {batching.reason}"
    return f"Batching is off. {batching.reason}"


def _update_restarted_replica(
    endpoint: Endpoint, replica: Replica, changes: dict[str, Any]
) -> None:
    """Update the address of a ready replica whose workload was started a second time.

    That may happen between two polls of its workload, as when all of Slipway restarts. No report of
    the first start can arrive later: its token ended with it.
    """
    ready = Replica.objects.filter(pk=replica.pk, state=ReplicaState.READY)
    if ready.update(**changes):
        raise_snapshot_version(endpoint)
        add_event(endpoint, "replica_ready", f"A replica of {replica.revision} is ready again.")


def _failed(endpoint: Endpoint, replica: Replica, reason: str) -> None:
    """Fail a replica, and its revision while that is preparing: the next one would fail too."""
    if not move_replica(endpoint, replica, ReplicaState.FAILED, reason=reason):
        return
    add_event(endpoint, "replica_failed", f"A replica of {replica.revision} failed: {reason}")
    if replica.revision.status == RevisionState.PREPARING:
        move_revision(endpoint, replica.revision, RevisionState.FAILED, reason=reason)


def read_model_file(*, replica: Replica, number: int) -> tuple[Iterator[bytes], int]:
    """Return the bytes of a file of the replica's model, and its size. Raises NotFound."""
    served = ServedModel.model_validate(replica.revision.served)
    if not 0 <= number < len(served.files) or not served.files[number].place:
        raise NotFound
    file = served.files[number]
    return models().read(project_id=replica.endpoint.project_id, file=file), file.size_bytes


def accept_gateway_report(*, gateway: Gateway, report: GatewayReport) -> None:
    """Add the increase of the counters since the last report of the same process."""
    timestamp = clock.now()
    with transaction.atomic():
        process, is_new = GatewayProcess.objects.select_for_update(no_key=True).get_or_create(
            gateway=gateway,
            boot_id=report.boot_id,
            defaults={
                "sequence": report.sequence,
                "snapshot_version": report.snapshot_version,
                "seen_at": timestamp,
            },
        )
        if not is_new and report.sequence <= process.sequence:
            return
        # Lock order: endpoint, then its revisions, as when traffic moves. Any other order could
        # deadlock.
        endpoint_ids = [counters.endpoint_id for counters in report.endpoints]
        locked = Endpoint.objects.select_for_update(of=("self",), no_key=True).filter(
            pk__in=endpoint_ids
        )
        known = set(locked.order_by("pk").values_list("pk", flat=True))
        items = sorted(
            (counters for counters in report.endpoints if counters.endpoint_id in known),
            key=lambda counters: counters.endpoint_id,
        )
        since = timestamp if is_new else process.seen_at
        process.last = _add_counters(process.last, items, report, timestamp, since)
        process.sequence = report.sequence
        process.snapshot_version = report.snapshot_version
        process.seen_at = timestamp
        process.save()
        Gateway.objects.filter(pk=gateway.pk).update(seen_at=timestamp)


def _add_counters(
    last: dict[str, Any],
    endpoints: Sequence[EndpointCounters],
    report: GatewayReport,
    timestamp: datetime,
    since: datetime,
) -> dict[str, Any]:
    """Add the increase of all counters. Returns the values to compare the next report with."""
    before = last.get("counters", {})
    kept: dict[str, Any] = {}
    recent: dict[str, Any] = {}
    minute = timestamp.replace(second=0, microsecond=0)
    for counters in endpoints:
        own = _own(counters)
        kept[counters.endpoint_id] = own
        _add_rejected(counters.endpoint_id, minute, _difference(own, before, counters))
        load: defaultdict[str, float] = defaultdict(float)
        revisions = Revision.objects.filter(endpoint=counters.endpoint_id).defer("served")
        known = {row.pk: row for row in revisions.select_related("endpoint")}
        for revision in counters.revisions:
            if revision.revision_id not in known:
                continue
            details = _facts(revision)
            kept[revision.revision_id] = details
            grown = _increase(details, before.get(revision.revision_id, {}))
            _add_traffic(counters.endpoint_id, revision.revision_id, minute, grown)
            note_incidents(
                revision=known[revision.revision_id],
                fallback=grown["fallback"],
                uncaptured=grown["uncaptured"],
                reason=report.capture.reason,
                since=since,
            )
            load["in_flight"] += revision.in_flight
            load["answered"] += grown["answered"]
            load["queue_ms_sum"] += grown["queue_ms_sum"]
        recent[counters.endpoint_id] = {
            "in_flight": int(load["in_flight"]),
            "answered": load["answered"],
            "queue_ms_sum": load["queue_ms_sum"],
        }
    # After all revisions and in a fixed order, so that two reports cannot deadlock.
    for endpoint_id in sorted(recent):
        if recent[endpoint_id]["answered"]:
            AnsweredDay.objects.add(endpoint_id, minute, int(recent[endpoint_id]["answered"]))
    return {
        "counters": kept,
        "recent": recent,
        "links": {link.replica_id: link.in_flight for link in report.replicas if link.in_flight},
        "reached": [link.replica_id for link in report.replicas if link.state == "ready"],
        "unreachable": {
            link.replica_id: link.reason for link in report.replicas if link.state == "connecting"
        },
        "capture": report.capture.model_dump(mode="json"),
    }


def _own(counters: EndpointCounters) -> dict[str, int]:
    return {
        "unauthorized": counters.unauthorized,
        "rejected": counters.rate_limited
        + counters.too_large
        + counters.shed
        + counters.unavailable
        + counters.timed_out,
    }


def _difference(
    own: dict[str, int], before: dict[str, Any], counters: EndpointCounters
) -> dict[str, int]:
    earlier = before.get(counters.endpoint_id, {})
    return {name: max(0, value - earlier.get(name, 0)) for name, value in own.items()}


def _facts(revision: RevisionCounters) -> dict[str, Any]:
    return {
        **{name: getattr(revision, name) for name in _TOTALS},
        "queue_ms_sum": revision.queue_ms_sum,
        "sum_ms": revision.latency.sum_ms,
        "counts": revision.latency.counts,
    }


def _increase(now: dict[str, Any], then: dict[str, Any]) -> dict[str, Any]:
    counts = then.get("counts") or [0] * len(now["counts"])
    return {
        **{
            name: max(0, now[name] - then.get(name, 0))
            for name in (*_TOTALS, "queue_ms_sum", "sum_ms")
        },
        "counts": [max(0, new - old) for new, old in zip(now["counts"], counts, strict=False)],
    }


def _add_traffic(
    endpoint_id: str, revision_id: str, minute: datetime, grown: dict[str, Any]
) -> None:
    if not any(grown[name] for name in _TOTALS):
        return
    revision = Revision.objects.select_for_update(no_key=True).get(pk=revision_id)
    Revision.objects.filter(pk=revision_id).update(
        counts=summed_counts(revision.counts, grown["counts"]),
        **{name: F(name) + grown[name] for name in _TOTALS},
    )
    row = _minute(endpoint_id, revision_id, minute)
    for name in _OF_MINUTES:
        setattr(row, name, getattr(row, name) + grown[name])
    row.sum_ms += grown["sum_ms"]
    row.queue_ms += grown["queue_ms_sum"]
    row.counts = summed_counts(row.counts, grown["counts"])
    row.save()


def _add_rejected(endpoint_id: str, minute: datetime, grown: dict[str, int]) -> None:
    if any(grown.values()):
        row = _minute(endpoint_id, "", minute)
        row.rejected += grown["rejected"]
        row.unauthorized += grown["unauthorized"]
        row.save()


def _minute(endpoint_id: str, revision_id: str, minute: datetime) -> TrafficMinute:
    """Return the row of a minute, locked until the transaction ends."""
    row, _ = TrafficMinute.objects.select_for_update(no_key=True).get_or_create(
        endpoint_id=endpoint_id, revision_id=revision_id, at=minute
    )
    return row
