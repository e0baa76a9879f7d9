"""Samples of what tasks use."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from django.db.models import QuerySet

from portal.compute.models import Node
from portal.core import clock
from portal.core.pagination import Page, paginate_sorted
from portal.workloads.models import Lease, UsageSample, Workload
from portal.workloads.services.reports import Clock
from portal.workloads.silence import (
    BUSY_CPU_PERCENT,
    BUSY_GPU_PERCENT,
    is_worth_noting,
    note_activity,
)
from slipway.schemas.agent import Sample


def accept_samples(
    *, node: Node, samples: Sequence[Sample], sent_unix_ms: int | None = None
) -> int:
    """Store samples of tasks this node has leases for and return their number. Idempotent."""
    times = Clock(clock.now(), sent_unix_ms)
    tasks = {sample.task_id for sample in samples}
    leases = {
        (lease.task_id, lease.epoch): lease
        for lease in Lease.objects.filter(node=node, task__in=tasks).only(
            "pk", "task_id", "epoch", "active_at"
        )
    }
    rows = [
        UsageSample(
            lease_id=leases[sample.task_id, sample.epoch].pk,
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
    _note_use(leases.values(), rows)
    return len(rows)


def _note_use(leases: Iterable[Lease], rows: Sequence[UsageSample]) -> None:
    """Note which tasks used a processor, at the time of their newest such sample."""
    newest: dict[str, datetime] = {}
    for row in rows:
        if row.cpu_percent >= BUSY_CPU_PERCENT or (row.gpu_percent or 0.0) >= BUSY_GPU_PERCENT:
            newest[row.lease_id] = max(row.at, newest.get(row.lease_id, row.at))
    for lease in leases:
        at = newest.get(lease.pk)
        if at is not None and is_worth_noting(lease.active_at, at):
            note_activity([lease.pk], at)


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
