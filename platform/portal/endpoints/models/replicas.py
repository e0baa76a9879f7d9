"""Replicas: workloads that serve a model."""

from typing import ClassVar

from django.db import models
from django.db.models import Q

from portal.core.models import IdField, Row
from portal.endpoints.lifecycle import COMING, OVER, ReplicaState
from portal.endpoints.models.endpoints import Endpoint, Revision
from portal.workloads.models import Workload

_STATES = [state.value for state in ReplicaState]


class ReplicaQuerySet(models.QuerySet["Replica"]):
    """Queries of replicas."""

    def alive(self) -> "ReplicaQuerySet":
        """Replicas that have not ended."""
        return self.exclude(state__in=[state.value for state in OVER])

    def ready(self) -> "ReplicaQuerySet":
        """Replicas that are in the gateways' snapshot."""
        return self.filter(state=ReplicaState.READY)


class Replica(Row):
    """A workload of one revision.

    `secret` is encrypted with the key that lives outside the database. `dropped_version` is the
    first version of the gateways' snapshot that no longer contains the replica.
    """

    id = IdField("rpl")
    endpoint = models.ForeignKey(Endpoint, on_delete=models.PROTECT, related_name="replicas")
    revision = models.ForeignKey(Revision, on_delete=models.PROTECT, related_name="replicas")
    workload = models.OneToOneField(
        Workload, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    state = models.CharField(max_length=16, default=ReplicaState.STARTING)
    reason = models.CharField(max_length=2000, blank=True)
    secret = models.BinaryField()
    address = models.CharField(max_length=300, blank=True)
    load_ms = models.FloatField(null=True, blank=True)
    warm_ms = models.FloatField(null=True, blank=True)
    forward_ms = models.FloatField(null=True, blank=True)
    ready_at = models.DateTimeField(null=True, blank=True)
    reported_at = models.DateTimeField(null=True, blank=True)
    draining_since = models.DateTimeField(null=True, blank=True)
    dropped_version = models.BigIntegerField(null=True, blank=True)

    objects: ClassVar[ReplicaQuerySet] = ReplicaQuerySet.as_manager()  # type: ignore[assignment]

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.CheckConstraint(condition=Q(state__in=_STATES), name="replica_known_state"),
            models.CheckConstraint(
                condition=~Q(state="ready") | ~Q(address=""), name="replica_ready_somewhere"
            ),
        ]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["revision", "state"], name="replica_by_revision"),
            models.Index(
                fields=["endpoint"],
                condition=~Q(state__in=["stopped", "failed"]),
                name="replica_alive",
            ),
        ]

    @property
    def status(self) -> ReplicaState:
        """The state, as a value of the enum."""
        return ReplicaState(self.state)

    @property
    def is_pending(self) -> bool:
        """True if the replica has yet to become ready."""
        return self.status in COMING
