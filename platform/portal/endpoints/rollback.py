"""Rollback to a revision that is still warm."""

from datetime import datetime

from django.db.models import Q

from portal.accounts.models import User
from portal.endpoints.lifecycle import RevisionState, RolloutState
from portal.endpoints.models import Endpoint, Revision, Rollout
from portal.endpoints.plans import ALL, TrafficStep, stored
from portal.endpoints.replicas import CRASH_LOOP
from portal.endpoints.rollouts import enter_step
from portal.endpoints.transitions import add_event, move_revision, move_rollout
from slipway.schemas.endpoints import PlanKind, RollbackRules


def serving_of(endpoint: Endpoint) -> Revision | None:
    """Return the revision with all of the traffic, or most of it."""
    serving = endpoint.revisions.filter(state=RevisionState.SERVING)
    return serving.order_by("-weight", "-number").first()


def previous_warm_revision(endpoint: Endpoint) -> Revision | None:
    """Return the previous revision, if it is still warm."""
    done = Rollout.objects.filter(endpoint=endpoint, state=RolloutState.DONE)
    warm = Q(state=RevisionState.STANDBY, replicas__state="ready")
    standbys = endpoint.revisions.filter(warm).distinct()
    replaced = done.exclude(plan=PlanKind.SHADOW).values("previous")
    return standbys.filter(pk__in=replaced).order_by("-standby_since").first()


def switch(
    endpoint: Endpoint,
    *,
    current: Revision,
    target: Revision,
    by: User,
    why: str,
    timestamp: datetime,
) -> Rollout:
    """Give all traffic to a warm revision in one step. The present one stays warm."""
    rollout = Rollout.objects.create(
        endpoint=endpoint,
        revision=target,
        previous=current,
        made_by=by,
        plan=PlanKind.ALL_AT_ONCE,
        steps=stored([TrafficStep(ALL, 0)]),
        reason=why,
    )
    enter_step(endpoint, rollout, 0, timestamp)
    add_event(
        endpoint,
        "rolled_back",
        f"From revision {current.number} back to revision {target.number}: {why}",
    )
    move_rollout(rollout, RolloutState.DONE)
    return rollout


def leave_crash_loop(endpoint: Endpoint, timestamp: datetime) -> None:
    """Roll back if the serving revision keeps failing and the previous one is still warm."""
    rules = RollbackRules.model_validate(endpoint.rules)
    if not rules.is_on or Rollout.objects.under_way().filter(endpoint=endpoint).exists():
        return
    current = serving_of(endpoint)
    if current is None or current.failures < CRASH_LOOP or current.replicas.ready().exists():
        return
    target = previous_warm_revision(endpoint)
    if target is None:
        return
    why = f"{current.failures} replicas of revision {current.number} failed in a row."
    switch(
        endpoint, current=current, target=target, by=current.made_by, why=why, timestamp=timestamp
    )
    move_revision(endpoint, current, RevisionState.FAILED, reason=why)
