"""Machines of node groups: what was requested of a provisioner, and what became of it."""

from datetime import datetime, timedelta
from typing import Any, ClassVar

from django.db import models
from django.db.models import Q

from portal.compute.lifecycle import (
    COUNTED_MACHINES,
    OPEN_MACHINES,
    MachineState,
    machine_sources,
)
from portal.compute.models.node_groups import NodeGroup
from portal.compute.models.nodes import Node
from portal.core.models import IdField, Row


class GroupMachineQuerySet(models.QuerySet["GroupMachine"]):
    """Queries of machines. Only `move` changes their state."""

    def open(self) -> "GroupMachineQuerySet":
        """Return the machines that exist, or may exist, at their provisioner."""
        return self.filter(state__in=OPEN_MACHINES)

    def closed(self) -> "GroupMachineQuerySet":
        """Return the machines that do not exist any more."""
        return self.exclude(state__in=OPEN_MACHINES)

    def counted(self) -> "GroupMachineQuerySet":
        """Return the machines that are nodes of their group, or are about to be."""
        return self.filter(state__in=COUNTED_MACHINES)

    def starting(self) -> "GroupMachineQuerySet":
        """Return the machines that have not joined yet."""
        return self.filter(state__in=(MachineState.REQUESTED, MachineState.STARTING))

    def move(self, machine_id: str, target: MachineState, **changes: Any) -> bool:
        """Move a machine to another state. Return False if its state does not allow it."""
        rows = self.filter(pk=machine_id, state__in=machine_sources(target))
        return bool(rows.update(state=target, **changes))


class GroupMachine(Row):
    """A machine of a node group. The row is committed before the provisioner hears of it.

    `name` is the name of its node, and what makes a repeated order harmless. `handle` is the
    provisioner's. `reason` says why it is leaving, `failure` why it counts as failed, and `output`
    is the end of its console then. `idle_ms` is the time without work so far, without the time
    since `idle_since`. `metered_until` is the end of the time that is in `MachineDay`.
    `nano_usd_per_hour` is the price of the group when it was requested.
    """

    id = IdField("mach")
    group = models.ForeignKey(NodeGroup, on_delete=models.PROTECT, related_name="machines")
    name = models.CharField(max_length=48, unique=True)
    state = models.CharField(max_length=16, default=MachineState.REQUESTED)
    handle = models.CharField(max_length=200, blank=True)
    node = models.ForeignKey(
        Node, null=True, blank=True, on_delete=models.SET_NULL, related_name="machines"
    )
    detail = models.CharField(max_length=500, blank=True)
    reason = models.CharField(max_length=300, blank=True)
    failure = models.CharField(max_length=500, blank=True)
    output = models.TextField(blank=True)
    nano_usd_per_hour = models.BigIntegerField()
    started_at = models.DateTimeField(null=True, blank=True)
    joined_at = models.DateTimeField(null=True, blank=True)
    idle_since = models.DateTimeField(null=True, blank=True)
    idle_ms = models.BigIntegerField(default=0)
    draining_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    metered_until = models.DateTimeField(null=True, blank=True)

    objects: ClassVar[GroupMachineQuerySet] = GroupMachineQuerySet.as_manager()  # type: ignore[assignment]

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.CheckConstraint(
                condition=Q(state__in=[state.value for state in MachineState]),
                name="group_machine_known_state",
            ),
        ]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(
                fields=["group"],
                condition=Q(state__in=[state.value for state in OPEN_MACHINES]),
                name="group_machine_open",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def is_open(self) -> bool:
        """True if it exists, or may exist, at its provisioner."""
        return self.state in OPEN_MACHINES

    def idle_time(self, timestamp: datetime) -> timedelta:
        """Return how long it has had no work, from its join to its release."""
        current = timestamp - self.idle_since if self.idle_since else timedelta()
        return timedelta(milliseconds=self.idle_ms) + current

    def start_time(self, timestamp: datetime) -> timedelta:
        """Return how long it took to join, or has been starting."""
        if self.started_at is None:
            return timedelta()
        end = self.joined_at or self.draining_at or self.ended_at or timestamp
        return max(timedelta(), end - self.started_at)

    def total_time(self, timestamp: datetime) -> timedelta:
        """Return how long it has existed at its provisioner."""
        if self.started_at is None:
            return timedelta()
        return (self.ended_at or timestamp) - self.started_at

    def cost(self, time: timedelta) -> int:
        """Return the price of a time in nano-USD."""
        return self.nano_usd_per_hour * (time // timedelta(milliseconds=1)) // 3_600_000
