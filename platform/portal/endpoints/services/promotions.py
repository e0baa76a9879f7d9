"""Promotes versions to an endpoint, and rolls back."""

from typing import Any

from django.db import transaction
from django.db.models import Max

from portal.accounts import audit
from portal.accounts.models import User
from portal.compute.models import EnvironmentVersion
from portal.core import clock
from portal.core.enqueue import enqueue_on_commit
from portal.core.errors import Conflict, InvalidInput
from portal.endpoints.environments import chosen_version, in_environment
from portal.endpoints.lifecycle import EndpointState, RevisionState, RolloutState
from portal.endpoints.models import Endpoint, Revision, Rollout
from portal.endpoints.plans import steps_of, stored
from portal.endpoints.pools import require_open_pool
from portal.endpoints.ports import ServedModel, models
from portal.endpoints.rollback import previous_warm_revision, serving_of, switch
from portal.endpoints.rollouts import roll_back_rollout
from portal.endpoints.tasks import reconcile_endpoint
from portal.endpoints.transitions import add_event, locked, move_endpoint, move_revision
from slipway.schemas.endpoints import Plan, PlanKind, Promote

_OPEN = (EndpointState.SERVING, EndpointState.CREATING, EndpointState.FAILED)


def new_revision(
    endpoint: Endpoint, by: User, served: ServedModel, version: EnvironmentVersion | None
) -> Revision:
    """Create the next revision of an endpoint. Call it with the endpoint locked."""
    last = endpoint.revisions.aggregate(last=Max("number"))["last"] or 0
    return Revision.objects.create(
        endpoint=endpoint,
        number=last + 1,
        made_by=by,
        model=served.model,
        model_version=served.version,
        served=in_environment(served, version).model_dump(mode="json"),
        environment_version=version,
        signature=served.signature,
    )


def begin_rollout(
    endpoint: Endpoint, by: User, revision: Revision, *, previous: Revision | None, plan: Plan
) -> Rollout:
    """Create a rollout. Call it with the endpoint locked and no rollout active."""
    rollout = Rollout.objects.create(
        endpoint=endpoint,
        revision=revision,
        previous=previous,
        made_by=by,
        plan=plan.kind,
        steps=stored(steps_of(plan)),
    )
    add_event(
        endpoint,
        "promoted",
        f"{by.display_name} promoted {revision.model} version {revision.model_version} "
        f"(revision {revision.number}, {plan.kind.replace('_', ' ')}).",
    )
    enqueue_on_commit(reconcile_endpoint, endpoint.pk)
    return rollout


def promote(*, endpoint: Endpoint, by: User, spec: Promote) -> Rollout:
    """Roll a version out to an endpoint by a plan. Call it outside a transaction.

    Raises InvalidInput for a version or an environment that does not exist and for a plan without a
    revision to compare with, Conflict while a rollout is active.
    """
    served = None if spec.revision is not None else _served(endpoint, spec)
    if served is None and spec.environment is not None:
        raise InvalidInput(
            "An earlier revision keeps the environment that it was created with.",
            field="environment",
            next_step="Leave it out, or promote a version of the model instead of a revision.",
        )
    environment = chosen_version(endpoint.project, spec.environment)
    require_open_pool(endpoint, author=by if served is not None else None)
    with transaction.atomic():
        current = _locked_for_change(endpoint)
        previous = serving_of(current)
        require_comparable(spec.plan, previous)
        if served is not None:
            revision = new_revision(current, by, served, environment)
        else:
            revision = _earlier(current, spec.revision or 0)
        if current.status == EndpointState.FAILED:
            move_endpoint(
                current, EndpointState.CREATING, message="A new revision is starting.", reason=""
            )
        rollout = begin_rollout(current, by, revision, previous=previous, plan=spec.plan)
        _audit("endpoint.promote", current, revision, {"plan": spec.plan.kind.value})
    return rollout


def require_comparable(plan: Plan, previous: Revision | None) -> None:
    """Raise InvalidInput for a canary or a shadow while no revision answers. It names `plan`."""
    if previous is not None or plan.kind == PlanKind.ALL_AT_ONCE:
        return
    raise InvalidInput(
        f"No revision is serving yet, so a {plan.kind} has nothing to share traffic with or to "
        "be compared with.",
        code="nothing_to_compare",
        field="plan",
        next_step="Promote it all_at_once; use canary and shadow for later versions.",
    )


def _served(endpoint: Endpoint, requested: Promote) -> ServedModel:
    model = requested.model
    if model is None:
        latest = endpoint.revisions.order_by("-number").first()
        if latest is None:
            raise InvalidInput("No model is given.", field="model", next_step="Choose a model.")
        model = latest.model
    return models().find(project_id=endpoint.project_id, model=model, version=requested.version)


def _earlier(endpoint: Endpoint, number: int) -> Revision:
    """Return an earlier revision. A retired one is prepared again."""
    revision = endpoint.revisions.filter(number=number).first()
    if revision is None or revision.status == RevisionState.FAILED:
        raise InvalidInput(
            f"The endpoint has no revision {number} that works.",
            code="no_such_revision",
            field="revision",
            next_step="Choose a revision that is warm or retired.",
        )
    if revision.status == RevisionState.SERVING:
        raise Conflict(
            f"Revision {number} is already serving.",
            code="serves_already",
            field="revision",
            next_step="Promote another revision.",
        )
    if revision.status == RevisionState.RETIRED:
        move_revision(
            endpoint, revision, RevisionState.PREPARING, failures=0, next_start_at=None, reason=""
        )
    return revision


def roll_back(*, endpoint: Endpoint, by: User, reason: str = "") -> Endpoint:
    """Roll the active rollout back, or return to the previous revision without one.

    Traffic moves at once while that revision is still warm, else as soon as it has started again.
    Raises Conflict when there is none.
    """
    timestamp = clock.now()
    message = f"by {by.display_name}" + (f": {reason}" if reason else ".")
    with transaction.atomic():
        current = _locked(endpoint)
        rollouts = Rollout.objects.under_way().filter(endpoint=current)
        rollout = rollouts.select_related("revision", "previous").first()
        if rollout is not None and rollout.status == RolloutState.ROLLING_BACK:
            return current
        revision = rollout.revision if rollout is not None else serving_of(current)
        if rollout is not None and rollout.previous is not None:
            roll_back_rollout(current, rollout, message, timestamp, keeps=True)
        elif rollout is not None:
            raise _no_earlier_revision()
        else:
            _roll_back_serving(current, by, message)
        if revision is not None:
            _audit("endpoint.rollback", current, revision, {"reason": reason})
        enqueue_on_commit(reconcile_endpoint, current.pk)
    return current


def _roll_back_serving(endpoint: Endpoint, by: User, message: str) -> None:
    current = serving_of(endpoint)
    if current is None or endpoint.status != EndpointState.SERVING:
        raise _no_earlier_revision()
    warm = previous_warm_revision(endpoint)
    if warm is not None:
        switch(endpoint, current=current, target=warm, by=by, why=message, timestamp=clock.now())
        return
    done = Rollout.objects.filter(endpoint=endpoint, state=RolloutState.DONE, revision=current)
    # A revision that has failed since was rolled back already, and would fail again.
    works = done.exclude(previous__isnull=True).exclude(previous__state=RevisionState.FAILED)
    before = works.select_related("previous").order_by("-pk").first()
    if before is None or before.previous is None:
        raise _no_earlier_revision(done.order_by("-pk").first())
    revision = _earlier(endpoint, before.previous.number)
    begin_rollout(endpoint, by, revision, previous=current, plan=Plan(bake_s=0))


def _no_earlier_revision(last: Rollout | None = None) -> Conflict:
    failed = last.previous if last is not None else None
    why = f" Revision {failed.number} failed: {failed.reason}" if failed is not None else ""
    return Conflict(
        f"There is no earlier revision to roll back to.{why}",
        code="nothing_before",
        next_step="Promote a version that works.",
    )


def _locked(endpoint: Endpoint) -> Endpoint:
    endpoint_row = locked(endpoint.pk)
    assert endpoint_row is not None  # noqa: S101  (endpoints are never removed from the database)
    return endpoint_row


def _locked_for_change(endpoint: Endpoint) -> Endpoint:
    current = _locked(endpoint)
    if current.status not in _OPEN:
        raise Conflict(
            f"The endpoint is {current.state}, so nothing can be promoted to it.",
            code="endpoint_state",
            next_step="Resume it first.",
        )
    if Rollout.objects.under_way().filter(endpoint=current).exists():
        raise Conflict(
            "A rollout is in progress.",
            code="rollout_under_way",
            next_step="Wait until it completes, or roll it back.",
        )
    return current


def _audit(verb: str, endpoint: Endpoint, revision: Revision, after: dict[str, Any]) -> None:
    details = {
        "revision": revision.number,
        "model": revision.model,
        "version": revision.model_version,
    }
    audit.record(
        verb,
        kind="endpoint",
        target=endpoint,
        label=endpoint.name,
        project=endpoint.project,
        after=details | after,
    )
