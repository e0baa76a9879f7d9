"""Snapshot of all endpoints for gateways, read from the database."""

import hashlib
import hmac
from collections import defaultdict
from collections.abc import Mapping, Sequence

from django.conf import settings

from portal.core import clock
from portal.endpoints.lifecycle import ROUTED, EndpointState, ReplicaState, RevisionState
from portal.endpoints.models import Endpoint, EndpointKey, Replica, Revision, ServingVersion
from portal.endpoints.ports import hidings
from portal.endpoints.replicas import cipher
from slipway.schemas.serving import (
    CaptureMode,
    EndpointLimits,
    EndpointRoute,
    Fallback,
    GatewaySnapshot,
    KeyRoute,
    KeyScope,
    Rate,
    ReplicaRoute,
    RevisionRoute,
    Shadow,
    Signature,
)

_WHY_NOT = {
    EndpointState.CREATING: "The endpoint is being created.",
    EndpointState.FAILED: "The endpoint has no revision that works.",
}


def snapshot() -> GatewaySnapshot:
    """Return the present snapshot.

    The version is read first, so the content may be newer than the version, never older.
    """
    version = ServingVersion.objects.current()
    shown = [EndpointState.CREATING, EndpointState.SERVING, EndpointState.PAUSED]
    endpoints = Endpoint.objects.filter(state__in=[*shown, EndpointState.FAILED])
    revisions = _revisions()
    replicas = _replicas()
    keys = _keys()
    shown_endpoints = list(endpoints.select_related("project").order_by("pk"))
    hidden = hidings().hidden_columns([endpoint.pk for endpoint in shown_endpoints])
    return GatewaySnapshot(
        version=version,
        endpoints=[
            _route(endpoint, revisions[endpoint.pk], replicas, keys[endpoint.pk]).model_copy(
                update=_hiding(endpoint, hidden.get(endpoint.pk))
            )
            for endpoint in shown_endpoints
        ],
    )


def _hiding(endpoint: Endpoint, hidden: Mapping[str, str] | None) -> dict[str, object]:
    """Return the hidden columns for gateways, with the hash key of the endpoint."""
    if not hidden:
        return {}
    secret = str(settings.SLIPWAY_SECRETS_KEY).encode()
    key = hmac.new(secret, f"hide {endpoint.pk}".encode(), hashlib.sha256).hexdigest()
    return {"hidden": dict(hidden), "hiding_key": key}


def _revisions() -> Mapping[str, list[Revision]]:
    revisions: defaultdict[str, list[Revision]] = defaultdict(list)
    routed = Revision.objects.filter(state__in=[state.value for state in ROUTED])
    for revision in routed.defer("served").order_by("number"):
        revisions[revision.endpoint_id].append(revision)
    return revisions


def _replicas() -> Mapping[str, list[ReplicaRoute]]:
    sealed = cipher()
    replicas: defaultdict[str, list[ReplicaRoute]] = defaultdict(list)
    for replica in Replica.objects.filter(state=ReplicaState.READY).order_by("pk"):
        replicas[replica.revision_id].append(
            ReplicaRoute(
                id=replica.pk,
                address=replica.address,
                secret=sealed.decrypt(bytes(replica.secret)).decode(),
            )
        )
    return replicas


def _keys() -> Mapping[str, list[KeyRoute]]:
    keys: defaultdict[str, list[KeyRoute]] = defaultdict(list)
    for key in EndpointKey.objects.usable(clock.now()).order_by("pk"):
        rate = None
        if key.rate_per_s is not None:
            rate = Rate(per_s=key.rate_per_s, burst=key.burst or 1)
        keys[key.endpoint_id].append(
            KeyRoute(
                id=key.pk,
                sha256=key.sha256,
                scopes=[KeyScope(scope) for scope in key.scopes],
                expires_unix_s=int(key.expires_at.timestamp()) if key.expires_at else None,
                rate=rate,
            )
        )
    return keys


def _route(
    endpoint: Endpoint,
    revisions: Sequence[Revision],
    replicas: Mapping[str, list[ReplicaRoute]],
    keys: list[KeyRoute],
) -> EndpointRoute:
    serves = endpoint.status == EndpointState.SERVING
    return EndpointRoute(
        id=endpoint.pk,
        name=endpoint.name,
        project=endpoint.project.slug,
        state="serving" if serves else "paused",
        reason="" if serves else _WHY_NOT.get(endpoint.status, endpoint.reason),
        revisions=[
            RevisionRoute(
                id=revision.pk,
                model=revision.model,
                model_version=revision.model_version,
                weight=revision.weight,
                is_standby=revision.status == RevisionState.STANDBY,
                replicas=replicas.get(revision.pk, []),
                signature=(
                    Signature.model_validate(revision.signature) if revision.signature else None
                ),
            )
            for revision in revisions
        ],
        shadow=next(
            (
                Shadow(revision_id=revision.pk, percent=revision.shadow_percent)
                for revision in revisions
                if revision.shadow_percent
            ),
            None,
        ),
        keys=keys,
        limits=EndpointLimits.model_validate(endpoint.limits),
        capture=CaptureMode(endpoint.capture),
        fallback=Fallback(endpoint.fallback),
    )
