"""Scales the number of replicas with the load that gateways report."""

from datetime import datetime

from portal.accounts.signals import send_accounts_changed
from portal.endpoints.lifecycle import COMING, EndpointState
from portal.endpoints.models import Endpoint, GatewayProcess, Replica
from portal.endpoints.replica_count import Bounds, Load, cap_of, step_of
from portal.endpoints.replicas import GATEWAY_SILENT
from portal.endpoints.transitions import add_event


def load_of(endpoint: Endpoint, timestamp: datetime) -> Load | None:
    """Return the load of the endpoint as active gateways report it, or None if none reports."""
    heard = GatewayProcess.objects.filter(seen_at__gt=timestamp - GATEWAY_SILENT)
    recents = [process.last.get("recent", {}).get(endpoint.pk) for process in heard]
    recent = [item for item in recents if item is not None]
    if not recent:
        return None
    answered = sum(item["answered"] for item in recent)
    waited = sum(item["queue_ms_sum"] for item in recent)
    coming = Replica.objects.alive().filter(endpoint=endpoint, state__in=COMING)
    return Load(
        in_flight=sum(item["in_flight"] for item in recent),
        queue_ms=waited / answered if answered else None,
        is_growing=coming.filter(revision__weight__gt=0).exists(),
    )


def scale(endpoint: Endpoint, timestamp: datetime) -> None:
    """Change the desired number of replicas, and add the reason to the events."""
    if endpoint.status != EndpointState.SERVING:
        return
    load = load_of(endpoint, timestamp)
    if load is None:
        return
    bounds = Bounds(
        endpoint.min_replicas,
        endpoint.max_replicas,
        endpoint.target_concurrency,
        endpoint.target_queue_ms,
    )
    _move_cap(endpoint, load, bounds, timestamp)
    before = endpoint.desired_replicas
    step = step_of(before, load, bounds, calm_since=endpoint.calm_since, timestamp=timestamp)
    if (step.desired, step.calm_since) == (before, endpoint.calm_since):
        return
    here = Endpoint.objects.filter(pk=endpoint.pk, desired_replicas=before)
    changes = {"scaled_at": timestamp} if step.desired != before else {}
    if here.update(desired_replicas=step.desired, calm_since=step.calm_since, **changes):
        endpoint.desired_replicas, endpoint.calm_since = step.desired, step.calm_since
        if step.desired != before:
            message = f"From {before} to {step.desired} replicas: {step.reason}"
            add_event(endpoint, "scaled", message)


def _move_cap(endpoint: Endpoint, load: Load, bounds: Bounds, timestamp: datetime) -> None:
    """Add an event when the load starts or stops needing more replicas than `max_replicas`."""
    before = endpoint.cap
    cap = cap_of(before, endpoint.desired_replicas, load, bounds, timestamp=timestamp)
    if cap == before:
        return
    here = Endpoint.objects.filter(pk=endpoint.pk, capped_needs=before.needs)
    if not here.update(capped_needs=cap.needs, capped_why=cap.why, capped_eased_at=cap.eased_at):
        return
    endpoint.cap = cap
    if cap.needs and not before.needs:
        add_event(endpoint, "capped", cap.sentence(bounds.most))
    elif before.needs and not cap.needs:
        message = f"The load needs no more than max_replicas ({bounds.most}) again."
        add_event(endpoint, "uncapped", message)
    elif cap.needs != before.needs:
        send_accounts_changed(endpoint.project_id, "endpoints")
