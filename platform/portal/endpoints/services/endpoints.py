"""Creating, changing, pausing and deleting endpoints."""

from typing import Any

from django.db import IntegrityError, transaction

from portal.accounts import audit
from portal.accounts.models import Project, User
from portal.compute.models import EnvironmentVersion
from portal.compute.services.tiers import offered_tier
from portal.core.enqueue import enqueue_on_commit
from portal.core.errors import Conflict, InvalidInput
from portal.endpoints.environments import chosen_version
from portal.endpoints.lifecycle import EndpointState
from portal.endpoints.models import Endpoint, Revision
from portal.endpoints.pools import pool_for_replicas, require_open_pool
from portal.endpoints.ports import ServedModel, models
from portal.endpoints.services.promotions import begin_rollout, new_revision, require_comparable
from portal.endpoints.tasks import reconcile_endpoint
from portal.endpoints.transitions import add_event, locked, move_endpoint, raise_snapshot_version
from portal.workloads.feasibility import refuse_impossible
from slipway.schemas.backends import DEFAULT_BACKEND
from slipway.schemas.endpoints import EndpointChange, EndpointIn, Plan


def create_endpoint(*, project: Project, by: User, spec: EndpointIn) -> Endpoint:
    """Create an endpoint that serves a model version. Call it outside a transaction.

    Raises InvalidInput for one that can never run, Conflict for a name that is taken, or for a
    pool that this installation cannot reach.
    """
    require_comparable(spec.plan, None)
    tier = offered_tier(spec.tier, is_replica=True)
    most = _max_replicas(spec.min_replicas, spec.max_replicas)
    pool = pool_for_replicas(project, by, spec.pool)
    refuse_impossible(project=project, tier=tier, tasks=1, backend=DEFAULT_BACKEND, pool=pool)
    _require_free(spec.name)
    environment = chosen_version(project, spec.environment)
    served = models().find(project_id=project.pk, model=spec.model, version=spec.version)
    try:
        with transaction.atomic():
            endpoint = Endpoint.objects.create(
                project=project,
                name=spec.name,
                made_by=by,
                tier=tier,
                pool=pool,
                min_replicas=spec.min_replicas,
                max_replicas=most,
                desired_replicas=spec.min_replicas,
                target_concurrency=spec.target_concurrency,
                target_queue_ms=spec.target_queue_ms,
                warm_minutes=spec.warm_minutes,
                fallback=spec.fallback,
                limits=spec.limits.model_dump(),
                rules=spec.rules.model_dump(),
                capture=spec.capture,
                reason="Its first replica is starting.",
            )
            _start_first_rollout(endpoint, by, served, environment, spec.plan)
    except IntegrityError as error:
        _require_free(spec.name)
        raise Conflict(
            "The project, the tier or the model of the endpoint has just changed.",
            next_step="Reload, check your choices, and try again.",
        ) from error
    return endpoint


def _start_first_rollout(
    endpoint: Endpoint,
    by: User,
    served: ServedModel,
    environment: EnvironmentVersion | None,
    plan: Plan,
) -> Revision:
    add_event(endpoint, "created", f"Created by {by.display_name}.")
    created = {"model": served.model, "version": served.version}
    if endpoint.pool is not None:
        created["pool"] = endpoint.pool.name
    _audit("endpoint.create", endpoint, created)
    revision = new_revision(endpoint, by, served, environment)
    begin_rollout(endpoint, by, revision, previous=None, plan=plan)
    return revision


def change_endpoint(*, endpoint: Endpoint, by: User, change: EndpointChange) -> Endpoint:
    """Change the settings of an endpoint. Omitted fields stay, also within limits and rules."""
    with transaction.atomic():
        current = _present(endpoint)
        fields = _changed(current, change)
        least = fields.get("min_replicas", current.min_replicas)
        most = fields.get("max_replicas", current.max_replicas)
        fields["max_replicas"] = _max_replicas(least, most)
        before = {name: getattr(current, name) for name in fields}
        old, new = audit.difference(before, fields)
        if not new:
            return current
        requested = min(max(current.desired_replicas, least), most)
        Endpoint.objects.filter(pk=current.pk).update(**fields, desired_replicas=requested)
        add_event(
            current,
            "changed",
            f"{by.display_name} changed {', '.join(sorted(new)).replace('_', ' ')}.",
        )
        _audit("endpoint.change", current, new, before=old)
        raise_snapshot_version(current)
        enqueue_on_commit(reconcile_endpoint, current.pk)
    return Endpoint.objects.of_project(endpoint.project).get(pk=endpoint.pk)


def _changed(current: Endpoint, change: EndpointChange) -> dict[str, Any]:
    """Return the changed columns. Within limits and rules a null removes a value."""
    given = change.model_dump(exclude_unset=True)
    fields = {name: value for name, value in given.items() if value is not None}
    for name in ("limits", "rules"):
        if name in fields:
            fields[name] = getattr(current, name) | fields[name]
    return fields


def pause_endpoint(*, endpoint: Endpoint, by: User, reason: str = "") -> Endpoint:
    """Stop serving and release all replicas until it is resumed. Idempotent."""
    with transaction.atomic():
        current = _present(endpoint)
        if current.status == EndpointState.PAUSED:
            return current
        message = f"Paused by {by.display_name}." + (f" {reason}" if reason else "")
        calm = {"capped_needs": 0, "capped_why": "", "capped_eased_at": None}
        if not move_endpoint(
            current, EndpointState.PAUSED, message=message, reason=message, **calm
        ):
            raise _state_conflict(current, "paused")
        _audit("endpoint.pause", current, {"reason": reason})
        enqueue_on_commit(reconcile_endpoint, current.pk)
    return current


def resume_endpoint(*, endpoint: Endpoint, by: User) -> Endpoint:
    """Serve again, as before the pause. Idempotent."""
    with transaction.atomic():
        current = _present(endpoint)
        if current.status == EndpointState.SERVING:
            return current
        require_open_pool(current)
        message = f"Resumed by {by.display_name}."
        if current.status != EndpointState.PAUSED or not move_endpoint(
            current, EndpointState.SERVING, message=message, reason=""
        ):
            raise _state_conflict(current, "resumed")
        current.revisions.filter(failures__gt=0).update(failures=0, next_start_at=None)
        _audit("endpoint.resume", current, {})
        enqueue_on_commit(reconcile_endpoint, current.pk)
    return current


def delete_endpoint(*, endpoint: Endpoint, by: User) -> Endpoint:
    """Stop its replicas and release its name. Idempotent."""
    with transaction.atomic():
        current = _present(endpoint)
        message = f"Deleted by {by.display_name}."
        if move_endpoint(current, EndpointState.DELETING, message=message, reason=message):
            _audit("endpoint.delete", current, {})
            enqueue_on_commit(reconcile_endpoint, current.pk)
    return current


def _present(endpoint: Endpoint) -> Endpoint:
    endpoint_row = locked(endpoint.pk)
    assert endpoint_row is not None  # noqa: S101  (endpoints are never removed from the database)
    return endpoint_row


def _audit(
    verb: str, endpoint: Endpoint, after: dict[str, Any], before: dict[str, Any] | None = None
) -> None:
    audit.record(
        verb,
        kind="endpoint",
        target=endpoint,
        label=endpoint.name,
        project=endpoint.project,
        before=before,
        after=after,
    )


def _state_conflict(endpoint: Endpoint, verb: str) -> Conflict:
    return Conflict(
        f"The endpoint is {endpoint.state}, so it cannot be {verb}.",
        code="endpoint_state",
        next_step="Wait until it serves, or promote a version that works.",
    )


def _require_free(name: str) -> None:
    if Endpoint.objects.present().filter(name=name).exists():
        raise Conflict(
            f"The name {name} is already in use in this installation.",
            code="endpoint_name_taken",
            field="name",
            next_step="Choose another name.",
        )


def _max_replicas(least: int, most: int | None) -> int:
    result = least if most is None else most
    if result < least:
        raise InvalidInput(
            f"max_replicas is {result}, which is less than min_replicas ({least}).",
            code="max_below_min",
            field="max_replicas",
            next_step="Raise it, or lower min_replicas.",
        )
    return result
