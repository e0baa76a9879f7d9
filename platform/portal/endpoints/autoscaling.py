"""Moving the number of replicas with the load that gateways report."""

from datetime import datetime

from portal.endpoints.lifecycle import EndpointState
from portal.endpoints.models import Endpoint, GatewayProcess
from portal.endpoints.moves import add_event
from portal.endpoints.replicas import GATEWAY_SILENT
from portal.endpoints.scaling import Bounds, Load, step_of


def load_of(endpoint: Endpoint, moment: datetime) -> Load | None:
    """Return what gateways that report say of the endpoint; None when none does."""
    heard = GatewayProcess.objects.filter(seen_at__gt=moment - GATEWAY_SILENT)
    found = [process.last.get("recent", {}).get(endpoint.pk) for process in heard]
    recent = [one for one in found if one is not None]
    if not recent:
        return None
    answered = sum(one["answered"] for one in recent)
    waited = sum(one["queue_ms_sum"] for one in recent)
    return Load(
        in_flight=sum(one["in_flight"] for one in recent),
        queue_ms=waited / answered if answered else None,
    )


def scale(endpoint: Endpoint, moment: datetime) -> None:
    """Want more or fewer replicas, and say why in the story."""
    if endpoint.status != EndpointState.SERVING:
        return
    load = load_of(endpoint, moment)
    if load is None:
        return
    bounds = Bounds(
        endpoint.min_replicas,
        endpoint.max_replicas,
        endpoint.target_concurrency,
        endpoint.target_queue_ms,
    )
    before = endpoint.wanted
    step = step_of(before, load, bounds, calm_since=endpoint.calm_since, moment=moment)
    if (step.wanted, step.calm_since) == (before, endpoint.calm_since):
        return
    here = Endpoint.objects.filter(pk=endpoint.pk, wanted=before)
    changes = {"scaled_at": moment} if step.wanted != before else {}
    if here.update(wanted=step.wanted, calm_since=step.calm_since, **changes):
        endpoint.wanted, endpoint.calm_since = step.wanted, step.calm_since
        if step.wanted != before:
            message = f"From {before} to {step.wanted} replicas: {step.why}"
            add_event(endpoint, "scaled", message)
