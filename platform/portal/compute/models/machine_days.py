"""Cost of the machines of node groups by day, kept when the rows of machines are deleted."""

from typing import ClassVar

from django.db import models

from portal.compute.lifecycle import MachineUse
from portal.compute.models.node_groups import NodeGroup


class MachineDay(models.Model):
    """Time and cost of the machines of a group on one day, in UTC, in one use.

    Rows only grow. The current use of a machine is added once it ends.
    """

    group = models.ForeignKey(NodeGroup, on_delete=models.PROTECT, related_name="machine_days")
    day = models.DateField()
    use = models.CharField(max_length=8)
    ms = models.BigIntegerField(default=0)
    nano_usd = models.BigIntegerField(default=0)

    class Meta:
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["group", "day", "use"], name="machine_day_once"),
            models.CheckConstraint(
                condition=models.Q(use__in=[use.value for use in MachineUse]),
                name="machine_day_known_use",
            ),
        ]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["day"], name="machine_day_by_day"),
        ]
