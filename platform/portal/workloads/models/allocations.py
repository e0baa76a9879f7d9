"""Allocations: machines ordered of the engine of a pool, for one placement of a workload."""

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
    to end it.
    """

    id = IdField("alloc")
    workload = models.ForeignKey(Workload, on_delete=models.PROTECT, related_name="allocations")
    pool = models.ForeignKey(Pool, on_delete=models.PROTECT, related_name="+")
    epoch = models.PositiveIntegerField()
    state = models.CharField(max_length=16, default=AllocationState.ORDERED)
    handle = models.CharField(max_length=200, blank=True)
    account = models.CharField(max_length=64, blank=True)
    detail = models.CharField(max_length=500, blank=True)
    cause = models.CharField(max_length=16, blank=True)
    stopped_at = models.DateTimeField(null=True, blank=True)
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
    def reserved_for(self) -> str:
        """The placement that its nodes may run."""
        return placement_name(self.workload_id, self.epoch)
