"""Leases: the right of a task to run on a node, and what came of it."""

from datetime import datetime
from typing import ClassVar

from django.db import models
from django.db.models import Q

from portal.accounts.models import Project, Team
from portal.compute.models import Node, Tier
from portal.compute.models.pools import FULL_PRICE
from portal.compute.resources import Amount
from portal.core.models import IdField, Row
from portal.workloads.lifecycle import LeaseState
from portal.workloads.models.workloads import Task, Workload


class LeaseQuerySet(models.QuerySet["Lease"]):
    """Queries of leases. They are granted in `leasing` and closed in `completion` only."""

    def open(self) -> "LeaseQuerySet":
        """Leases in force."""
        return self.filter(ended_at__isnull=True)

    def of_epoch(self, workload: Workload) -> "LeaseQuerySet":
        """Leases of the workload's present placement, open and closed."""
        return self.filter(workload=workload, epoch=workload.epoch)

    def expired(self, timestamp: datetime) -> "LeaseQuerySet":
        """Leases in force that nobody renewed in time."""
        return self.open().filter(expires_at__lte=timestamp)


class Lease(Row):
    """A task of one epoch on a node: resources, price, and how far it has come.

    It is committed before anything starts, so what runs is always accounted for. `ended_at` is when
    the node's runtime says it ended, in our own time. `active_at` is when the task last wrote
    output, finished a step or used a processor, to about a minute. `charged_to_ms` (Unix
    milliseconds) is up to when the fair share knows of it. `billed_to_ms` and `billed_nano_usd` say
    up to when and how much the ledger of spend knows of it (not yet: null). `is_settled` means that
    nothing follows. A task of a gang has an `address` and one of its `ports` for each rank, once it
    has reported them. `failed_at` is when a task failed that stays for shells: from then on it has
    the reason and the other columns of its end. `ranks_connected` says whether its ranks have
    connected to others (null: not known). `price_percent` is that of the pool, and
    `discount_percent` that of preemptible work, when it was granted, for good.
    """

    id = IdField("lse")
    task = models.ForeignKey(Task, on_delete=models.PROTECT, related_name="leases")
    workload = models.ForeignKey(Workload, on_delete=models.PROTECT, related_name="leases")
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+")
    team = models.ForeignKey(
        Team, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    node = models.ForeignKey(Node, on_delete=models.PROTECT, related_name="+")
    tier = models.ForeignKey(Tier, on_delete=models.PROTECT, related_name="+")
    nano_usd_per_hour = models.BigIntegerField()
    price_percent = models.PositiveSmallIntegerField(default=FULL_PRICE, db_default=FULL_PRICE)
    discount_percent = models.PositiveSmallIntegerField(default=0, db_default=0)
    epoch = models.PositiveIntegerField()
    index = models.PositiveSmallIntegerField()
    state = models.CharField(max_length=16, default=LeaseState.GRANTED)
    cpu_millis = models.BigIntegerField()
    memory_bytes = models.BigIntegerField()
    gpus = models.IntegerField(default=0)
    gpu_indices = models.JSONField(default=list)
    fair_millis = models.BigIntegerField()
    charged_to_ms = models.BigIntegerField()
    billed_to_ms = models.BigIntegerField(null=True, blank=True)
    billed_nano_usd = models.BigIntegerField(default=0)
    is_settled = models.BooleanField(default=False)
    keeps_on_fence = models.BooleanField(default=False)

    granted_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    ends_by = models.DateTimeField(null=True, blank=True)
    started_at = models.DateTimeField(null=True, blank=True)
    failed_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    active_at = models.DateTimeField(null=True, blank=True)

    address = models.CharField(max_length=253, blank=True, default="", db_default="")
    ports = models.JSONField(null=True, blank=True)
    ranks_connected = models.BooleanField(null=True, blank=True)
    warm = models.BooleanField(null=True, blank=True)
    step = models.BigIntegerField(null=True, blank=True)
    first_step_at = models.DateTimeField(null=True, blank=True)
    reason = models.CharField(max_length=32, blank=True)
    message = models.CharField(max_length=2000, blank=True)
    exit_code = models.IntegerField(null=True, blank=True)
    rank_ends = models.JSONField(default=list)
    memory_peak_bytes = models.BigIntegerField(null=True, blank=True)
    memory_limit_bytes = models.BigIntegerField(null=True, blank=True)
    cpu_seconds = models.FloatField(null=True, blank=True)
    log_tail = models.TextField(blank=True)

    objects: ClassVar[LeaseQuerySet] = LeaseQuerySet.as_manager()  # type: ignore[assignment]

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(
                fields=["task"], condition=Q(ended_at__isnull=True), name="lease_one_open_a_task"
            ),
            models.UniqueConstraint(fields=["task", "epoch"], name="lease_once_an_epoch"),
            models.CheckConstraint(
                condition=Q(ended_at__isnull=True) | Q(ended_at__gte=models.F("granted_at")),
                name="lease_ends_after_it_began",
            ),
            models.CheckConstraint(
                condition=Q(ended_at__isnull=True, state__in=["granted", "starting", "running"])
                | Q(ended_at__isnull=False, state="ended"),
                name="lease_state_says_whether_open",
            ),
        ]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["workload", "epoch"], name="lease_by_placement"),
            models.Index(
                fields=["node"], condition=Q(ended_at__isnull=True), name="lease_open_by_node"
            ),
            models.Index(
                fields=["expires_at"], condition=Q(ended_at__isnull=True), name="lease_expiry"
            ),
            models.Index(
                fields=["charged_to_ms"], condition=Q(ended_at__isnull=True), name="lease_charges"
            ),
            models.Index(
                fields=["ends_by"],
                condition=Q(ended_at__isnull=True, ends_by__isnull=False),
                name="lease_known_ends",
            ),
            models.Index(
                fields=["granted_at"], condition=Q(state="granted"), name="lease_not_begun"
            ),
            models.Index(fields=["project", "granted_at"], name="lease_by_project"),
            models.Index(fields=["id"], condition=Q(is_settled=False), name="lease_unsettled"),
        ]

    @property
    def amount(self) -> Amount:
        """Return the resources that the task holds on the node."""
        return Amount(self.cpu_millis, self.memory_bytes, self.gpus)

    @property
    def is_open(self) -> bool:
        """Return True if the lease has not ended."""
        return self.ended_at is None


class UsageSample(models.Model):
    """Usage of one task at a time, as its agent measured it (at `measured_ms` of its own clock)."""

    lease = models.ForeignKey(Lease, on_delete=models.CASCADE, related_name="samples")
    measured_ms = models.BigIntegerField()
    at = models.DateTimeField()
    cpu_percent = models.FloatField()
    memory_bytes = models.BigIntegerField()
    gpu_percent = models.FloatField(null=True, blank=True)
    gpu_memory_bytes = models.BigIntegerField(null=True, blank=True)
    read_bytes = models.BigIntegerField(null=True, blank=True)
    written_bytes = models.BigIntegerField(null=True, blank=True)

    class Meta:
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["lease", "measured_ms"], name="sample_once_a_moment"),
        ]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["at"], name="sample_by_age"),
        ]
