"""Nodes, their capacity and reservations, and join tokens."""

from collections.abc import Iterable
from datetime import datetime
from typing import ClassVar

from django.db import models
from django.db.models import F, Q

from portal.accounts.models import Project, User
from portal.compute.isolation import Isolation, isolation_of
from portal.compute.lifecycle import LEASE, QUIET, NodeState, node_sources
from portal.compute.models.node_groups import NodeGroup
from portal.compute.models.pools import Pool
from portal.compute.resources import Amount, Need
from portal.core import clock
from portal.core.models import IdField, Row
from portal.core.notify import notify_listeners


class NodeQuerySet(models.QuerySet["Node"]):
    """Queryset of nodes. Only `reserve` and `release` change the `used_*` columns."""

    def present(self) -> "NodeQuerySet":
        """Nodes that belong to the installation, online or not."""
        return self.exclude(state=NodeState.REMOVED)

    def lasting(self) -> "NodeQuerySet":
        """Return the nodes that belong to the installation and to no allocation of an engine."""
        return self.present().filter(reserved_for="")

    def usable_by(self, project: Project) -> "NodeQuerySet":
        """Return the nodes that take work of a project: of no group, or of one for the project."""
        allowed = NodeGroup.objects.filter(Q(is_for_all=True) | Q(projects=project))
        return self.filter(Q(group__isnull=True) | Q(group__in=allowed))

    def accepting_work(self, timestamp: datetime) -> "NodeQuerySet":
        """Return ready nodes with a recent heartbeat, which accept new work."""
        return self.filter(state=NodeState.READY, last_seen_at__gt=timestamp - QUIET)

    def reserve(self, node_id: str, *, amount: Amount, tasks: int) -> bool:
        """Reserve an amount for some tasks. Return False when it is not free or the node not ready.

        One guarded UPDATE, so a node is never overcommitted.
        """
        free = self.filter(
            pk=node_id,
            state=NodeState.READY,
            cpu_millis__gte=F("used_cpu_millis") + amount.cpu_millis,
            memory_bytes__gte=F("used_memory_bytes") + amount.memory_bytes,
            gpus__gte=F("used_gpus") + amount.gpus,
        )
        is_taken = bool(
            free.update(
                used_cpu_millis=F("used_cpu_millis") + amount.cpu_millis,
                used_memory_bytes=F("used_memory_bytes") + amount.memory_bytes,
                used_gpus=F("used_gpus") + amount.gpus,
                tasks=F("tasks") + tasks,
                desired_version=F("desired_version") + 1,
            )
        )
        if is_taken:
            notify_listeners()
        return is_taken

    def release(self, node_id: str, *, amount: Amount) -> None:
        """Release the resources of one task, and notify the node's agent."""
        self.filter(pk=node_id).update(
            used_cpu_millis=F("used_cpu_millis") - amount.cpu_millis,
            used_memory_bytes=F("used_memory_bytes") - amount.memory_bytes,
            used_gpus=F("used_gpus") - amount.gpus,
            tasks=F("tasks") - 1,
            desired_version=F("desired_version") + 1,
        )
        notify_listeners()

    def wake(self, node_ids: Iterable[str]) -> None:
        """Notify agents that their desired state has changed."""
        if self.filter(pk__in=sorted(set(node_ids))).update(
            desired_version=F("desired_version") + 1
        ):
            notify_listeners()

    def move(self, node_id: str, target: NodeState, *, reason: str) -> bool:
        """Move a node to another state. Return False when its current state does not allow it."""
        movable = self.filter(pk=node_id, state__in=node_sources(target))
        return bool(movable.update(state=target, reason=reason))


class Node(Row):
    """A machine that runs tasks.

    `used_*` is the sum of the open leases on it. `desired_version` grows with every change of its
    desired state, and its agent waits for that. `hearing_since` is the start of the current
    unbroken series of heartbeats. `isolation` is the last report of its agent, and so is `disk`:
    its size, the limit of one task and the reserve. `mixes_projects` lets back ends that cannot
    isolate projects run several at a time. `pythons` are minor versions of Python that environments
    can be built with. `reserved_for` is the only placement that may use the node, as
    `WORKLOAD/EPOCH`: it is part of an allocation of its pool and vanishes with it. A node of a
    `group` was made by the group's provisioner, and runs work of the group's projects alone.
    """

    id = IdField("node")
    name = models.CharField(max_length=48)
    pool = models.ForeignKey(
        Pool, null=True, blank=True, on_delete=models.PROTECT, related_name="nodes"
    )
    group = models.ForeignKey(
        NodeGroup, null=True, blank=True, on_delete=models.PROTECT, related_name="nodes"
    )
    reserved_for = models.CharField(max_length=64, blank=True, db_default="")
    state = models.CharField(max_length=16, default=NodeState.READY)
    reason = models.CharField(max_length=200, blank=True)
    token_hash = models.CharField(max_length=64, unique=True)
    boot_id = models.CharField(max_length=64, blank=True)
    agent_version = models.CharField(max_length=32, blank=True)
    address = models.CharField(max_length=253)
    backends = models.JSONField(default=list)
    labels = models.JSONField(default=dict)
    gpu_models = models.JSONField(default=list)
    isolation = models.JSONField(default=list, db_default=[])
    mixes_projects = models.BooleanField(default=False, db_default=False)
    disk = models.JSONField(default=dict, db_default={})
    pythons = models.JSONField(default=list, db_default=[])
    disk_free_bytes = models.BigIntegerField(null=True, blank=True)
    cpu_millis = models.BigIntegerField()
    memory_bytes = models.BigIntegerField()
    gpus = models.IntegerField(default=0)
    used_cpu_millis = models.BigIntegerField(default=0)
    used_memory_bytes = models.BigIntegerField(default=0)
    used_gpus = models.IntegerField(default=0)
    tasks = models.IntegerField(default=0)
    cpu_percent = models.FloatField(null=True, blank=True)
    memory_used_bytes = models.BigIntegerField(null=True, blank=True)
    desired_version = models.BigIntegerField(default=1)
    last_seen_at = models.DateTimeField(null=True, blank=True)
    hearing_since = models.DateTimeField(null=True, blank=True)

    objects: ClassVar[NodeQuerySet] = NodeQuerySet.as_manager()  # type: ignore[assignment]

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(
                fields=["name"], condition=~Q(state="removed"), name="node_name_once"
            ),
            models.CheckConstraint(
                condition=Q(
                    used_cpu_millis__gte=0, used_memory_bytes__gte=0, used_gpus__gte=0, tasks__gte=0
                ),
                name="node_gives_back_what_was_taken",
            ),
            models.CheckConstraint(
                condition=Q(state__in=[state.value for state in NodeState]),
                name="node_known_state",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def capacity(self) -> Amount:
        """All its resources."""
        return Amount(self.cpu_millis, self.memory_bytes, self.gpus)

    @property
    def free(self) -> Amount:
        """Unreserved resources."""
        return self.capacity.minus(
            Amount(self.used_cpu_millis, self.used_memory_bytes, self.used_gpus)
        )

    @property
    def isolation_levels(self) -> list[Isolation]:
        """Isolation of projects in each back end."""
        return isolation_of(self.backends, self.isolation)

    @property
    def shared_backends(self) -> frozenset[str]:
        """Back ends on which one project at a time may run."""
        if self.mixes_projects:
            return frozenset()
        return frozenset(level.backend for level in self.isolation_levels if level.is_shared)

    @property
    def network_backends(self) -> frozenset[str]:
        """Back ends that can enforce the network rule `platform`."""
        levels = self.isolation_levels
        return frozenset(level.backend for level in levels if level.enforces_network)

    def is_quiet(self, timestamp: datetime | None = None) -> bool:
        """Return True if the last heartbeat is too old for the node to get new work."""
        timestamp = timestamp or clock.now()
        return self.last_seen_at is None or self.last_seen_at <= timestamp - QUIET

    def is_lost(self, timestamp: datetime | None = None) -> bool:
        """Return True if the last heartbeat is older than a lease lasts."""
        timestamp = timestamp or clock.now()
        return self.last_seen_at is None or self.last_seen_at <= timestamp - LEASE

    def suits(self, need: Need) -> bool:
        """Return True if the node has the labels, back end, Python and enough GPUs of the model."""
        if self.reserved_for != need.reserved_for:
            return False
        return self.is_of_kind(need) and (
            not need.amount.gpus or self.gpus_of(need.gpu_model) >= need.amount.gpus
        )

    def is_of_kind(self, need: Need) -> bool:
        """Return True if the node has the labels, back end and Python, whatever its size."""
        return need.matches(self.labels, self.backends, self.network_backends, self.pythons)

    def gpus_of(self, model: str) -> int:
        """Return how many GPUs of a model it has (of any, for an empty one)."""
        return sum(not model or gpu_model == model for gpu_model in self.gpu_models)

    def max_amount_for(self, need: Need) -> Amount:
        """Return the most it could ever allocate to tasks of this kind."""
        return Amount(self.cpu_millis, self.memory_bytes, self.gpus_of(need.gpu_model))


class JoinToken(Row):
    """The right to join one machine, once. Only the SHA-256 of the secret is stored.

    `pool`, `group` and `reserved_for` are those of the node that joins with it.
    """

    id = IdField("join")
    token_hash = models.CharField(max_length=64, unique=True)
    node_name = models.CharField(max_length=48, blank=True)
    pool = models.ForeignKey(
        Pool, null=True, blank=True, on_delete=models.CASCADE, related_name="+"
    )
    group = models.ForeignKey(
        NodeGroup, null=True, blank=True, on_delete=models.CASCADE, related_name="+"
    )
    reserved_for = models.CharField(max_length=64, blank=True, db_default="")
    made_by = models.ForeignKey(
        User, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True, blank=True)
    node = models.ForeignKey(
        Node, null=True, blank=True, on_delete=models.CASCADE, related_name="+"
    )
