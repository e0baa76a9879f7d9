"""The history of a model, and requests for promotions."""

from typing import Any, ClassVar

from django.db import models
from django.db.models import Q

from portal.accounts.models import User
from portal.core import clock
from portal.core.models import IdField, Row
from portal.registry.lifecycle import sources_of
from portal.registry.models.lines import ModelLine
from portal.registry.models.versions import VersionRecord
from slipway.schemas.registry import RequestState


class MoveQuerySet(models.QuerySet["Move"]):
    """Queries of moves."""

    def unsynced(self) -> "MoveQuerySet":
        """Moves that are not synced to MLflow's tables yet."""
        return self.filter(told_at__isnull=True)


class Move(Row):
    """One event in the linear history of a model: a stage entered, an alias set or removed.

    `gates` are the results at the time of the move. `replaced` is the version that was at the
    target before. `told_at` is the time of the sync to MLflow's tables.
    """

    id = IdField("move")
    line = models.ForeignKey(ModelLine, on_delete=models.CASCADE, related_name="moves")
    sequence = models.PositiveIntegerField()
    kind = models.CharField(max_length=5)
    target = models.CharField(max_length=256)
    version = models.PositiveIntegerField(null=True, blank=True)
    replaced = models.PositiveIntegerField(null=True, blank=True)
    stage_before = models.CharField(max_length=40, blank=True)
    gates = models.JSONField(default=list)
    override_reason = models.TextField(blank=True)
    by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    told_at = models.DateTimeField(null=True, blank=True)

    objects: ClassVar[MoveQuerySet] = MoveQuerySet.as_manager()  # type: ignore[assignment]

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["line", "sequence"], name="move_once_a_place"),
        ]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["line"], condition=Q(told_at__isnull=True), name="move_untold"),
        ]


class RequestQuerySet(models.QuerySet["PromotionRequest"]):
    """Queries of requests. A move is one guarded UPDATE: the loser of a race gets False."""

    def complete(self) -> "RequestQuerySet":
        """With the relations that responses need."""
        return self.select_related("record__line", "requested_by", "decided_by")

    def move(self, pk: str, target: RequestState, **changes: Any) -> bool:
        """Move one request to `target` from a state that allows it."""
        return bool(
            self.filter(pk=pk, state__in=sources_of(target)).update(state=target, **changes)
        )

    def approve(self, pk: str, *, by: User, note: str) -> bool:
        """Approve an open request."""
        return self._decide(pk, RequestState.APPROVED, by, note)

    def reject(self, pk: str, *, by: User, note: str) -> bool:
        """Reject an open request."""
        return self._decide(pk, RequestState.REJECTED, by, note)

    def _decide(self, pk: str, target: RequestState, by: User, note: str) -> bool:
        return self.move(pk, target, decided_by=by, decision_note=note, decided_at=clock.now())


class PromotionRequest(Row):
    """Request to approve the promotion of a version to a target. `used` once it was promoted."""

    id = IdField("preq")
    record = models.ForeignKey(VersionRecord, on_delete=models.CASCADE, related_name="requests")
    kind = models.CharField(max_length=5)
    target = models.CharField(max_length=256)
    state = models.CharField(max_length=10, default=RequestState.OPEN)
    note = models.TextField(blank=True)
    requested_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    decided_by = models.ForeignKey(
        User, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    decision_note = models.TextField(blank=True)
    decided_at = models.DateTimeField(null=True, blank=True)

    objects: ClassVar[RequestQuerySet] = RequestQuerySet.as_manager()  # type: ignore[assignment]

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(
                fields=["record", "kind", "target"],
                condition=Q(state__in=["open", "approved"]),
                name="request_once_a_target",
            ),
        ]
