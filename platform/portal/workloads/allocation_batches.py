"""Batches: allocations that an engine is asked for at once, such as the trials of a sweep."""

from collections.abc import Hashable, Sequence
from itertools import islice

from portal.workloads.models import Allocation

# Below the usual MaxArraySize of Slurm, 1001.
_MOST_IN_BATCH = 250


def put_in_batches(allocations: Sequence[Allocation]) -> None:
    """Put new allocations that are alike into batches.

    Batches are stored before the engine is asked, so that the same order is repeated after a crash.
    Those of a batch have one task, one person and one project, because what an engine is given of a
    batch may be readable for all of it.
    """
    alike: dict[Hashable, list[Allocation]] = {}
    for allocation in allocations:
        if allocation.workload.nodes == 1:
            alike.setdefault(_likeness(allocation), []).append(allocation)
    for group in alike.values():
        rest = iter(group)
        while len(batch := list(islice(rest, _MOST_IN_BATCH))) > 1:
            for place, allocation in enumerate(batch):
                allocation.batch, allocation.place = f"{batch[0].name}-many", place
            Allocation.objects.bulk_update(batch, ["batch", "place"])


def _likeness(allocation: Allocation) -> Hashable:
    workload = allocation.workload
    return (
        *(allocation.pool_id, allocation.account, workload.project_id, workload.submitted_by_id),
        *(workload.amount, workload.gpu_model, workload.max_lifetime_s),
        # It may be an image, which the script of a batch names once.
        workload.environment,
    )
