"""Workloads, the tasks they consist of, and their events."""

from typing import ClassVar, cast

from django.db import models
from django.db.models import Q

from portal.accounts.models import Project, Team, User
from portal.accounts.principal import Principal
from portal.compute.models import Pool, Tier
from portal.compute.resources import Amount, Need
from portal.core.models import IdField, Row
from portal.workloads.lifecycle import ACTIVE, ENDS, OPEN_ALLOCATIONS, WAITING, StopOutcome
from portal.workloads.retries import RetryRule
from slipway.schemas.accounts import NetworkRule
from slipway.schemas.backends import DEFAULT_BACKEND
from slipway.schemas.workloads import ReasonCode, WorkloadState

_STATES = [state.value for state in WorkloadState]
_ACTIVE = sorted(state.value for state in ACTIVE)


class WorkloadQuerySet(models.QuerySet["Workload"]):
    """Queries of workloads. States change in `portal.workloads.transitions` alone."""

    def visible_to(self, principal: Principal) -> "WorkloadQuerySet":
        """Workloads of the projects in sight that are not archived."""
        return self.filter(project__in=principal.projects().live())

    def queued(self) -> "WorkloadQuerySet":
        """Workloads that wait for a place, in the order of their project's queue."""
        return self.filter(state=WorkloadState.QUEUED).order_by("-priority", "id")

    def waiting_in(
        self, pool_id: str | None, *, with_preemptible: bool = True
    ) -> "WorkloadQuerySet":
        """Workloads that wait for a place on our own nodes, or for an allocation in a pool."""
        if not with_preemptible:
            return self.waiting_in(pool_id).filter(is_preemptible=False)
        if pool_id is None:
            return self.queued().filter(pool__isnull=True)
        ordered = Q(allocations__state__in=OPEN_ALLOCATIONS)
        return self.queued().filter(pool_id=pool_id).exclude(ordered)

    def active(self) -> "WorkloadQuerySet":
        """Workloads that hold leases."""
        return self.filter(state__in=_ACTIVE)

    def preemptible(self) -> "WorkloadQuerySet":
        """Preemptible workloads on our own nodes that have not been asked to stop, nor are kept."""
        active = self.active().exclude(state=WorkloadState.STOPPING)
        return active.filter(is_preemptible=True, pool__isnull=True, kept_until__isnull=True)

    def with_hold(self) -> "WorkloadQuerySet":
        """Waiting workloads for which capacity is held, the longest held first."""
        held = self.filter(state=WorkloadState.QUEUED, held_since__isnull=False)
        return held.order_by("held_since", "id")

    def kept(self) -> "WorkloadQuerySet":
        """Workloads that have failed and whose task stays for shells."""
        return self.filter(state=WorkloadState.RUNNING, kept_until__isnull=False)

    def unfinished(self) -> "WorkloadQuerySet":
        """Workloads that have not ended."""
        return self.exclude(state__in=[state.value for state in ENDS])

    def ahead_of(self, workload: "Workload") -> "WorkloadQuerySet":
        """Workloads that go before this one in its project's queue."""
        return self.filter(
            Q(priority__gt=workload.priority) | Q(priority=workload.priority, id__lt=workload.pk),
            project_id=workload.project_id,
            pool_id=workload.pool_id,
            state=WorkloadState.QUEUED,
        )

    def parts_of(self, workload: "Workload") -> "WorkloadQuerySet":
        """Return the workloads that are parts of this one."""
        return self.filter(parent=workload)


class Workload(Row):
    """Something that runs somewhere under leases: a job, a notebook, an endpoint replica.

    What a task needs is copied from the tier at submit. `tags` are what its submitter calls it by,
    for good: spend is split by them. `epoch` counts placements, and `network` is the project's rule
    at the last of them. `plan` says what becomes of it once its last lease is closed. `waits_since`
    is when the present wait began. `failures` and `losses` count ends by its own fault and by that
    of machines. `parent` is the workload that it is a part of, such as the search that submitted
    it, and `root` the outermost one. `silent_since` is set while it runs without output, steps and
    use of a processor, see `silence`. `ranks_apart` is set while none of its ranks has connected to
    another, see `gangs`. `kept_until` is set once it has failed and its task stays for shells, see
    `kept_tasks`. Parts are stopped with their parent, and spend counts them at the root.
    A preemptible one may be moved for others, and `preemptions` counts that. While it waits with
    `held_since`, capacity is held for it on `held_nodes`, an id for each task, see `preemption`.
    """

    id = IdField("wl")
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+")
    team = models.ForeignKey(
        Team, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    kind = models.CharField(max_length=32)
    name = models.CharField(max_length=100)
    parent = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.PROTECT, related_name="parts"
    )
    root = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    submitted_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    submit_key = models.CharField(max_length=128, null=True, blank=True)  # noqa: DJ001  (unique)
    state = models.CharField(max_length=16, default=WorkloadState.SUBMITTED)
    epoch = models.PositiveIntegerField(default=0)
    plan = models.CharField(max_length=16, blank=True, default=StopOutcome.NONE)
    priority = models.SmallIntegerField(default=0)
    is_preemptible = models.BooleanField(default=False, db_default=False)
    preemptions = models.PositiveIntegerField(default=0, db_default=0)
    held_nodes = models.JSONField(default=list, db_default=[])
    held_since = models.DateTimeField(null=True, blank=True)

    tier = models.ForeignKey(Tier, on_delete=models.PROTECT, related_name="+")
    pool = models.ForeignKey(
        Pool, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    nodes = models.PositiveSmallIntegerField(default=1)
    procs = models.PositiveSmallIntegerField(default=1)
    cpu_millis = models.BigIntegerField()
    memory_bytes = models.BigIntegerField()
    gpus = models.IntegerField(default=0)
    gpu_model = models.CharField(max_length=64, blank=True)
    labels = models.JSONField(default=dict)
    tags = models.JSONField(default=dict)
    backend = models.CharField(max_length=16, default=DEFAULT_BACKEND)
    # Minor version that its environment needs of a node; empty for that of the installation.
    python = models.CharField(max_length=8, blank=True, default="", db_default="")
    spec = models.JSONField()
    snapshot = models.CharField(max_length=64, blank=True)
    environment = models.CharField(max_length=64, blank=True)
    network = models.CharField(max_length=16, default="open", db_default="open")

    max_attempts = models.PositiveSmallIntegerField(default=1)
    retry_on = models.JSONField(default=list)
    failures = models.PositiveSmallIntegerField(default=0)
    losses = models.PositiveSmallIntegerField(default=0)
    max_lifetime_s = models.PositiveIntegerField(null=True, blank=True)

    hold = models.CharField(max_length=300, blank=True)
    reason = models.CharField(max_length=32, blank=True)
    reason_text = models.CharField(max_length=500, blank=True)
    next_step = models.CharField(max_length=300, blank=True)
    exit_code = models.IntegerField(null=True, blank=True)
    log_tail = models.TextField(blank=True)
    rendezvous_address = models.CharField(max_length=253, blank=True)
    rendezvous_port = models.PositiveIntegerField(default=0)
    rendezvous_agent_store = models.BooleanField(default=False)

    waits_since = models.DateTimeField()
    placed_at = models.DateTimeField(null=True, blank=True)
    started_at = models.DateTimeField(null=True, blank=True)
    deadline_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    silent_since = models.DateTimeField(null=True, blank=True)
    ranks_apart = models.BooleanField(default=False, db_default=False)
    kept_until = models.DateTimeField(null=True, blank=True)

    objects: ClassVar[WorkloadQuerySet] = WorkloadQuerySet.as_manager()  # type: ignore[assignment]

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.CheckConstraint(condition=Q(state__in=_STATES), name="workload_known_state"),
            models.UniqueConstraint(
                fields=["project", "submit_key"],
                condition=Q(submit_key__isnull=False),
                name="workload_once_a_key",
            ),
            models.CheckConstraint(
                condition=Q(nodes__gte=1, procs__gte=1), name="workload_has_tasks"
            ),
        ]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["project", "-id"], name="workload_by_project"),
            # Earlier workloads of the same name, from which the next one's cost is estimated.
            models.Index(fields=["project", "name", "-id"], name="workload_by_name"),
            # The queue of each project, in its order. Contains what waits for our own nodes only.
            models.Index(
                fields=["project", "-priority", "id"],
                condition=Q(state="queued", pool__isnull=True),
                name="workload_queue",
            ),
            models.Index(
                fields=["pool", "-priority", "id"],
                condition=Q(state="queued", pool__isnull=False),
                name="workload_pool_queue",
            ),
            models.Index(fields=["id"], condition=Q(state="submitted"), name="workload_held"),
            models.Index(
                fields=["held_since"],
                condition=Q(state="queued", held_since__isnull=False),
                name="workload_with_hold",
            ),
            models.Index(
                fields=["id"],
                condition=Q(state__in=_ACTIVE, is_preemptible=True),
                name="workload_preemptible",
            ),
            models.Index(
                fields=["silent_since"],
                condition=Q(silent_since__isnull=False),
                name="workload_silent",
            ),
            models.Index(
                fields=["deadline_at"],
                condition=Q(state__in=_ACTIVE, deadline_at__isnull=False),
                name="workload_deadlines",
            ),
            models.Index(
                fields=["kept_until"],
                condition=Q(state__in=_ACTIVE, kept_until__isnull=False),
                name="workload_kept",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def status(self) -> WorkloadState:
        """The state, as a value of the enum."""
        return WorkloadState(self.state)

    @property
    def is_kept(self) -> bool:
        """True while it has failed and its task stays for shells, or is about to end."""
        return self.kept_until is not None and self.status in ACTIVE

    @property
    def amount(self) -> Amount:
        """Return the resources of one task."""
        return Amount(self.cpu_millis, self.memory_bytes, self.gpus)

    @property
    def price(self) -> int:
        """Return nano-USD an hour of all its tasks, if they started now."""
        price = self.tier.price(is_preemptible=self.is_preemptible, pool=self.pool)
        return price * self.nodes

    @property
    def full_price(self) -> int:
        """Return what `price` would be if it were not preemptible."""
        return self.tier.price(pool=self.pool) * self.nodes

    @property
    def need(self) -> Need:
        """Return the requirements of one task, under the current network rule of its project."""
        network = self.project.network_rule
        pool: str | None = self.pool_id
        if pool is not None:
            # Its engine has chosen the nodes. Labels and Pythons are of ours.
            epoch = self.epoch + (self.status in WAITING)
            reserved_for = placement_name(self.pk, epoch)
            return Need(
                self.amount, self.gpu_model, (), self.backend, network, reserved_for=reserved_for
            )
        labels = tuple(sorted(self.labels.items()))
        return Need(self.amount, self.gpu_model, labels, self.backend, network, self.python)

    @property
    def network_rule(self) -> NetworkRule:
        """The rule it runs under. While it waits, the one it would be placed under now."""
        if self.status in WAITING:
            return self.project.network_rule
        return cast("NetworkRule", self.network)

    @property
    def retry_rule(self) -> RetryRule:
        """When it runs again by itself."""
        return RetryRule(
            max_attempts=self.max_attempts, on=frozenset(map(ReasonCode, self.retry_on))
        )


def placement_name(workload_id: str, epoch: int) -> str:
    """Return the name of a placement, by which nodes of a pool are reserved for it."""
    return f"{workload_id}/{epoch}"


class Task(Row):
    """One of the tasks of a workload, the same through all attempts."""

    id = IdField("task")
    workload = models.ForeignKey(Workload, on_delete=models.CASCADE, related_name="tasks")
    index = models.PositiveSmallIntegerField()

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["workload", "index"], name="task_once_an_index"),
        ]


class WorkloadEvent(Row):
    """An event of a workload. Events that an agent reported carry task, epoch and sequence."""

    id = IdField("wev")
    workload = models.ForeignKey(Workload, on_delete=models.CASCADE, related_name="events")
    attempt = models.PositiveIntegerField(default=0)
    kind = models.CharField(max_length=32)
    message = models.CharField(max_length=2000)
    task = models.ForeignKey(
        Task, null=True, blank=True, on_delete=models.CASCADE, related_name="+"
    )
    sequence = models.PositiveIntegerField(null=True, blank=True)

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(
                fields=["task", "attempt", "sequence"],
                condition=Q(sequence__isnull=False),
                name="workload_event_once_a_report",
            ),
        ]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["workload", "id"], name="workload_story"),
        ]
