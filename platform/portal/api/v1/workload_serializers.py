"""Serializers of workloads, nodes, tiers and environments."""

from collections.abc import Iterable
from datetime import datetime

from portal.compute.logs import log_store
from portal.compute.models import Environment, EnvironmentBuild, Node, Quota, Tier, TierPrice
from portal.compute.resources import Amount
from portal.compute.services.environments import build_log_key
from portal.core import clock
from portal.workloads.explanations import Explainer, position_of
from portal.workloads.models import Lease, Preemption, Share, UsageSample, Workload, WorkloadEvent
from portal.workloads.services.logs import RankLog
from slipway.schemas.training import SampleOut
from slipway.schemas.workloads import (
    BuildOut,
    EnvironmentOut,
    NodeDisk,
    NodeIsolation,
    NodeOut,
    PreemptionOut,
    QuotaOut,
    RankLogOut,
    ReasonCode,
    Resources,
    TaskOut,
    TierOut,
    TierPriceOut,
    WorkloadEventOut,
    WorkloadOut,
)

_MOST_MOVES = 20


def resources_out(amount: Amount) -> Resources:
    return Resources(
        cpu_millis=amount.cpu_millis, memory_bytes=amount.memory_bytes, gpus=amount.gpus
    )


def tier_out(tier: Tier, free_tasks: int | None = None) -> TierOut:
    return TierOut(
        id=tier.pk,
        slug=tier.slug,
        name=tier.name,
        resources=resources_out(tier.amount),
        gpu_model=tier.gpu_model,
        labels=tier.labels,
        nano_usd_per_hour=tier.nano_usd_per_hour,
        preemptible_discount=tier.preemptible_discount,
        preemptible_nano_usd_per_hour=tier.price(is_preemptible=True),
        is_active=tier.is_active,
        free_tasks=free_tasks,
    )


def price_out(price: TierPrice) -> TierPriceOut:
    return TierPriceOut(
        nano_usd_per_hour=price.nano_usd_per_hour, effective_from=price.effective_from
    )


def node_out(node: Node, timestamp: datetime | None = None) -> NodeOut:
    """Serialize a node. A silent node is shown as lost, whatever its desired state."""
    timestamp = timestamp or clock.now()
    state, reason = node.state, node.reason
    if node.is_lost(timestamp):
        state, reason = "lost", reason or "No heartbeat for a minute or more."
    elif node.is_quiet(timestamp):
        reason = reason or "It missed two heartbeats, so it receives no new tasks."
    return NodeOut(
        id=node.pk,
        name=node.name,
        state=state,
        reason=reason,
        backends=node.backends,
        pythons=node.pythons,
        capacity=resources_out(node.capacity),
        free=resources_out(node.free),
        labels=node.labels,
        gpu_models=node.gpu_models,
        isolation=[
            NodeIsolation(
                backend=level.backend,
                level=level.level,
                features=list(level.features),
                meaning=level.meaning(mixes_projects=node.mixes_projects),
                detail=level.detail,
            )
            for level in node.isolation_levels
        ],
        mixes_projects=node.mixes_projects,
        disk=NodeDisk(**node.disk, free_bytes=node.disk_free_bytes) if node.disk else None,
        tasks=node.tasks,
        agent_version=node.agent_version,
        cpu_percent=node.cpu_percent,
        memory_used_bytes=node.memory_used_bytes,
        last_seen_at=node.last_seen_at,
    )


def quota_out(quota: Quota | None, share: Share | None) -> QuotaOut:
    return QuotaOut(
        cpu_millis=quota.cpu_millis if quota else None,
        gpus=quota.gpus if quota else None,
        running=quota.running if quota else None,
        weight=quota.weight if quota else 1.0,
        used_cpu_millis=share.cpu_millis if share else 0,
        used_gpus=share.gpus if share else 0,
        used_running=share.running if share else 0,
    )


def workload_out(workload: Workload, explainer: Explainer) -> WorkloadOut:
    """Serialize a workload for the explainer's user."""
    return WorkloadOut(
        id=workload.pk,
        project=workload.project.slug,
        parent=workload.parent_id,
        kind=workload.kind,
        name=workload.name,
        state=workload.status,
        explanation=explainer.explain(workload),
        reason=ReasonCode(workload.reason) if workload.reason else None,
        next_step=workload.next_step or None,
        tier=workload.tier.slug,
        nodes=workload.nodes,
        procs=workload.procs,
        attempt=workload.epoch,
        priority=workload.priority,
        preemptible=workload.is_preemptible,
        preemptions=workload.preemptions,
        queue_position=position_of(workload),
        exit_code=workload.exit_code,
        environment=workload.environment or None,
        network=workload.network_rule,
        nano_usd_per_hour=workload.price,
        full_nano_usd_per_hour=workload.full_price,
        submitted_by=workload.submitted_by.email,
        created_at=workload.created_at,
        started_at=workload.started_at,
        ended_at=workload.ended_at,
        kept_until=workload.kept_until if workload.is_kept else None,
    )


def task_out(lease: Lease) -> TaskOut:
    return TaskOut(
        index=lease.index,
        node=lease.node.name,
        state=lease.state,
        reason=ReasonCode(lease.reason) if lease.reason else None,
        exit_code=lease.exit_code,
        step=lease.step,
        memory_peak_bytes=lease.memory_peak_bytes,
        memory_limit_bytes=lease.memory_limit_bytes,
    )


def moves_out(workload: Workload, explainer: Explainer) -> list[PreemptionOut]:
    """Serialize the newest preemptions of a workload, with names that the user may see."""
    moves = Preemption.objects.filter(workload=workload).order_by("-pk")
    rows = moves.select_related("beneficiary__project")[:_MOST_MOVES]
    return [_move_out(move, explainer) for move in rows]


def _move_out(move: Preemption, explainer: Explainer) -> PreemptionOut:
    is_visible = explainer.may_see(move.beneficiary)
    return PreemptionOut(
        at=move.created_at,
        attempt=move.attempt,
        moved_for=move.beneficiary_id if is_visible else None,
        project=move.beneficiary.project.slug if is_visible else None,
        sentence=explainer.move_sentence(move),
    )


def event_out(event: WorkloadEvent) -> WorkloadEventOut:
    return WorkloadEventOut(
        at=event.created_at, attempt=event.attempt, kind=event.kind, message=event.message
    )


def log_out(log: RankLog) -> RankLogOut:
    return RankLogOut(
        attempt=log.attempt, rank=log.rank, size_bytes=log.size_bytes, is_complete=log.is_complete
    )


def sample_out(sample: UsageSample) -> SampleOut:
    return SampleOut(
        at=sample.at,
        task=sample.lease.index,
        cpu_percent=sample.cpu_percent,
        memory_bytes=sample.memory_bytes,
        gpu_percent=sample.gpu_percent,
        gpu_memory_bytes=sample.gpu_memory_bytes,
    )


def environment_out(
    environment: Environment, builds: Iterable[EnvironmentBuild] = ()
) -> EnvironmentOut:
    return EnvironmentOut(
        digest=environment.digest,
        python=environment.python,
        requirements=environment.requirements,
        dockerfile=environment.dockerfile,
        conda=environment.conda,
        locked=environment.locked,
        created_at=environment.created_at,
        builds=[build_out(environment, build) for build in builds],
    )


def build_out(environment: Environment, build: EnvironmentBuild) -> BuildOut:
    """Serialize a build, which needs its node."""
    return BuildOut(
        node=build.node.name,
        state=build.state,
        size_bytes=build.size_bytes,
        log_bytes=log_store().size(build_log_key(environment.digest, build)),
        changed_at=build.changed_at,
    )
