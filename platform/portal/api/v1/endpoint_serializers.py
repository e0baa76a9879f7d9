"""Serializers of endpoints."""

from collections.abc import Mapping

from django.conf import settings

from portal.endpoints.incidents import recent_incidents
from portal.endpoints.models import (
    Endpoint,
    EndpointEvent,
    EndpointKey,
    Replica,
    Rollout,
    ServingIncident,
)
from portal.endpoints.plans import step_at
from portal.endpoints.services.keys import NewKey
from portal.endpoints.services.queries import EndpointStatus, endpoint_status, pending_reason
from portal.endpoints.services.traffic import Minute
from portal.workloads.explanations import Explainer
from slipway.schemas.endpoints import (
    EndpointEventOut,
    EndpointKeyCreated,
    EndpointKeyOut,
    EndpointOut,
    IncidentOut,
    LimitsIn,
    PlanKind,
    ReplicaOut,
    RequestRate,
    RevisionOut,
    RollbackRules,
    RolloutOut,
    TrafficPoint,
)

_MOST_INCIDENTS = 20


def url_of(endpoint: Endpoint) -> str:
    """Return the URL where clients send requests."""
    return f"{settings.SLIPWAY_GATEWAY_URL}/v1/{endpoint.name}"


def _revisions_out(status: EndpointStatus) -> list[RevisionOut]:
    return [
        RevisionOut(
            number=revision.number,
            model=revision.model,
            version=revision.model_version,
            environment_version=(
                revision.environment_version and revision.environment_version.reference
            ),
            state=status.state_of(revision),
            reason=revision.reason,
            weight=revision.weight,
            replicas_ready=status.ready[revision.pk],
            desired_replicas=status.desired_replicas(revision),
            answered=revision.answered,
            failed=revision.failed,
            answered_as_standby=revision.fallback,
            captured=revision.captured,
            uncaptured=revision.uncaptured,
            mirrored=revision.mirrored,
            unmirrored=revision.unmirrored,
            differed=revision.differed,
            made_by=revision.made_by.email,
            created_at=revision.created_at,
            ready_at=revision.ready_at,
        )
        for revision in status.revisions
    ]


def rollout_out(rollout: Rollout) -> RolloutOut:
    """Serialize a rollout."""
    until = None
    if rollout.step_since is not None and rollout.ended_at is None:
        until = rollout.step_since + step_at(rollout.steps, rollout.step).bake
    return RolloutOut(
        id=rollout.pk,
        revision=rollout.revision.number,
        previous=rollout.previous.number if rollout.previous else None,
        plan=PlanKind(rollout.plan),
        percents=[step["percent"] for step in rollout.steps],
        state=rollout.state,
        step=rollout.step + 1,
        step_since=rollout.step_since,
        next_step_at=until,
        reason=rollout.reason,
        made_by=rollout.made_by.email,
        created_at=rollout.created_at,
        ended_at=rollout.ended_at,
    )


def endpoint_out(endpoint: Endpoint) -> EndpointOut:
    """Serialize an endpoint of `EndpointQuerySet.of_project`."""
    status = endpoint_status(endpoint)
    recent = recent_incidents(endpoint)
    incidents = list(recent[: _MOST_INCIDENTS + 1])
    more = len(incidents) > _MOST_INCIDENTS
    return EndpointOut(
        id=endpoint.pk,
        name=endpoint.name,
        project=endpoint.project.slug,
        state=endpoint.state,
        reason=endpoint.reason,
        url=url_of(endpoint),
        tier=endpoint.tier.slug,
        pool=endpoint.pool and endpoint.pool.name,
        min_replicas=endpoint.min_replicas,
        max_replicas=endpoint.max_replicas,
        desired_replicas=sum(status.desired_replicas(revision) for revision in status.revisions),
        replicas_ready=sum(status.ready.values()),
        missing_replicas_reason=endpoint.missing_replicas_reason,
        target_concurrency=endpoint.target_concurrency,
        target_queue_ms=endpoint.target_queue_ms,
        warm_minutes=endpoint.warm_minutes,
        fallback=endpoint.fallback,
        captured=status.captured,
        uncaptured=status.uncaptured,
        incidents=[_incident_out(incident) for incident in incidents[:_MOST_INCIDENTS]],
        incidents_left_out=recent.count() - _MOST_INCIDENTS if more else 0,
        nano_usd_per_hour=status.nano_usd_per_hour,
        capture=endpoint.capture,
        limits=LimitsIn.model_validate(endpoint.limits),
        rules=RollbackRules.model_validate(endpoint.rules),
        revisions=_revisions_out(status),
        revisions_left_out=status.revisions_left_out,
        rollout=rollout_out(status.rollout) if status.rollout else None,
        made_by=endpoint.made_by.email,
        created_at=endpoint.created_at,
    )


def _incident_out(incident: ServingIncident) -> IncidentOut:
    return IncidentOut(
        kind="fallback" if incident.kind == "fallback" else "uncaptured",
        message=incident.event.message,
        revision=incident.revision.number,
        predictions=incident.predictions,
        began_at=incident.began_at,
        last_at=incident.last_at,
        ended_at=incident.ended_at,
    )


def endpoint_event_out(event: EndpointEvent) -> EndpointEventOut:
    return EndpointEventOut(at=event.created_at, kind=event.kind, message=event.message)


def replica_out(
    replica: Replica,
    nodes: Mapping[str, str],
    explainer: Explainer,
    unreachable: Mapping[str, str],
) -> ReplicaOut:
    """Serialize a replica. `nodes` names the node of each running workload.

    `unreachable` has the reason for each replica in a pool that no gateway reaches.
    """
    problem = unreachable.get(replica.pk, "")
    return ReplicaOut(
        id=replica.pk,
        revision=replica.revision.number,
        workload=replica.workload_id,
        state="unreachable" if problem else replica.state,
        reason=problem or replica.reason or pending_reason(replica, explainer),
        node=nodes.get(replica.workload_id or ""),
        load_ms=replica.load_ms,
        warm_ms=replica.warm_ms,
        forward_ms=replica.forward_ms,
        created_at=replica.created_at,
        ready_at=replica.ready_at,
    )


def _rate_out(key: EndpointKey) -> RequestRate | None:
    if key.rate_per_s is None:
        return None
    return RequestRate(per_s=key.rate_per_s, burst=key.burst or 1)


def endpoint_key_out(key: EndpointKey) -> EndpointKeyOut:
    return EndpointKeyOut(
        id=key.pk,
        name=key.name,
        prefix=key.prefix,
        scopes=key.scopes,
        rate=_rate_out(key),
        made_by=key.made_by.email,
        created_at=key.created_at,
        expires_at=key.expires_at,
        revoked_at=key.revoked_at,
    )


def created_key_out(made: NewKey) -> EndpointKeyCreated:
    """Serialize a new key with its text."""
    return EndpointKeyCreated(**endpoint_key_out(made.key).model_dump(), key=made.secret)


def traffic_out(minute: Minute) -> TrafficPoint:
    return TrafficPoint(
        at=minute.at,
        rps=minute.rps,
        p50_ms=minute.percentile_ms(50),
        p95_ms=minute.percentile_ms(95),
        p99_ms=minute.percentile_ms(99),
        answered=minute.answered,
        refused=minute.refused,
        failed=minute.failed,
        rejected=minute.rejected,
        unauthorized=minute.unauthorized,
        fallback=minute.fallback,
        captured=minute.captured,
        uncaptured=minute.uncaptured,
    )
