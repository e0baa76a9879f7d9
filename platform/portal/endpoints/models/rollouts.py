"""Rollouts: traffic moves from one revision to another."""

from typing import ClassVar

from django.db import models
from django.db.models import Q

from portal.accounts.models import User
from portal.core.models import IdField, Row
from portal.endpoints.lifecycle import UNDER_WAY, RolloutState
from portal.endpoints.models.endpoints import Endpoint, Revision

_STATES = [state.value for state in RolloutState]
_UNDER_WAY = sorted(state.value for state in UNDER_WAY)


class RolloutQuerySet(models.QuerySet["Rollout"]):
    """Queries of rollouts."""

    def under_way(self) -> "RolloutQuerySet":
        """Rollouts that have not ended."""
        return self.filter(state__in=_UNDER_WAY)


class Rollout(Row):
    """Moves the traffic of an endpoint from `previous` to `revision`, step by step.

    `steps` are those of `portal.endpoints.plans`. `step` is the present one, since `step_since`.
    `baseline` holds the counters of both revisions when the rollout began.
    """

    id = IdField("rol")
    endpoint = models.ForeignKey(Endpoint, on_delete=models.PROTECT, related_name="rollouts")
    revision = models.ForeignKey(Revision, on_delete=models.PROTECT, related_name="+")
    previous = models.ForeignKey(
        Revision, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    made_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    plan = models.CharField(max_length=16)
    steps = models.JSONField()
    state = models.CharField(max_length=16, default=RolloutState.PLANNED)
    step = models.PositiveSmallIntegerField(default=0)
    step_since = models.DateTimeField(null=True, blank=True)
    baseline = models.JSONField(default=dict)
    reason = models.CharField(max_length=2000, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    objects: ClassVar[RolloutQuerySet] = RolloutQuerySet.as_manager()  # type: ignore[assignment]

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.CheckConstraint(condition=Q(state__in=_STATES), name="rollout_known_state"),
            models.UniqueConstraint(
                fields=["endpoint"],
                condition=Q(state__in=_UNDER_WAY),
                name="rollout_one_at_a_time",
            ),
        ]

    @property
    def status(self) -> RolloutState:
        """The state, as a value of the enum."""
        return RolloutState(self.state)
