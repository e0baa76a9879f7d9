"""Rollouts: traffic moves step by step, and all of it back when a rule is violated.

Everything here runs with the endpoint's row locked and is idempotent.
"""

from datetime import datetime, timedelta
from typing import Any

from portal.endpoints.canary_analysis import Rules, Traffic, rollback_reason
from portal.endpoints.lifecycle import EndpointState, ReplicaState, RevisionState, RolloutState
from portal.endpoints.models import Endpoint, Revision, Rollout
from portal.endpoints.plans import ALL, TrafficStep, step_at
from portal.endpoints.ports import Evidence, judge
from portal.endpoints.replicas import CRASH_LOOP
from portal.endpoints.transitions import (
    add_event,
    move_endpoint,
    move_revision,
    move_rollout,
    set_traffic_weight,
)
from portal.workloads.idle_capacity import blocks_queued_task
from portal.workloads.models import Lease
from slipway.schemas.endpoints import PlanKind, RollbackRules
from slipway.schemas.serving import LATENCY_BOUNDS_MS


def advance(endpoint: Endpoint, timestamp: datetime) -> None:
    """Advance the active rollout, if there is one."""
    rollouts = Rollout.objects.under_way().filter(endpoint=endpoint)
    rollout = rollouts.select_related("revision", "previous", "made_by").first()
    if rollout is None or endpoint.status == EndpointState.PAUSED:
        return
    if rollout.status == RolloutState.PLANNED:
        _start_when_ready(endpoint, rollout, timestamp)
    elif rollout.status in (RolloutState.RUNNING, RolloutState.BAKING):
        _watch(endpoint, rollout, timestamp)
    else:
        _finish_when_drained(rollout)


def _finish_when_drained(rollout: Rollout) -> None:
    """Mark a rollout as rolled back once its revision is in standby or has no ready replica."""
    revision = rollout.revision
    answers = revision.replicas.filter(state=ReplicaState.READY).exists()
    if revision.status == RevisionState.STANDBY or not answers:
        move_rollout(rollout, RolloutState.ROLLED_BACK)


def _start_when_ready(endpoint: Endpoint, rollout: Rollout, timestamp: datetime) -> None:
    revision = rollout.revision
    if revision.status == RevisionState.FAILED:
        roll_back_rollout(
            endpoint, rollout, revision.reason or "It did not become ready in time.", timestamp
        )
    elif (
        revision.status in (RevisionState.READY, RevisionState.STANDBY)
        and revision.replicas.filter(state=ReplicaState.READY).exists()
    ):
        enter_step(endpoint, rollout, 0, timestamp)


def enter_step(endpoint: Endpoint, rollout: Rollout, index: int, timestamp: datetime) -> None:
    """Move the traffic to the share of a step. The first step also stores the counters."""
    step = step_at(rollout.steps, index)
    is_last = index + 1 >= len(rollout.steps)
    changes: dict[str, Any] = {"step": index, "step_since": timestamp}
    if index == 0:
        changes["baseline"] = _readings(rollout)
    target = RolloutState.BAKING if is_last else RolloutState.RUNNING
    if not move_rollout(rollout, target, **changes):
        return
    revision, previous = rollout.revision, rollout.previous
    share = step.percent if previous is not None or step.shadow_percent else ALL
    set_traffic_weight(endpoint, revision, share, step.shadow_percent)
    if share and revision.status != RevisionState.SERVING:
        move_revision(endpoint, revision, RevisionState.SERVING, standby_since=None)
    if previous is not None:
        set_traffic_weight(endpoint, previous, ALL - share)
        if share == ALL:
            move_revision(endpoint, previous, RevisionState.STANDBY, standby_since=timestamp)
    add_event(endpoint, "traffic", f"Revision {revision.number}: {step.describe()}.")
    if share and endpoint.status == EndpointState.CREATING:
        move_endpoint(endpoint, EndpointState.SERVING, message="It serves predictions.", reason="")


def _readings(rollout: Rollout) -> dict[str, Any]:
    rows = [row for row in (rollout.revision, rollout.previous) if row is not None]
    return {
        row.pk: {"answered": row.answered, "failed": row.failed, "counts": row.counts}
        for row in rows
    }


def traffic_since(rollout: Rollout, revision: Revision) -> Traffic:
    """Return the traffic of a revision since the rollout began."""
    before = rollout.baseline.get(revision.pk, {})
    now = Traffic(revision.answered, revision.failed, tuple(revision.counts))
    return now.since(
        Traffic(before.get("answered", 0), before.get("failed", 0), tuple(before.get("counts", ())))
    )


def _watch(endpoint: Endpoint, rollout: Rollout, timestamp: datetime) -> None:
    why = _rollback_reason(endpoint, rollout, timestamp)
    if why:
        roll_back_rollout(endpoint, rollout, why, timestamp)
        return
    step = step_at(rollout.steps, rollout.step)
    if rollout.step_since is None or timestamp < rollout.step_since + step.bake:
        return
    if rollout.step + 1 < len(rollout.steps):
        enter_step(endpoint, rollout, rollout.step + 1, timestamp)
    else:
        _finish(endpoint, rollout, step, timestamp)


def _rollback_reason(endpoint: Endpoint, rollout: Rollout, timestamp: datetime) -> str:
    revision, previous = rollout.revision, rollout.previous
    rules = RollbackRules.model_validate(endpoint.rules)
    if revision.status == RevisionState.FAILED:
        return revision.reason or "It failed."
    if not rules.is_on or rollout.step_since is None:
        return ""
    if revision.failures >= CRASH_LOOP:
        return f"{revision.failures} of its replicas failed in a row."
    measured = rollback_reason(
        traffic_since(rollout, revision),
        traffic_since(rollout, previous) if previous is not None else None,
        Rules(**rules.model_dump()),
        LATENCY_BOUNDS_MS,
    )
    return measured or judge().rollback_reason(
        Evidence(
            project_id=endpoint.project_id,
            endpoint_id=endpoint.pk,
            revision_id=revision.pk,
            previous_id=previous.pk if previous is not None else None,
            since=rollout.step_since,
        )
    )


def _finish(endpoint: Endpoint, rollout: Rollout, step: TrafficStep, timestamp: datetime) -> None:
    if not move_rollout(rollout, RolloutState.DONE):
        return
    revision = rollout.revision
    if rollout.plan == PlanKind.SHADOW:
        set_traffic_weight(endpoint, revision, 0)
        move_revision(endpoint, revision, RevisionState.STANDBY, standby_since=timestamp)
        message = (
            f"{revision.differed} of {revision.mirrored} mirrored predictions differed, "
            f"{revision.shadow_failed} failed. It stays warm: promote it to route traffic to it."
        )
    else:
        message = "It serves all traffic."
    add_event(endpoint, "rollout_done", f"Revision {revision.number} is rolled out. {message}")


def roll_back_rollout(
    endpoint: Endpoint, rollout: Rollout, why: str, timestamp: datetime, *, keeps: bool = False
) -> bool:
    """Roll back to the previous revision. Returns whether the rollout was ended.

    `keeps`: a person requested it, so the revision is not marked as failed. Without a previous
    revision, one that answers keeps the traffic: bad answers are better than none.
    """
    revision, previous = rollout.revision, rollout.previous
    if previous is None and revision.status == RevisionState.SERVING:
        if move_rollout(rollout, RolloutState.ROLLING_BACK, reason=why):
            move_rollout(rollout, RolloutState.ROLLED_BACK)
            add_event(
                endpoint,
                "rollout_trouble",
                f"Revision {revision.number} failed its checks, and there is no earlier revision "
                f"to roll back to: {why}",
            )
        return True
    if not move_rollout(rollout, RolloutState.ROLLING_BACK, reason=why):
        return False
    if previous is not None:
        set_traffic_weight(endpoint, previous, ALL)
        if previous.status == RevisionState.STANDBY:
            move_revision(endpoint, previous, RevisionState.SERVING, standby_since=None)
    set_traffic_weight(endpoint, revision, 0)
    _retire_revision(endpoint, revision, why, timestamp, keeps=keeps)
    add_event(
        endpoint,
        "rolled_back",
        f"Revision {revision.number} was rolled back"
        + (f" to revision {previous.number}" if previous is not None else "")
        + f": {why}",
    )
    if previous is None and endpoint.status == EndpointState.CREATING:
        move_endpoint(endpoint, EndpointState.FAILED, message=why, reason=why)
    _finish_when_drained(rollout)
    return True


def _retire_revision(
    endpoint: Endpoint, revision: Revision, why: str, timestamp: datetime, *, keeps: bool
) -> None:
    if revision.status == RevisionState.FAILED:
        return
    if not keeps:
        move_revision(endpoint, revision, RevisionState.FAILED, reason=why)
    elif revision.status == RevisionState.PREPARING:
        move_revision(endpoint, revision, RevisionState.RETIRED, reason=why)
    elif revision.status != RevisionState.STANDBY:
        move_revision(
            endpoint, revision, RevisionState.STANDBY, reason=why, standby_since=timestamp
        )


def retire_standbys(endpoint: Endpoint, timestamp: datetime) -> None:
    """Retire all warm revisions but the newest, and that one after its time.

    It is retired sooner if it delays other work.
    """
    busy = Rollout.objects.under_way().filter(endpoint=endpoint)
    involved = {key for row in busy for key in (row.revision_id, row.previous_id) if key}
    standbys = endpoint.revisions.filter(state=RevisionState.STANDBY).exclude(pk__in=involved)
    warm = list(standbys.order_by("-standby_since", "-number"))
    for revision in warm[1:]:
        _retire(endpoint, revision, "A newer revision is kept warm instead.")
    if not warm:
        return
    newest, minutes = warm[0], endpoint.warm_minutes
    since = newest.standby_since or timestamp
    if since + timedelta(minutes=minutes) <= timestamp:
        kept = f"It was kept warm for {minutes} minutes." if minutes else "It was replaced."
        _retire(endpoint, newest, kept)
    elif _blocks_queued_work(newest):
        _retire(endpoint, newest, "Other work needed its place.")


def _retire(endpoint: Endpoint, revision: Revision, reason: str) -> None:
    move_revision(endpoint, revision, RevisionState.RETIRED, reason=reason)


def _blocks_queued_work(revision: Revision) -> bool:
    """Return whether queued work can be placed only after the revision's replicas are gone."""
    workloads = revision.replicas.alive().values("workload")
    return blocks_queued_task(Lease.objects.open().filter(workload__in=workloads))
