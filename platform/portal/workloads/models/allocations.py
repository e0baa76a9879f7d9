"""Allocations: machines ordered of the engine of a pool, and what both sides account for them."""

from datetime import datetime
from typing import ClassVar

from django.db import models
from django.db.models import Q

from portal.compute.models import Pool
from portal.core.models import IdField, Row
from portal.workloads.lifecycle import AllocationState
from portal.workloads.models.workloads import Workload, placement_name


class AllocationQuerySet(models.QuerySet["Allocation"]):
    """Queries of allocations. States change in `portal.workloads.allocations` alone."""

    def open(self) -> "AllocationQuerySet":
        """Return allocations that the engine may still hold."""
        return self.exclude(state=AllocationState.ENDED)


class Allocation(Row):
    """An order for the machines of one placement, committed before the engine is asked.

    `epoch` is that of the placement to come. `handle` is the engine's name of it, empty until the
    engine has answered. `account` is whose work it is there, where that differs. `detail` is the
    engine's own text: why it waits, how it ended. `stopped_at` is when the engine was first asked
    to end it. `limit_at` is when it reaches the engine's time limit, once that is known. `batch`
    is the name of those that are ordered together, if any, and `place` its number in there.
    """

    id = IdField("alloc")
    workload = models.ForeignKey(Workload, on_delete=models.PROTECT, related_name="allocations")
    pool = models.ForeignKey(Pool, on_delete=models.PROTECT, related_name="+")
    epoch = models.PositiveIntegerField()
    state = models.CharField(max_length=16, default=AllocationState.ORDERED)
    handle = models.CharField(max_length=200, blank=True)
    account = models.CharField(max_length=64, blank=True)
    batch = models.CharField(max_length=64, blank=True)
    place = models.PositiveIntegerField(default=0)
    detail = models.CharField(max_length=500, blank=True)
    cause = models.CharField(max_length=16, blank=True)
    stopped_at = models.DateTimeField(null=True, blank=True)
    limit_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    objects: ClassVar[AllocationQuerySet] = AllocationQuerySet.as_manager()  # type: ignore[assignment]

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.CheckConstraint(
                condition=Q(state__in=[state.value for state in AllocationState]),
                name="allocation_known_state",
            ),
            # Never two of them for one placement at a time.
            models.UniqueConstraint(
                fields=["workload"],
                condition=~Q(state=AllocationState.ENDED.value),
                name="allocation_one_open",
            ),
        ]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(
                fields=["pool", "id"],
                condition=~Q(state=AllocationState.ENDED.value),
                name="allocation_open",
            ),
        ]

    @property
    def name(self) -> str:
        """Its name for the engine and its nodes, unique for ever: `sw-` and the end of its id."""
        return f"sw-{self.pk.rpartition('_')[2]}"

    @property
    def shown_handle(self) -> str:
        """The part of the handle that people know: the number of the job, without its person."""
        return self.handle.partition("@")[0]

    @property
    def reserved_for(self) -> str:
        """The placement that its nodes may run."""
        return placement_name(self.workload_id, self.epoch)


class AllocationUsageQuerySet(models.QuerySet["AllocationUsage"]):
    """Queries of the accounting of allocations, written in `portal.workloads.allocation_usage`."""

    def due(self, timestamp: datetime) -> "AllocationUsageQuerySet":
        """Return rows whose engine is to be queried now."""
        return self.filter(due_at__lte=timestamp)


class AllocationUsage(Row):
    """The bill of an ended allocation beside the accounting of its engine.

    `billed_ms` is the time of its leases, `billed_cpu_ms` that of their CPUs, `billed_nano_usd`
    their cost. `accounted_at` is when the engine's figures became known, which are null until then;
    `accounted_nano_usd` is its time at the same price. `due_at` is when to ask it next: null once
    they are known, and when it has not known them for a day.
    """

    id = IdField("ausg")
    allocation = models.OneToOneField(Allocation, on_delete=models.PROTECT, related_name="usage")
    pool = models.ForeignKey(Pool, on_delete=models.PROTECT, related_name="+")
    ended_at = models.DateTimeField()
    due_at = models.DateTimeField(null=True, blank=True)
    billed_ms = models.BigIntegerField()
    billed_cpu_ms = models.BigIntegerField()
    billed_nano_usd = models.BigIntegerField()
    accounted_at = models.DateTimeField(null=True, blank=True)
    elapsed_s = models.BigIntegerField(null=True, blank=True)
    machines = models.PositiveIntegerField(null=True, blank=True)
    cpu_s = models.BigIntegerField(null=True, blank=True)
    resources = models.CharField(max_length=300, blank=True)
    accounted_nano_usd = models.BigIntegerField(null=True, blank=True)

    objects: ClassVar[AllocationUsageQuerySet] = AllocationUsageQuerySet.as_manager()  # type: ignore[assignment]

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.CheckConstraint(
                condition=Q(
                    accounted_at__isnull=True,
                    elapsed_s__isnull=True,
                    machines__isnull=True,
                    cpu_s__isnull=True,
                    accounted_nano_usd__isnull=True,
                )
                | Q(
                    accounted_at__isnull=False,
                    due_at__isnull=True,
                    elapsed_s__isnull=False,
                    machines__isnull=False,
                    cpu_s__isnull=False,
                    accounted_nano_usd__isnull=False,
                ),
                name="allocation_usage_known_or_not",
            ),
        ]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["pool", "ended_at"], name="allocation_usage_by_pool"),
            models.Index(
                fields=["pool", "due_at"],
                condition=Q(due_at__isnull=False),
                name="allocation_usage_due",
            ),
        ]
