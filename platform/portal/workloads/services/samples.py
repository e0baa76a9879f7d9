"""Samples of what tasks use."""

from collections.abc import Sequence

from django.db.models import QuerySet

from portal.compute.models import Node
from portal.core import clock
from portal.core.pagination import Page, paginate_sorted
from portal.workloads.models import Lease, UsageSample, Workload
from portal.workloads.services.reports import Clock
from slipway.schemas.agent import Sample


def accept_samples(
    *, node: Node, samples: Sequence[Sample], sent_unix_ms: int | None = None
) -> int:
    """Store samples of tasks this node has leases for and return their number. Idempotent."""
    times = Clock(clock.now(), sent_unix_ms)
    tasks = {sample.task_id for sample in samples}
    leases = {
        (task_id, epoch): pk
        for pk, task_id, epoch in Lease.objects.filter(node=node, task__in=tasks).values_list(
            "pk", "task_id", "epoch"
        )
    }
    rows = [
        UsageSample(
            lease_id=leases[sample.task_id, sample.epoch],
            measured_ms=sample.at_unix_ms,
            at=times.to_portal_time(sample.at_unix_ms),
            cpu_percent=sample.cpu_percent,
            memory_bytes=sample.memory_bytes,
            gpu_percent=sample.gpu_percent,
            gpu_memory_bytes=sample.gpu_memory_bytes,
            read_bytes=sample.read_bytes,
            written_bytes=sample.written_bytes,
        )
        for sample in samples
        if (sample.task_id, sample.epoch) in leases
    ]
    UsageSample.objects.bulk_create(rows, ignore_conflicts=True)
    return len(rows)


def samples_of(*, workload: Workload, attempt: int) -> QuerySet[UsageSample]:
    """Return the samples of one attempt, oldest first."""
    samples = UsageSample.objects.filter(lease__workload=workload, lease__epoch=attempt)
    return samples.select_related("lease").order_by("at", "pk")


def page_of_samples(
    *, workload: Workload, attempt: int, cursor: str | None, limit: int
) -> Page[UsageSample]:
    """Return a page of the samples of one attempt, oldest first."""
    samples = samples_of(workload=workload, attempt=attempt)
    return paginate_sorted(samples, order="at", cursor=cursor, limit=limit)
