"""Moving preemptible workloads for others that cannot start otherwise.

After the passes of the scheduler have placed what fits, `preempt_for_waiting` chooses victims for
what waits. One transaction asks them to stop with their grace, notes who is moved for whom, and
holds the capacity for the one that waits. The rest follows from rows: a victim that has stopped
queues again in its old position, and the passes place the workload on what is held for it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import F

from portal.core import clock
from portal.workloads.completion import begin_stopping
from portal.workloads.fair_shares import ShareStandings
from portal.workloads.feasibility import is_gang_without_network
from portal.workloads.lifecycle import ACTIVE, StopOutcome
from portal.workloads.models import Lease, Preemption, Workload
from portal.workloads.placement import Site
from portal.workloads.ports import kind_of
from portal.workloads.preemption_plans import (
    OccupiedPart,
    Outlook,
    PreemptibleWorkload,
    PreemptionPlan,
)
from portal.workloads.queue import CANDIDATE_COLUMNS, Candidate, Queue, candidate_of
from portal.workloads.scheduling import lock_scheduler, read_sites
from slipway.schemas.workloads import ReasonCode, WorkloadState

# A workload that was moved runs for this long before it may be moved again, and for the same
# workload others are moved at most this often.
UNDISTURBED = timedelta(minutes=10)
_MOST_EXAMINED = 128
_MOST_PREEMPTIBLE = 1000


@dataclass(frozen=True)
class _Move:
    """A workload that waits, and the plan by which it can start."""

    candidate: Candidate
    plan: PreemptionPlan


def preempt_for_waiting() -> int:
    """Ask preemptible workloads to stop where others wait for their place. Returns how many.

    Safe to run at any time, anywhere: what is asked to stop once is not asked again.
    """
    waiting = Workload.objects.waiting_in(None, with_preemptible=False)
    if not waiting.filter(held_since__isnull=True).exists():
        return 0
    if not Workload.objects.preemptible().exists():
        return 0
    with transaction.atomic():
        lock_scheduler()
        return _order(_decide(clock.now()))


def unmoved_reason(
    workload: Workload, running: Sequence[Workload], standings: ShareStandings
) -> str:
    """Return why none of the preemptible work that runs is moved for one that waits.

    `running` are those of `Workload.objects.preemptible()`, `standings` the present ones. Empty for
    work that nothing is moved for.
    """
    if workload.is_preemptible or not running:
        return ""
    timestamp = clock.now()
    moved = Preemption.objects.filter(
        beneficiary=workload, created_at__gt=timestamp - UNDISTURBED
    ).first()
    if moved is not None:
        again = moved.created_at + UNDISTURBED
        return f"Others were moved for it; no more are before {again:%H:%M} UTC."
    settled = [victim for victim in running if _is_settled(victim, timestamp)]
    if not settled:
        starts = [victim.placed_at for victim in running if victim.placed_at is not None]
        until = min(starts, default=timestamp) + UNDISTURBED
        return (
            "Preemptible work that runs was moved before, and is left undisturbed until "
            f"{until:%H:%M} UTC."
        )
    if not any(
        standings.may_move(
            project=workload.project_id,
            team=workload.team_id,
            of_project=victim.project_id,
            of_team=victim.team_id,
        )
        for victim in settled
    ):
        return (
            "Preemptible work runs, and is not moved: its projects have used less than their fair "
            "share, and this one more."
        )
    return "Preemptible work is moved for it within seconds, if that frees enough."


def _decide(timestamp: datetime) -> list[_Move]:
    """Go through what waits, in the order of the queue, and plan moves for what does not fit."""
    sites = read_sites()
    outlook = Outlook(sites, _stopping_parts(sites))
    queue = Queue(timestamp.timestamp(), batch=_MOST_EXAMINED, with_preemptible=False)
    holders = _apply_holds(outlook, queue)
    standings = ShareStandings(timestamp.timestamp())
    victims = _preemptible(sites, standings, timestamp)
    moves: list[_Move] = []
    examined, has_head = 0, False
    while victims and examined < _MOST_EXAMINED:
        line = queue.next_queue()
        candidate = line.first() if line else None
        if line is None or candidate is None:
            break
        examined += 1
        need, tasks, project = candidate.need, candidate.tasks, candidate.project_id
        is_out = candidate.workload_id in holders or is_gang_without_network(need, tasks)
        if is_out or line.blocks(candidate.total):
            line.skip_first()
            continue
        if outlook.place(need, tasks, project=project):
            line.pop_first(candidate.total)
            queue.reprioritize(line)
            continue
        plan = None
        if not _was_helped(candidate, timestamp):
            movable = [victim for victim in victims if _may_move(standings, candidate, victim)]
            plan = outlook.plan(need, tasks, movable, project=project) if movable else None
        if plan is None:
            # Others keep off the nodes on which the first of them waits.
            has_head = has_head or outlook.reserve(need, tasks)
            line.skip_first()
            continue
        moves.append(_Move(candidate, plan))
        victims = [victim for victim in victims if victim not in plan.victims]
        line.pop_first(candidate.total)
        queue.reprioritize(line)
    return moves


def _stopping_parts(sites: Sequence[Site]) -> list[OccupiedPart]:
    leases = Lease.objects.open().filter(workload__state=WorkloadState.STOPPING)
    return list(_parts(leases.select_related("workload"), sites))


def _parts(leases: Iterable[Lease], sites: Sequence[Site]) -> Iterable[OccupiedPart]:
    gpus = {site.node_id: site.capacity.gpus for site in sites}
    for lease in leases:
        models = dict(gpus.get(lease.node_id, []))
        yield OccupiedPart(
            lease.node_id,
            lease.amount,
            tuple((index, models.get(index, "")) for index in lease.gpu_indices),
            lease.project_id,
            lease.workload.backend,
        )


def _apply_holds(outlook: Outlook, queue: Queue) -> set[str]:
    """Subtract what is held. Returns the ids of the workloads that it is held for."""
    holders = set()
    columns = (*CANDIDATE_COLUMNS, "held_nodes")
    for *row, nodes in Workload.objects.with_hold().values_list(*columns):
        candidate = candidate_of(tuple(row))
        outlook.hold(candidate.need, nodes, project=candidate.project_id)
        queue.count_ordered([(candidate.project_id, candidate.total)])
        holders.add(candidate.workload_id)
    return holders


def _preemptible(
    sites: Sequence[Site], standings: ShareStandings, timestamp: datetime
) -> list[PreemptibleWorkload]:
    """Return what may be moved now, the cheapest first."""
    rows = Workload.objects.preemptible().order_by("-placed_at", "pk")
    workloads = {
        workload.pk: workload
        for workload in rows[:_MOST_PREEMPTIBLE]
        if _is_settled(workload, timestamp)
    }
    leases: dict[str, list[Lease]] = {}
    for lease in Lease.objects.open().filter(workload__in=workloads).select_related("workload"):
        if lease.epoch == workloads[lease.workload_id].epoch:
            leases.setdefault(lease.workload_id, []).append(lease)
    saved_at = _saved_at(workloads.values())
    victims = []
    for workload_id, own in leases.items():
        workload = workloads[workload_id]
        begins = (saved_at.get(workload_id), workload.placed_at)
        since = max(filter(None, begins), default=timestamp)
        lost_s = max(0.0, (timestamp - since).total_seconds())
        weight = sum(lease.fair_millis for lease in own) / 1000
        is_below = standings.is_below(workload.project_id, workload.team_id)
        victims.append(
            PreemptibleWorkload(
                workload_id=workload_id,
                epoch=workload.epoch,
                project_id=workload.project_id,
                team_id=workload.team_id,
                parts=tuple(_parts(own, sites)),
                cost=(float(is_below), lost_s * weight),
            )
        )
    return sorted(victims, key=lambda victim: (victim.cost, victim.workload_id))


def _is_settled(workload: Workload, timestamp: datetime) -> bool:
    """Return False while a workload that was moved before has run only for a short time again."""
    if not workload.preemptions or workload.placed_at is None:
        return True
    return workload.placed_at <= timestamp - UNDISTURBED


def _saved_at(workloads: Iterable[Workload]) -> dict[str, datetime]:
    """Return when workloads saved their newest checkpoints, by id."""
    by_kind: dict[str, list[str]] = {}
    for workload in workloads:
        by_kind.setdefault(workload.kind, []).append(workload.pk)
    saved: dict[str, datetime] = {}
    for kind, ids in by_kind.items():
        saved.update(kind_of(kind).copies.saved_at(ids))
    return saved


def _may_move(standings: ShareStandings, candidate: Candidate, victim: PreemptibleWorkload) -> bool:
    return standings.may_move(
        project=candidate.project_id,
        team=candidate.team_id,
        of_project=victim.project_id,
        of_team=victim.team_id,
    )


def _was_helped(candidate: Candidate, timestamp: datetime) -> bool:
    """Return True if others were moved for a workload a short time ago."""
    moved = Preemption.objects.filter(
        beneficiary=candidate.workload_id, created_at__gt=timestamp - UNDISTURBED
    )
    return moved.exists()


def _order(moves: Sequence[_Move]) -> int:
    """Write the moves that are still possible. Returns how many workloads were asked to stop.

    All rows are locked first, in the order of their ids. A move is written with all its victims or
    not at all, and none after one that is not, because later plans count on earlier ones.
    """
    ids = {move.candidate.workload_id for move in moves}
    ids |= {victim.workload_id for move in moves for victim in move.plan.victims}
    locked = Workload.objects.select_for_update(of=("self",), no_key=True).filter(pk__in=ids)
    rows = {workload.pk: workload for workload in locked.order_by("pk")}
    ordered = 0
    for move in moves:
        waiting = rows[move.candidate.workload_id]
        victims = [(rows[victim.workload_id], victim.epoch) for victim in move.plan.victims]
        is_possible = all(_may_stop(victim, epoch) for victim, epoch in victims)
        if not is_possible or not _hold(waiting, move):
            break
        for victim, _ in victims:
            ordered += _preempt(victim, waiting)
    return ordered


def _may_stop(victim: Workload, epoch: int) -> bool:
    active = victim.status in ACTIVE and victim.status != WorkloadState.STOPPING
    return active and victim.epoch == epoch


def _hold(waiting: Workload, move: _Move) -> bool:
    """Hold the capacity of a plan. Returns False if the workload does not wait any more."""
    same = Workload.objects.filter(
        pk=waiting.pk,
        state=WorkloadState.QUEUED,
        epoch=move.candidate.epoch,
        held_since__isnull=True,
    )
    return bool(same.update(held_nodes=list(move.plan.nodes), held_since=clock.now()))


def _preempt(victim: Workload, waiting: Workload) -> bool:
    # Members of the victim's project read this, and may not see the other project.
    noun = kind_of(waiting.kind).noun
    name = (
        f"{noun} {waiting.name} of this project"
        if waiting.project_id == victim.project_id
        else f"another project's {noun}"
    )
    ordered = begin_stopping(
        victim,
        plan=StopOutcome.REQUEUE,
        reason=ReasonCode.PREEMPTED,
        text=f"Moved for {name}.",
    )
    if ordered:
        Preemption.objects.create(workload=victim, attempt=victim.epoch, beneficiary=waiting)
        Workload.objects.filter(pk=victim.pk).update(preemptions=F("preemptions") + 1)
    return ordered
