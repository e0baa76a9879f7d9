"""Preemptions: attempts of preemptible workloads that were stopped for another workload."""

from typing import ClassVar

from django.db import models

from portal.core.models import IdField, Row
from portal.workloads.models.workloads import Workload


class Preemption(Row):
    """An attempt of a preemptible workload that was asked to stop so that another one can start.

    It is written in the transaction that asks, at most once for an attempt.
    """

    id = IdField("pre")
    workload = models.ForeignKey(Workload, on_delete=models.PROTECT, related_name="moves")
    attempt = models.PositiveIntegerField()
    beneficiary = models.ForeignKey(Workload, on_delete=models.PROTECT, related_name="+")

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(
                fields=["workload", "attempt"], name="preemption_once_an_attempt"
            ),
        ]
