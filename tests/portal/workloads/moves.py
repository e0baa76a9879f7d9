"""Invariants of preemptions, which hold after every step."""

from collections import Counter

from portal.workloads.models import Preemption, Workload
from slipway.schemas.workloads import WorkloadState


def assert_moves_are_counted_once() -> None:
    """Check who was moved for whom, the counts, and what is held for those that wait."""
    moves = list(Preemption.objects.select_related("workload", "beneficiary"))
    counts = Counter(move.workload_id for move in moves)
    for move in moves:
        assert move.workload.is_preemptible
        assert not move.beneficiary.is_preemptible
    for workload in Workload.objects.all():
        assert workload.preemptions == counts[workload.pk]
        if workload.held_since is not None:
            assert workload.state == WorkloadState.QUEUED
            assert len(workload.held_nodes) == workload.nodes
