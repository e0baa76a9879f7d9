"""Writing a pass's decisions: leases before anything starts, everything guarded, a few statements.

Runs inside the transaction of the pass. Rows are locked in the order workloads, nodes, shares.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import F

from portal.compute.lifecycle import LEASE
from portal.compute.models import Node, Pool, Tier
from portal.compute.models.pools import FULL_PRICE
from portal.compute.resources import Amount
from portal.core import clock
from portal.core.bulk_insert import insert_rows
from portal.workloads.lifecycle import StopOutcome
from portal.workloads.models import Lease, Share, Task, Workload, WorkloadEvent
from portal.workloads.placement import NodeSlot
from portal.workloads.ports import kind_of
from portal.workloads.queue import Candidate
from portal.workloads.signals import WorkloadChanged, workload_changed
from slipway.schemas.accounts import NetworkRule
from slipway.schemas.truncation import join_names, shorten
from slipway.schemas.workloads import WorkloadState

_NOTHING = Amount(0, 0, 0)


class StalePass(Exception):
    """Something the pass had read has changed since. Undo it and do it again."""


@dataclass(frozen=True)
class Decision:
    """A workload and the places of its tasks, in the order of their indices."""

    candidate: Candidate
    places: tuple[NodeSlot, ...]


def grant(decisions: Sequence[Decision]) -> int:
    """Grant the leases of all decisions still possible. Returns how many workloads were placed.

    Raises Overtaken when a node no longer has what the pass saw on it.
    """
    decisions = _lock_queued(decisions)
    timestamp = clock.now()
    _place_workloads(decisions, timestamp)
    names = _reserve(decisions)
    _insert_leases(decisions, timestamp)
    _count(decisions)
    _record_placements(decisions, names, timestamp)
    return len(decisions)


def _lock_queued(decisions: Sequence[Decision]) -> list[Decision]:
    """Lock the workloads and leave out those that somebody stopped meanwhile."""
    ids = [decision.candidate.workload_id for decision in decisions]
    rows = Workload.objects.select_for_update(of=("self",), no_key=True).filter(
        pk__in=ids, state=WorkloadState.QUEUED
    )
    epochs = dict(rows.order_by("pk").values_list("pk", "epoch"))
    return [
        decision
        for decision in decisions
        if epochs.get(decision.candidate.workload_id) == decision.candidate.epoch
    ]


def _place_workloads(decisions: Sequence[Decision], timestamp: datetime) -> None:
    alike: dict[tuple[timedelta | None, NetworkRule], list[str]] = {}
    for decision in decisions:
        candidate = decision.candidate
        ids = alike.setdefault((candidate.lifetime, candidate.need.network), [])
        ids.append(candidate.workload_id)
    for (lifetime, network), ids in alike.items():
        # If the project's network rule changed since the pass read it, another pass has to decide.
        rows = Workload.objects.filter(pk__in=ids, project__network=network)
        moved = rows.filter(state=WorkloadState.QUEUED).update(
            state=WorkloadState.PLACED,
            network=network,
            epoch=F("epoch") + 1,
            plan=StopOutcome.NONE,
            reason="",
            reason_text="",
            placed_at=timestamp,
            deadline_at=timestamp + lifetime if lifetime is not None else None,
            rendezvous_address="",
            rendezvous_port=0,
            rendezvous_agent_store=False,
            ranks_apart=False,
            held_nodes=[],
            held_since=None,
        )
        if moved != len(ids):
            raise StalePass


def _reserve(decisions: Sequence[Decision]) -> dict[str, str]:
    """Reserve what the tasks need on the nodes. Returns the names of the nodes."""
    amounts: dict[str, Amount] = {}
    tasks: Counter[str] = Counter()
    for decision in decisions:
        for place in decision.places:
            taken = amounts.get(place.node_id, _NOTHING)
            amounts[place.node_id] = taken.plus(decision.candidate.need.amount)
            tasks[place.node_id] += 1
    for node_id in sorted(amounts):
        if not Node.objects.reserve(node_id, amount=amounts[node_id], tasks=tasks[node_id]):
            raise StalePass
    return dict(Node.objects.filter(pk__in=amounts).values_list("pk", "name"))


def _insert_leases(decisions: Sequence[Decision], timestamp: datetime) -> None:
    ids = [decision.candidate.workload_id for decision in decisions]
    tasks = {
        (workload_id, index): task_id
        for task_id, workload_id, index in Task.objects.filter(workload__in=ids).values_list(
            "pk", "workload_id", "index"
        )
    }
    tiers = Tier.objects.in_bulk({decision.candidate.tier_id for decision in decisions})
    used_pools = {decision.candidate.pool_id for decision in decisions} - {None}
    pools = Pool.objects.in_bulk(used_pools) if used_pools else {}
    insert_rows(
        Lease,
        _LEASE_COLUMNS,
        [
            _lease_row(
                decision.candidate,
                index,
                place,
                tasks[decision.candidate.workload_id, index],
                tiers[decision.candidate.tier_id],
                pools.get(decision.candidate.pool_id),
                timestamp,
            )
            for decision in decisions
            for index, place in enumerate(decision.places)
        ],
    )


_LEASE_COLUMNS = (
    "task_id",
    "workload_id",
    "project_id",
    "team_id",
    "node_id",
    "tier_id",
    "nano_usd_per_hour",
    "price_percent",
    "discount_percent",
    "epoch",
    "index",
    "cpu_millis",
    "memory_bytes",
    "gpus",
    "gpu_indices",
    "fair_millis",
    "charged_to_ms",
    "keeps_on_fence",
    "granted_at",
    "expires_at",
    "ends_by",
)


def _lease_row(
    candidate: Candidate,
    index: int,
    place: NodeSlot,
    task_id: str,
    tier: Tier,
    pool: Pool | None,
    timestamp: datetime,
) -> tuple[Any, ...]:
    amount = candidate.need.amount
    # Clocks of machines may differ. A lease must not begin before the task's last one ended.
    timestamp = max(timestamp, candidate.waits_since)
    return (
        task_id,
        candidate.workload_id,
        candidate.project_id,
        candidate.team_id,
        place.node_id,
        candidate.tier_id,
        tier.nano_usd_per_hour,
        FULL_PRICE if pool is None else pool.price_percent,
        tier.preemptible_discount if candidate.is_preemptible else 0,
        candidate.epoch + 1,
        index,
        amount.cpu_millis,
        amount.memory_bytes,
        amount.gpus,
        list(place.gpus),
        amount.fair_millis,
        int(timestamp.timestamp() * 1000),
        kind_of(candidate.kind).keeps_on_fence,
        timestamp,
        timestamp + LEASE,
        timestamp + candidate.lifetime if candidate.lifetime is not None else None,
    )


def _count(decisions: Sequence[Decision]) -> None:
    """Count what runs now, for projects and teams."""
    totals: dict[tuple[str, str | None], Amount] = {}
    fair: Counter[tuple[str, str | None]] = Counter()
    workloads: Counter[tuple[str, str | None]] = Counter()
    for decision in decisions:
        candidate = decision.candidate
        who = candidate.project_id, candidate.team_id
        totals[who] = totals.get(who, _NOTHING).plus(candidate.total)
        fair[who] += candidate.need.amount.fair_millis * candidate.tasks
        workloads[who] += 1
    Share.objects.add_many(
        [
            (*who, (-workloads[who], workloads[who], total.cpu_millis, total.gpus, fair[who]))
            for who, total in totals.items()
        ]
    )


def _record_placements(
    decisions: Sequence[Decision], names: dict[str, str], timestamp: datetime
) -> None:
    story = []
    for decision in decisions:
        candidate = decision.candidate
        nodes = sorted({names[place.node_id] for place in decision.places})
        where = f"node {nodes[0]}" if len(nodes) == 1 else f"nodes {join_names(nodes, 10)}"
        message = shorten(f"Placed on {where}.", 2000)
        story.append((candidate.workload_id, candidate.epoch + 1, "placed", message, timestamp))
        workload_changed.send_on_commit(
            WorkloadChanged(
                candidate.workload_id,
                candidate.project_id,
                candidate.kind,
                WorkloadState.PLACED,
                candidate.epoch + 1,
            )
        )
    columns = ("workload_id", "attempt", "kind", "message", "created_at")
    insert_rows(WorkloadEvent, columns, story)
